//! Sleeping until the device signals a file descriptor.

use std::os::fd::AsRawFd;
use std::time::Duration;

/// Sleeps until `fd` is readable. Returns false if `time` is over first.
pub fn readable(fd: &impl AsRawFd, time: Duration) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let millis = time.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&raw mut poll, 1, millis) > 0 }
}
