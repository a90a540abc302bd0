//! On which processors threads may run.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;

/// Has the calling thread run on one processor alone.
///
/// # Errors
/// The system has no such processor, or keeps us from it.
pub fn pin(cpu: u16) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu.into());
    Ok(sched_setaffinity(None, &only)?)
}

/// Whether a thread of ours could be [`pin`]ned there, which one that goes with the question tries.
///
/// # Errors
/// As of [`pin`]; or the system has no thread left.
pub fn may_run_on(cpu: u16) -> io::Result<()> {
    let thread = std::thread::Builder::new().spawn(move || pin(cpu))?;
    thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

/// The processors that run, like `0-3,8`.
pub fn online() -> String {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    list.trim().to_owned()
}
