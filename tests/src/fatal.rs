//! A report from a test's process that a signal ends.
//!
//! It says which signal came, and who sent it or which address was touched. The test runner knows
//! the number alone, and the output of the test's threads is lost with the process.

use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Signals that are reported.
///
/// SIGSEGV is not among them: the kernel reports it, and Rust's handler for it detects stack
/// overflows.
const TOLD: [i32; 5] = [libc::SIGABRT, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTERM];

/// The previous action of each signal.
static PREVIOUS: [AtomicPtr<libc::sigaction>; TOLD.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; TOLD.len()];

/// Installs handlers that report these signals on standard error.
pub fn tell_of_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (signal, previous) in TOLD.into_iter().zip(&PREVIOUS) {
            // SAFETY: an all-zero sigaction is valid. The handler does no harm, because the process
            // ends anyway.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                let handle = handle as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
                action.sa_sigaction = handle as usize;
                action.sa_flags = libc::SA_SIGINFO;
                let before = Box::leak(Box::new(std::mem::zeroed()));
                assert_eq!(libc::sigaction(signal, &action, before), 0, "the signal can be handled");
                previous.store(before, Ordering::Release);
            }
        }
    });
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // The interrupted thread may hold the allocator's lock. Then the process hangs here, and the
    // alarm ends it.
    // SAFETY: a plain system call.
    unsafe { libc::alarm(10) };
    // SAFETY: the kernel passes a valid `siginfo_t`. The code says which of its fields are set.
    let (code, from, address) =
        unsafe { ((*info).si_code, (*info).si_pid(), (*info).si_addr().expose_provenance()) };
    // The code is not positive if a process or a thread sent the signal (sigaction(2)).
    let cause = if code <= 0 { format!("from process {from}") } else { format!("at {address:#x}") };
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    let trace = std::backtrace::Backtrace::force_capture();
    let text = format!("\nsignal {signal}, code {code}, {cause}, in thread {name}:\n{trace}\n");
    // SAFETY: the pointer and length describe `text`.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    // The previous handler may know what to do with the signal.
    // SAFETY: a plain system call.
    unsafe { libc::alarm(0) };
    let Some(index) = TOLD.iter().position(|&told| told == signal) else { return };
    // SAFETY: `tell_of_signals` stored what sigaction returned. The signal comes again after this
    // handler: it is raised again, or the instruction is executed again.
    unsafe {
        libc::sigaction(signal, PREVIOUS[index].load(Ordering::Acquire), std::ptr::null_mut());
        if code <= 0 {
            libc::raise(signal);
        }
    }
}
