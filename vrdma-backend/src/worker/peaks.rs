//! Samples guests for their peaks ([`crate::device::peaks`]), by the readings of the clock that a
//! worker makes anyway.

use super::Worker;
use crate::device::peaks::{Peaks, Sample, WINDOW};
use crate::memory::MrMemory;
use std::time::Duration;
use vrdma_transport::{DeviceId, Engine, Instant};

impl Worker {
    /// Whether it is time for a sample.
    #[inline]
    pub(super) fn samples_at(&self, now: Instant) -> bool {
        now >= self.sampled + WINDOW
    }

    /// Takes a sample of each guest. The worker has worked until `active_until`, and has slept
    /// since then.
    #[cold]
    #[inline(never)]
    pub(super) fn sample(&mut self, now: Instant, active_until: Instant) {
        let active = since(self.sampled, active_until);
        let Worker { engine, outputs, .. } = self;
        for device in outputs.devices() {
            // What happened before a sleep is not dated at its end.
            device.peaks.sample(&sample_of(engine, device.id, active_until, active));
        }
        self.sampled = now;
    }

    /// Takes a sample after a sleep, if it is time for one.
    ///
    /// All bytes since the last sample moved before the sleep. The next sample would take the sleep
    /// for a part of the time in which they moved.
    pub(super) fn woke(&mut self, slept_at: Instant, now: Instant) {
        if self.samples_at(now) {
            self.sample(now, slept_at);
        }
    }

    /// Returns the peaks of a guest.
    pub fn peaks(&mut self, id: DeviceId) -> Peaks {
        let now = self.now();
        let sample = sample_of(&self.engine, id, now, since(self.sampled, now));
        self.outputs.device(id).peaks.with(&sample)
    }
}

fn since(before: Instant, now: Instant) -> Duration {
    Duration::from_nanos(now.0.saturating_sub(before.0))
}

fn sample_of(engine: &Engine<MrMemory>, id: DeviceId, now: Instant, active: Duration) -> Sample {
    let counters = engine.counters(id);
    let sent = counters.bytes_out.saturating_add(counters.bytes_served);
    let received = counters.bytes_in.saturating_add(counters.bytes_read);
    Sample { now, active, outstanding: engine.outstanding(id), bytes: (sent, received) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Poll};
    use crate::device::DeviceLimits;

    #[test]
    fn what_was_before_a_long_sleep_is_not_of_the_last_minute() {
        let (mut worker, _handle) = Worker::new(Poll::Always, 1500).unwrap();
        let guest = "name=g,socket=/none,mac=52:54:00:00:00:01".parse().unwrap();
        let (id, _) = worker.add_guest(guest, DeviceLimits::new(&Config::default()));
        worker.outputs.clock.pass(Duration::from_secs(300));
        let (now, before) = (worker.now(), Instant(5_000_000));
        worker.outputs.device(id).peaks.outstanding((7, 3));
        worker.woke(before, now);
        assert_eq!((worker.peaks(id).sends, worker.peaks(id).receives), (0, 0));
        // A short sleep hides nothing.
        worker.outputs.clock.pass(Duration::from_secs(1));
        worker.outputs.device(id).peaks.outstanding((7, 3));
        worker.woke(now, worker.now());
        assert_eq!((worker.peaks(id).sends, worker.peaks(id).receives), (7, 3));
    }

    #[test]
    fn there_is_a_sample_each_10_ms_and_after_a_sleep() {
        let (mut worker, _handle) = Worker::new(Poll::Always, 1500).unwrap();
        let ms = |count: u64| Instant(count * 1_000_000);
        worker.woke(ms(5), Instant(9_999_999));
        assert_eq!(worker.sampled, ms(0));
        worker.woke(ms(5), ms(10));
        assert_eq!(worker.sampled, ms(10));
        assert!(!worker.samples_at(Instant(19_999_999)) && worker.samples_at(ms(20)));
        // A round reads the clock, and takes one.
        worker.outputs.clock.pass(Duration::from_secs(1));
        worker.turn();
        assert!(worker.sampled >= ms(1000));
    }
}
