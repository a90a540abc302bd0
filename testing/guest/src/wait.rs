//! Waiting with a limit, and with a message about what is missing.
//!
//! Tests wait through this module alone (`cargo xtask test --only waits` checks that). No test
//! therefore has a time limit of its own that a busy machine exceeds.

use std::fmt::Display;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long a test waits for what must happen.
///
/// It is long because machines may be busy. Only a failing test waits that long.
pub const PATIENCE: Duration = Duration::from_secs(if cfg!(miri) { 600 } else { 60 });

/// Calls `ready` until it returns a value. Panics with `what` after [`PATIENCE`].
#[track_caller]
pub fn until<T>(what: &str, ready: impl FnMut() -> Option<T>) -> T {
    until_with(what, || "", ready)
}

/// Calls `ready` until it returns a value.
///
/// Panics after [`PATIENCE`] with `what`, and with the value that `context` returns then.
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

/// Calls `ready` until it returns a value, or until `time` is over.
pub fn within<T>(time: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    // Most answers come within a few microseconds. Read the clock only after that.
    for _ in 0..200 {
        if let Some(found) = ready() {
            return Some(found);
        }
        std::hint::spin_loop();
    }
    let start = Instant::now();
    loop {
        // Give up only if a call of `ready` began after the time was over. A thread that got no
        // processor meanwhile would otherwise never have checked.
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

/// Receives a value from another thread of the test.
///
/// Panics with `what` if that takes longer than [`PATIENCE`], or if the thread has ended.
#[track_caller]
pub fn receive<T>(what: &str, channel: &Receiver<T>) -> T {
    receive_or_end(what, channel).unwrap_or_else(|| panic!("who was to send it has ended: {what}"))
}

/// Receives a value from another thread of the test, or `None` if that thread has ended.
///
/// Panics with `what` if neither happens within [`PATIENCE`].
#[track_caller]
pub fn receive_or_end<T>(what: &str, channel: &Receiver<T>) -> Option<T> {
    match channel.recv_timeout(PATIENCE) {
        Ok(received) => Some(received),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => panic!("waited in vain: {what}"),
    }
}

/// Pauses for some time; no test may depend on what happens meanwhile.
///
/// `why` says what the pause is for. It also says why a pause that is too short or much longer
/// makes no test fail.
pub fn pause(time: Duration, why: &str) {
    debug_assert!(!why.is_empty(), "a pause has a reason");
    std::thread::sleep(time);
}

/// How long a test continues an activity that has no end of its own.
#[derive(Clone, Copy, Debug)]
pub struct Spell {
    end: Instant,
}

impl Spell {
    /// Starts a spell of `time`.
    pub fn of(time: Duration) -> Spell {
        Spell { end: Instant::now() + time }
    }

    /// Returns whether the spell lasts.
    pub fn lasts(&self) -> bool {
        Instant::now() < self.end
    }

    /// Returns whether the spell lasts, or is extended by up to [`PATIENCE`] unless `enough` is
    /// true.
    ///
    /// `enough` says that something has happened often enough. The extension lets a busy machine
    /// get as far as a fast one.
    pub fn lasts_until(&self, enough: bool) -> bool {
        self.lasts() || !enough && Instant::now() < self.end + PATIENCE
    }
}
