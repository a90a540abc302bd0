//! How a worker without work sleeps, and what wakes it.

use super::link::Uplink;
use super::polling::Woken;
use super::second_look::{SECOND_LOOK, SHOWS};
use super::streams::STREAMS;
use super::uplink::UPLINK;
use super::{NET, Worker};
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use vmm_sys_util::epoll::Epoll;
use vrdma_transport::{self as transport, DeviceId};

/// How often it is tried again to give a stream's connection what it waits for.
const STREAM_RETRY: Duration = Duration::from_millis(1);
/// The longest sleep.
const LONGEST: Duration = Duration::from_secs(60);
/// How often events that found no buffer are retried while the worker would sleep.
const EVENT_RETRY: Duration = Duration::from_millis(10);

impl Worker {
    /// Waits for a kick, a message or a deadline. Returns which of them it was.
    pub(super) fn sleep(&mut self) -> Woken {
        let mut late = false;
        for bound in &self.channels {
            late |= bound.channel.arm();
        }
        late |= self.net.arm();
        late |= !self.inbox.is_empty();
        let uplink_limit = self.uplink.as_mut().map(Uplink::arm);
        // Frames that came before the uplink was armed would wake nobody.
        late |= uplink_limit.is_some() && self.receive_frames(self.now());
        late |= self.receive_packets(self.now());
        late |= self.has_barriers() || !self.releases.is_empty() || !self.failing.is_empty();
        let woken = late || {
            self.sleeps += 1;
            self.sleep_on(uplink_limit)
        };
        for bound in &self.channels {
            bound.channel.disarm();
        }
        self.net.disarm();
        if let Some(uplink) = &mut self.uplink {
            uplink.disarm();
        }
        self.streams.slept();
        if woken { Woken::Event } else { Woken::Time }
    }

    /// Sleeps, and sleeps on after a second look. Returns false if nothing woke it.
    fn sleep_on(&mut self, uplink_limit: Option<Duration>) -> bool {
        #[cfg(feature = "hooks")]
        crate::hooks::run();
        let start = Instant::now();
        self.set_second_look();
        loop {
            let limit = self.sleep_limit(uplink_limit.map(|limit| limit.saturating_sub(start.elapsed())));
            match self.wait(limit) {
                Waited::Event => return true,
                Waited::Time => return false,
                Waited::SecondLook => {}
            }
            if self.look_again() {
                return true;
            }
            if start.elapsed() < SHOWS {
                self.set_second_look();
            }
        }
    }

    fn set_second_look(&mut self) {
        #[cfg(feature = "hooks")]
        if !crate::hooks::has_second_looks() {
            return;
        }
        self.second_look.set();
    }

    /// Returns the time until something has to be done without being woken.
    fn sleep_limit(&mut self, uplink_limit: Option<Duration>) -> Option<Duration> {
        let now = self.now();
        let until = |at: transport::Instant| Duration::from_nanos(at.0.saturating_sub(now.0));
        let deadline = self.engine.poll_timeout().map(until);
        let event = self.outputs.next_timer().map(until);
        let retry = self.outputs.retry_events().then_some(EVENT_RETRY);
        let streams = self.streams.next_deadline().map(until);
        let stalled = self.streams.has_waiting().then_some(STREAM_RETRY);
        let frames = self.net.next_time().map(until);
        [deadline, event, retry, streams, stalled, frames, uplink_limit].into_iter().flatten().min()
    }

    /// Whether guests have written something that was not visible when the worker asked for kicks.
    fn look_again(&mut self) -> bool {
        self.look_for_consumers();
        self.channels.iter_mut().any(|bound| bound.channel.reach().is_some()) || self.net.is_kicked_late()
    }

    /// Checks again whether consumers that had asked for no event or interrupt have asked
    /// meanwhile.
    pub(super) fn look_for_consumers(&mut self) {
        self.turns = 0;
        self.outputs.look_again();
        self.net.look_again();
    }

    /// Waits for what epoll watches.
    fn wait(&mut self, timeout: Option<Duration>) -> Waited {
        self.clock.1 = 0;
        let timeout = timeout.map(|timeout| timeout.min(LONGEST));
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        let count = match wait_for(&self.epoll, &mut events, timeout) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => panic!("epoll_pwait2 fails only for arguments that are wrong: {error}"),
        };
        events[..count].iter().map(|event| self.woken_by(event.u64)).max().unwrap_or(Waited::Time)
    }

    fn woken_by(&mut self, token: u64) -> Waited {
        match token {
            0 => drop(self.wake.consume()),
            UPLINK => {}
            STREAMS => self.streams.woken(),
            SECOND_LOOK => {
                self.second_look.has_come();
                return Waited::SecondLook;
            }
            token if token & NET != 0 => self.net.kicked((token >> 32) as usize),
            token => self.outputs.device(DeviceId((token >> 32) as u32)).counters.kicks += 1,
        }
        Waited::Event
    }
}

/// Waits for events of an epoll set, and returns their number (epoll_wait(2)).
///
/// The time has passed at the wakeup, if nothing came.
fn wait_for(
    epoll: &Epoll,
    events: &mut [libc::epoll_event; 32],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let number = |result: i64| match result {
        -1 => Err(io::Error::last_os_error()),
        count => Ok(count as usize),
    };
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
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {}
        result => return result,
    }
    // Before Linux 5.11 there are only whole milliseconds.
    let millis = timeout.map_or(-1, |time| time.as_nanos().div_ceil(1_000_000) as i32);
    // SAFETY: `events` has room for so many.
    number(unsafe { libc::epoll_wait(descriptor, events.as_mut_ptr(), most, millis) }.into())
}

/// What ended a wait. If there were several reasons, it is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Waited {
    /// Nothing came in time.
    Time,
    /// It is time for the second look.
    SecondLook,
    /// Something woke the worker.
    Event,
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        let count = wait_for(epoll, &mut events, timeout).unwrap();
        events[..count].iter().map(|event| event.u64).collect()
    }

    #[test]
    fn the_time_has_passed_at_the_wakeup() {
        let (epoll, _kick) = set();
        for micros in [0, 1, 150, 999, 1000, 1001, 2500] {
            let (start, time) = (Instant::now(), Duration::from_micros(micros));
            assert_eq!(wait(&epoll, Some(time)), []);
            assert!(start.elapsed() >= time, "{micros} us");
        }
    }

    #[test]
    fn an_event_ends_a_wait() {
        let (epoll, kick) = set();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| [None, Some(LONGEST)].map(|limit| wait(&epoll, limit)));
            kick.write(1).unwrap();
            assert_eq!(waiter.join().unwrap(), [[7], [7]]);
        });
    }
}
