//! How a worker without work sleeps, and what wakes it.

use super::exact_wait::{TOKENS, wait_for};
use super::link::Uplink;
use super::polling::Woken;
use super::second_look::{SECOND_LOOK, SHOWS};
use super::streams::STREAMS;
use super::uplink::UPLINK;
use super::{NET, Worker};
use std::io;
use std::time::{Duration, Instant};
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
        // They may be held back, and due before what was known when the uplink was armed.
        let held = self.uplink.as_ref().and_then(Uplink::held);
        let uplink_limit = uplink_limit.map(|limit| held.map_or(limit, |held| held.min(limit)));
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
        self.engine.move_idle_deadlines();
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
        let mut tokens = [0; TOKENS];
        let count = match wait_for(&self.epoll, &mut tokens, timeout) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => panic!("epoll_pwait2 fails only for arguments that are wrong: {error}"),
        };
        tokens[..count].iter().map(|token| self.woken_by(*token)).max().unwrap_or(Waited::Time)
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
