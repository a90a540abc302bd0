//! Confines threads that exist already: those of DPDK, and the one that writes a capture.
//!
//! Capabilities, Landlock and filters belong to a thread, and only the thread itself can change
//! them. glibc has the same task with the user's number, and solves it by a signal. So does this:
//! each other thread makes the system calls in a signal handler.
#![allow(unsafe_code, reason = "system calls in a signal handler")]

use anyhow::{Context, Result, bail, ensure};
use seccompiler::{BpfProgram, sock_filter};
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU16, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a thread may take to answer the signal.
const PATIENCE: Duration = Duration::from_secs(10);

/// The descriptor of the rules of Landlock; -1: none.
static RULES: AtomicI32 = AtomicI32::new(-1);
/// The filter, and its number of instructions; null: none.
static FILTER: AtomicPtr<sock_filter> = AtomicPtr::new(std::ptr::null_mut());
static FILTER_LEN: AtomicU16 = AtomicU16::new(0);
/// The number of threads that have finished, and the last error of one.
static DONE: AtomicU32 = AtomicU32::new(0);
static ERROR: AtomicI32 = AtomicI32::new(0);

/// Takes all capabilities of the other threads away, and gives them these rules and this filter.
///
/// # Errors
/// A thread does not answer, or the kernel refuses.
pub fn confine(rules: Option<&OwnedFd>, filter: Option<&BpfProgram>) -> Result<()> {
    RULES.store(rules.map_or(-1, AsRawFd::as_raw_fd), Ordering::Relaxed);
    if let Some(filter) = filter {
        FILTER.store(filter.as_ptr().cast_mut(), Ordering::Relaxed);
        FILTER_LEN.store(u16::try_from(filter.len())?, Ordering::Relaxed);
    }
    // The last real-time signal. Neither DPDK nor this program uses it.
    let signal = libc::SIGRTMAX();
    let previous = set_handler(signal, handle as extern "C" fn(i32) as usize)?;
    let result = signal_all(signal);
    set_handler(signal, previous)?;
    FILTER.store(std::ptr::null_mut(), Ordering::Relaxed);
    RULES.store(-1, Ordering::Relaxed);
    result
}

/// Signals each thread but this one, until no new one appears.
fn signal_all(signal: i32) -> Result<()> {
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    let mut known = BTreeSet::from([own]);
    loop {
        let new: Vec<i32> = threads()?.into_iter().filter(|thread| known.insert(*thread)).collect();
        if new.is_empty() {
            return Ok(());
        }
        for thread in new {
            let before = DONE.load(Ordering::Acquire);
            // SAFETY: a plain system call.
            if unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) } != 0 {
                // It has ended.
                continue;
            }
            let start = Instant::now();
            while DONE.load(Ordering::Acquire) == before && threads()?.contains(&thread) {
                ensure!(start.elapsed() < PATIENCE, "a thread of DPDK does not answer");
                std::thread::yield_now();
            }
            match ERROR.load(Ordering::Relaxed) {
                0 => {}
                error => bail!("a thread of DPDK: {}", std::io::Error::from_raw_os_error(error)),
            }
        }
    }
}

/// Returns the threads of this process.
fn threads() -> Result<Vec<i32>> {
    let entries = std::fs::read_dir("/proc/self/task").context("/proc/self/task")?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Restricts the calling thread to these rules.
///
/// # Errors
/// The kernel refuses.
pub fn restrict_self(rules: &OwnedFd) -> std::io::Result<()> {
    match restrict(rules.as_raw_fd()) {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Fails unless the kernel has filters of system calls with this action.
///
/// # Errors
/// That of the kernel.
pub fn has_action(action: u32) -> std::io::Result<()> {
    // SAFETY: the kernel reads one number.
    match unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Returns the version of the kernel's Landlock; -1: it has none.
pub fn landlock_version() -> i64 {
    /// `LANDLOCK_CREATE_RULESET_VERSION`.
    const VERSION: u32 = 1;
    let nothing = std::ptr::null::<u8>();
    // SAFETY: with this flag, the kernel reads and writes nothing.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0usize, VERSION) }
}

fn restrict(rules: i32) -> libc::c_long {
    // SAFETY: a plain system call.
    unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) }
}

fn set_handler(signal: i32, handler: usize) -> Result<usize> {
    // SAFETY: an all-zero sigaction is valid. The handler is async-signal-safe: it makes system
    // calls and accesses atomics.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        let mut previous: libc::sigaction = std::mem::zeroed();
        ensure!(libc::sigaction(signal, &action, &mut previous) == 0, "a signal cannot be handled");
        Ok(previous.sa_sigaction)
    }
}

extern "C" fn handle(_signal: i32) {
    // SAFETY: errno is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    if drop_capabilities() != 0 || restrict_here() != 0 || filter_here() != 0 {
        // SAFETY: errno is this thread's own.
        ERROR.store(unsafe { *libc::__errno_location() }, Ordering::Relaxed);
    }
    // SAFETY: errno is this thread's own. The interrupted code finds it unchanged.
    unsafe { *libc::__errno_location() = errno };
    DONE.fetch_add(1, Ordering::Release);
}

fn drop_capabilities() -> libc::c_long {
    /// `_LINUX_CAPABILITY_VERSION_3`, of sets of 64 capabilities.
    const VERSION: u32 = 0x2008_0522;
    let header: [u32; 2] = [VERSION, 0];
    let none: [u32; 6] = [0; 6];
    // SAFETY: header and sets have the sizes of this version.
    unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) }
}

fn restrict_here() -> libc::c_long {
    match RULES.load(Ordering::Relaxed) {
        -1 => 0,
        rules => restrict(rules),
    }
}

fn filter_here() -> libc::c_long {
    let filter = FILTER.load(Ordering::Relaxed);
    if filter.is_null() {
        return 0;
    }
    let program = libc::sock_fprog { len: FILTER_LEN.load(Ordering::Relaxed), filter: filter.cast() };
    // SAFETY: the caller of `confine` keeps the program until all threads have finished. Its
    // instructions have the layout of the kernel's `sock_filter`.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) }
}
