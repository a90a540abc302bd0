//! When a worker that sleeps looks at what guests wrote once more, and then sleeps on.
//!
//! Rings are shared without locks: who publishes and then looks at the other's wish has to have a
//! barrier between. A guest's may be none (a `lock`ed instruction in a VM with one processor under
//! QEMU's TCG), so what it wrote may show after the worker looked.
//!
//! The timer is left as it is while the worker is awake: to set one for each sleep and to take it
//! back, when a kick ends that, would keep each request waiting (0.08 of the time of a WRITE where
//! both sleep).

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

/// In what epoll returns: it is time for the second look.
pub(super) const SECOND_LOOK: u64 = u64::MAX - 2;
/// How long after the timer was set the worker looks. It may have been set for a sleep before; if
/// that is less than [`SHOWS`] after this one began, it is set again.
const AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// What was written before a sleep shows after so long: it has long left the store buffer.
pub(super) const SHOWS: Duration = Duration::from_micros(100);

/// The timer.
#[derive(Debug)]
pub(super) struct SecondLook {
    timer: OwnedFd,
    is_set: bool,
}

impl SecondLook {
    /// Not set yet; `epoll` returns [`SECOND_LOOK`] when it was and its time has come, once.
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

    /// A sleep begins: the time comes after it has.
    pub(super) fn set(&mut self) {
        if !self.is_set {
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            let time = Itimerspec { it_interval: never, it_value: AFTER };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time)
                .expect("a timer takes a valid time");
            self.is_set = true;
        }
    }

    /// Its time has come.
    pub(super) fn has_come(&mut self) {
        self.is_set = false;
    }
}
