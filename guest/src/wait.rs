//! Waiting that ends.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// How long a test waits for what must happen. Long, since machines may be busy; only a failure takes it.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Calls `ready` until it gives something. Panics with `what` if that takes too long.
pub fn until<T>(what: &str, ready: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, ready).unwrap_or_else(|| panic!("waited in vain: {what}"))
}

/// Calls `ready` until it gives something, or the time is over.
pub fn within<T>(time: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    // Most answers come within a microsecond or some; the clock is only read after that.
    for _ in 0..200 {
        if let Some(found) = ready() {
            return Some(found);
        }
        std::hint::spin_loop();
    }
    let start = Instant::now();
    loop {
        if let Some(found) = ready() {
            return Some(found);
        }
        match start.elapsed() {
            elapsed if elapsed > time => return None,
            elapsed if elapsed > Duration::from_millis(5) => std::thread::sleep(Duration::from_micros(100)),
            _ => std::thread::yield_now(),
        }
    }
}

/// Sleeps until `fd` can be read, or the time is over: false then.
pub fn readable(fd: &impl AsRawFd, time: Duration) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let millis = time.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&raw mut poll, 1, millis) > 0 }
}
