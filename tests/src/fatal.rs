//! A test's process that a signal ends says so itself: which one, and who sent it or what was
//! touched. The runner knows the number alone, and what the test's threads printed is lost with the
//! process.

use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Signals that are told. Of SIGSEGV the kernel tells, and the language's handler for it knows
/// stack overflows.
const TOLD: [i32; 5] = [libc::SIGABRT, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTERM];

/// What was done on each of them before.
static PREVIOUS: [AtomicPtr<libc::sigaction>; TOLD.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; TOLD.len()];

/// From now on they are told, on standard error.
pub fn tell_of_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (signal, previous) in TOLD.into_iter().zip(&PREVIOUS) {
            // SAFETY: all-zero is a valid sigaction, and what the handler does in a process that
            // ends anyway harms nobody.
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
    // Whoever was interrupted may have the allocator's lock: then the process hangs here, and ends
    // by another signal. SAFETY: a plain system call.
    unsafe { libc::alarm(10) };
    // SAFETY: the kernel passes a valid siginfo_t; which of its fields are set the code tells.
    let (code, from, address) =
        unsafe { ((*info).si_code, (*info).si_pid(), (*info).si_addr().expose_provenance()) };
    // What a process or a thread sent has a code that is not positive (sigaction(2)).
    let cause = if code <= 0 { format!("from process {from}") } else { format!("at {address:#x}") };
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    let trace = std::backtrace::Backtrace::force_capture();
    let text = format!("\nsignal {signal}, code {code}, {cause}, in thread {name}:\n{trace}\n");
    // SAFETY: the bytes are there.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    // Whoever had the signal before may know what to do about it.
    // SAFETY: a plain system call.
    unsafe { libc::alarm(0) };
    let Some(index) = TOLD.iter().position(|&told| told == signal) else { return };
    // SAFETY: `tell_of_signals` stored what sigaction returned. The signal comes again, as this one
    // ends: it was sent again, or the instruction is tried again.
    unsafe {
        libc::sigaction(signal, PREVIOUS[index].load(Ordering::Acquire), std::ptr::null_mut());
        if code <= 0 {
            libc::raise(signal);
        }
    }
}
