//! Times the second look that a sleeping worker takes at what guests wrote, before it sleeps on.
//!
//! Rings are shared without locks. A side that publishes, and then reads whether its peer wants a
//! notification, needs a memory barrier in between. A guest's barrier may have no effect (a
//! `lock`ed instruction in a VM with one processor under QEMU's TCG). So its writes may become
//! visible after the worker looked.
//!
//! The timer keeps running while the worker is awake. Setting it for each sleep, and cancelling it
//! when a kick ends the sleep, would delay each request. That would take 0.08 of the time of a
//! WRITE where both sides sleep.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

/// The epoll token of the second look.
pub(super) const SECOND_LOOK: u64 = u64::MAX - 2;
/// How long after the timer was set the worker takes the second look.
///
/// The timer may have been set for an earlier sleep. If it expires less than [`SHOWS`] after this
/// sleep began, it is set again.
const AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// The time after which a write before the sleep is visible. It has long left the store buffer
/// then.
pub(super) const SHOWS: Duration = Duration::from_micros(100);

/// The timer.
#[derive(Debug)]
pub(super) struct SecondLook {
    timer: OwnedFd,
    is_set: bool,
}

impl SecondLook {
    /// Creates a timer that is not set. When it expires, `epoll` returns [`SECOND_LOOK`] once.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(super) fn new(epoll: &Epoll) -> io::Result<SecondLook> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let event = EpollEvent::new(EventSet::IN | EventSet::EDGE_TRIGGERED, SECOND_LOOK);
        epoll.ctl(ControlOperation::Add, timer.as_raw_fd(), event)?;
        Ok(SecondLook { timer, is_set: false })
    }

    /// Makes sure that the timer is set, because a sleep begins.
    pub(super) fn set(&mut self) {
        if !self.is_set {
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            let time = Itimerspec { it_interval: never, it_value: AFTER };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time)
                .expect("a timer takes a valid time");
            self.is_set = true;
        }
    }

    /// Records that the timer has expired.
    pub(super) fn has_come(&mut self) {
        self.is_set = false;
    }
}
