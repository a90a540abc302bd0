//! Pins threads to processors.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;

/// Pins the calling thread to one processor.
///
/// # Errors
/// The system has no such processor, or does not allow it.
pub fn pin(cpu: u16) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu.into());
    Ok(sched_setaffinity(None, &only)?)
}

/// Tests whether a thread could be [`pin`]ned to a processor.
///
/// A thread that ends afterwards tries it.
///
/// # Errors
/// The errors of [`pin`], or the system cannot start a thread.
pub fn may_run_on(cpu: u16) -> io::Result<()> {
    let thread = std::thread::Builder::new().spawn(move || pin(cpu))?;
    thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

/// Returns the processors that are online, like `0-3,8`.
pub fn online() -> String {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    list.trim().to_owned()
}
