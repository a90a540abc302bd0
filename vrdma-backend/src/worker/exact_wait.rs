//! Waits for events of an epoll set, with a limit in nanoseconds.
#![allow(unsafe_code, reason = "a system call for which no library has a safe form")]

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vmm_sys_util::epoll::Epoll;

/// The largest number of events that are taken at once.
pub(super) const TOKENS: usize = 32;

/// Waits for events of an epoll set (epoll_wait(2)). Returns how many there are, with their tokens.
///
/// If nothing came, the time has passed. It is at most a minute.
///
/// # Errors
/// [`io::ErrorKind::Interrupted`]: a signal came.
pub(super) fn wait_for(
    epoll: &Epoll,
    tokens: &mut [u64; TOKENS],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; TOKENS];
    let count = exactly(epoll, &mut events, timeout)?;
    for (token, event) in tokens.iter_mut().zip(&events[..count]) {
        *token = event.u64;
    }
    Ok(count)
}

/// Whether the system has no `epoll_pwait2`: Linux before 5.11, or a filter that does not know it.
static HAS_MILLISECONDS_ONLY: AtomicBool = AtomicBool::new(false);

fn exactly(
    epoll: &Epoll,
    events: &mut [libc::epoll_event; TOKENS],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    if HAS_MILLISECONDS_ONLY.load(Ordering::Relaxed) {
        return in_milliseconds(epoll, events, timeout);
    }
    let exact = timeout.map(|time| libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    });
    let exact = exact.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let (descriptor, most) = (epoll.as_raw_fd(), events.len() as i32);
    // SAFETY: `events` has room for so many, and the time and the descriptor live until the end of
    // the call. There is no mask of signals.
    let result = number(unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            descriptor,
            events.as_mut_ptr(),
            most,
            exact,
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    });
    match result {
        // epoll_wait has no such errors. Filters answer unknown calls with either.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            HAS_MILLISECONDS_ONLY.store(true, Ordering::Relaxed);
            in_milliseconds(epoll, events, timeout)
        }
        result => result,
    }
}

fn in_milliseconds(
    epoll: &Epoll,
    events: &mut [libc::epoll_event; TOKENS],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let millis = timeout.map_or(-1, |time| time.as_nanos().div_ceil(1_000_000) as i32);
    let (descriptor, most) = (epoll.as_raw_fd(), events.len() as i32);
    // SAFETY: `events` has room for so many.
    number(unsafe { libc::epoll_wait(descriptor, events.as_mut_ptr(), most, millis) }.into())
}

/// Converts the result of a system call.
fn number(result: i64) -> io::Result<usize> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        count => Ok(count as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use vmm_sys_util::epoll::{ControlOperation, EpollEvent, EventSet};
    use vmm_sys_util::eventfd::EventFd;

    /// Returns an epoll set with an eventfd, whose token is 7.
    fn set() -> (Epoll, EventFd) {
        let (epoll, kick) = (Epoll::new().unwrap(), EventFd::new(0).unwrap());
        let event = EpollEvent::new(EventSet::IN, 7);
        epoll.ctl(ControlOperation::Add, kick.as_raw_fd(), event).unwrap();
        (epoll, kick)
    }

    fn wait(epoll: &Epoll, timeout: Option<Duration>) -> Vec<u64> {
        let mut tokens = [0; TOKENS];
        let count = wait_for(epoll, &mut tokens, timeout).unwrap();
        tokens[..count].to_vec()
    }

    #[test]
    fn a_short_wait_is_not_rounded_up() {
        let (epoll, _kick) = set();
        let took = |_| {
            let start = Instant::now();
            wait(&epoll, Some(Duration::from_micros(150)));
            start.elapsed()
        };
        // A busy machine lengthens most of them.
        let is_short = (0..10_000).map(took).any(|time| time < Duration::from_millis(1));
        assert!(is_short || HAS_MILLISECONDS_ONLY.load(Ordering::Relaxed));
    }

    #[test]
    fn a_wait_in_milliseconds_is_rounded_up() {
        let (epoll, kick) = set();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; TOKENS];
        for micros in [0, 1, 1000, 1001] {
            let (start, time) = (Instant::now(), Duration::from_micros(micros));
            assert_eq!(in_milliseconds(&epoll, &mut events, Some(time)).unwrap(), 0);
            assert!(start.elapsed() >= time, "{micros} us");
        }
        kick.write(1).unwrap();
        assert_eq!(in_milliseconds(&epoll, &mut events, None).unwrap(), 1);
    }

    #[test]
    fn the_time_has_passed_at_the_wakeup() {
        let (epoll, _kick) = set();
        for micros in [0, 1, 150, 999, 1000, 1001, 2500] {
            let (start, time) = (Instant::now(), Duration::from_micros(micros));
            assert!(wait(&epoll, Some(time)).is_empty());
            assert!(start.elapsed() >= time, "{micros} us");
        }
    }

    #[test]
    fn an_event_ends_a_wait() {
        let (epoll, kick) = set();
        std::thread::scope(|scope| {
            let waiter =
                scope.spawn(|| [None, Some(Duration::from_secs(60))].map(|limit| wait(&epoll, limit)));
            kick.write(1).unwrap();
            assert_eq!(waiter.join().unwrap(), [[7], [7]]);
        });
    }
}
