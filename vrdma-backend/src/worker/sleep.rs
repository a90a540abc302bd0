//! How a worker without work sleeps, and what wakes it.

use super::link::Uplink;
use super::polling::Woken;
use super::streams::STREAMS;
use super::uplink::UPLINK;
use super::{NET, Worker};
use std::time::Duration;
use vmm_sys_util::epoll::EpollEvent;
use vrdma_transport::{self as transport, DeviceId};

/// How long a sleep is at first; then the worker looks at what guests wrote once more, and sleeps on. Rings are shared without locks: who
/// publishes and then looks at the other's wish has to have a barrier between. A guest's may be none (a `lock`ed instruction in a VM with
/// one processor under QEMU's TCG), so what it wrote may show after the worker looked; after this time it has long left the store buffer.
const SECOND_LOOK: Duration = Duration::from_millis(1);
/// The least that epoll can wait for.
const LEAST: Duration = Duration::from_millis(1);
/// How often events that found no buffer are tried again while the worker would sleep.
const EVENT_RETRY: Duration = Duration::from_millis(10);

impl Worker {
    /// Waits for a kick, a message or a deadline; which of them it was.
    pub(super) fn sleep(&mut self) -> Woken {
        let mut late = false;
        for bound in &self.channels {
            late |= bound.channel.arm();
        }
        late |= self.net.arm();
        late |= !self.inbox.is_empty();
        let uplink_limit = self.uplink.as_mut().map(Uplink::arm);
        // What came before that would wake nobody.
        late |= uplink_limit.is_some() && self.receive_frames(self.now());
        late |= self.receive_near(self.now());
        late |= self.has_barriers() || !self.recalls.is_empty() || !self.failing.is_empty();
        let woken = late || {
            self.sleeps += 1;
            self.sleep_twice(uplink_limit)
        };
        for bound in &self.channels {
            bound.channel.disarm();
        }
        self.net.disarm();
        if let Some(uplink) = &mut self.uplink {
            uplink.disarm();
        }
        if woken { Woken::Event } else { Woken::Time }
    }

    /// Sleeps for a short time, looks again, and sleeps on; false if it was not woken.
    fn sleep_twice(&mut self, uplink_limit: Option<Duration>) -> bool {
        #[cfg(feature = "hooks")]
        crate::hooks::run();
        let limit = self.sleep_limit(uplink_limit);
        let once = limit.is_some_and(|limit| limit <= SECOND_LOOK);
        #[cfg(feature = "hooks")]
        let once = once || !crate::hooks::has_second_looks();
        if once {
            return self.wait(limit);
        }
        self.wait(Some(SECOND_LOOK)) || self.look_again() || {
            let limit = self.sleep_limit(uplink_limit.map(|limit| limit - SECOND_LOOK));
            self.wait(limit)
        }
    }

    /// How long nothing is to be done by itself.
    fn sleep_limit(&mut self, uplink_limit: Option<Duration>) -> Option<Duration> {
        let now = self.now();
        let until = |at: transport::Instant| Duration::from_nanos(at.0.saturating_sub(now.0));
        let deadline = self.engine.poll_timeout().map(until);
        // What is less than that is slept without being woken, which no guest's moderated events are worth.
        let event = self.outputs.next_timer().map(until).map(|limit| limit.max(LEAST));
        let retry = self.outputs.retry_events().then_some(EVENT_RETRY);
        let streams = self.streams.next_deadline().map(until);
        let stalled = self.streams.has_stalled().then_some(LEAST);
        [deadline, event, retry, streams, stalled, uplink_limit].into_iter().flatten().min()
    }

    /// Whether guests have written something that did not show when the worker asked for kicks.
    fn look_again(&mut self) -> bool {
        self.look_for_consumers();
        self.channels.iter_mut().any(|bound| bound.channel.reach().is_some()) || self.net.is_kicked_late()
    }

    /// Looks once more whether those who had asked for no event or interrupt have asked meanwhile.
    pub(super) fn look_for_consumers(&mut self) {
        self.turns = 0;
        self.outputs.look_again();
        self.net.look_again();
    }

    /// Waits for what epoll watches; false if the time is over.
    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        self.clock.1 = 0;
        // Rounded up, so that the deadline has passed when we wake; but what is less is slept without being woken.
        let millis = match timeout {
            None => -1,
            Some(short) if short < LEAST => 0,
            Some(long) => long.as_nanos().div_ceil(1_000_000).min(60_000) as i32,
        };
        let mut events = [EpollEvent::default(); 32];
        let count = match self.epoll.wait(millis, &mut events) {
            Ok(0) if millis == 0 => {
                std::thread::sleep(timeout.unwrap_or_default());
                return false;
            }
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => 0,
            Err(error) => panic!("epoll_wait fails only for arguments that are wrong: {error}"),
        };
        for event in &events[..count] {
            match event.data() {
                0 => drop(self.wake.consume()),
                UPLINK => {}
                STREAMS => self.streams.woken(),
                token if token & NET != 0 => self.net.kicked((token >> 32) as usize),
                token => self.outputs.device(DeviceId((token >> 32) as u32)).counters.kicks += 1,
            }
        }
        count != 0
    }
}
