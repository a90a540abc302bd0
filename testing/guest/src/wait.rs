//! Waiting that ends, and says what it waited for. Tests wait by this module alone (`cargo xtask
//! test --only waits`), so that none has a time limit of its own that a busy machine exceeds.

use std::fmt::Display;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long a test waits for what must happen. Long, since machines may be busy; only a failure
/// takes it.
pub const PATIENCE: Duration = Duration::from_secs(if cfg!(miri) { 600 } else { 60 });

/// Calls `ready` until it gives something. Panics with `what` if that takes too long.
#[track_caller]
pub fn until<T>(what: &str, ready: impl FnMut() -> Option<T>) -> T {
    until_with(what, || "", ready)
}

/// Calls `ready` until it gives something. Panics with `what`, and with what `context` says then,
/// if that takes too long.
#[track_caller]
pub fn until_with<T, C: Display>(
    what: &str,
    context: impl FnOnce() -> C,
    ready: impl FnMut() -> Option<T>,
) -> T {
    match within(PATIENCE, ready) {
        Some(found) => found,
        None => panic!("waited in vain: {what} {}", context()),
    }
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
        // A look begins after the time is over before it is called over: who was not given a
        // processor meanwhile has not looked.
        let elapsed = start.elapsed();
        if let Some(found) = ready() {
            return Some(found);
        }
        match elapsed {
            elapsed if elapsed > time => return None,
            elapsed if elapsed > Duration::from_millis(5) => std::thread::sleep(Duration::from_micros(100)),
            _ => std::thread::yield_now(),
        }
    }
}

/// Takes what another thread of the test sends, which must come. Panics with `what` if that takes
/// too long, or if the other has ended.
#[track_caller]
pub fn receive<T>(what: &str, channel: &Receiver<T>) -> T {
    receive_or_end(what, channel).unwrap_or_else(|| panic!("who was to send it has ended: {what}"))
}

/// Takes what another thread of the test sends; none if that has ended. Panics with `what` if both
/// take too long.
#[track_caller]
pub fn receive_or_end<T>(what: &str, channel: &Receiver<T>) -> Option<T> {
    match channel.recv_timeout(PATIENCE) {
        Ok(received) => Some(received),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => panic!("waited in vain: {what}"),
    }
}

/// Does nothing for some time. No test may depend on what happens meanwhile: `why` says what the
/// pause is for, and why one that is too short, or that lasts much longer, makes no test fail.
pub fn pause(time: Duration, why: &str) {
    debug_assert!(!why.is_empty(), "a pause has a reason");
    std::thread::sleep(time);
}

/// How long a test goes on with something that has no end of its own.
#[derive(Clone, Copy, Debug)]
pub struct Spell {
    end: Instant,
}

impl Spell {
    /// From now on.
    pub fn of(time: Duration) -> Spell {
        Spell { end: Instant::now() + time }
    }

    /// Whether it lasts.
    pub fn lasts(&self) -> bool {
        Instant::now() < self.end
    }

    /// Whether it lasts, or has to since something has not happened often `enough`: a busy machine
    /// gets further in more time.
    pub fn lasts_until(&self, enough: bool) -> bool {
        self.lasts() || !enough && Instant::now() < self.end + PATIENCE
    }
}
