//! The largest numbers of the last minute, for observers.
//!
//! They are not reset by whoever reads them. Several observers look, each at its own times, and
//! none may take from another what it has not seen. A number is forgotten after 50 to 60 s instead,
//! and an observer who looks each 50 s or more often misses nothing.

use std::time::Duration;
use vrdma_transport::Instant;

/// Bytes are counted for this time. It is also the shortest time between two samples.
pub const WINDOW: Duration = Duration::from_millis(10);

/// Nanoseconds of which the largest numbers are kept together.
const CELL: u64 = 10_000_000_000;
/// Number of such times. The last of them has not passed.
const CELLS: usize = 6;

/// The largest numbers of some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Peaks {
    /// Sends that had not ended.
    pub sends: u64,
    /// Receives that had not ended.
    pub receives: u64,
    /// Payload bytes that left within [`WINDOW`].
    pub bytes_sent: u64,
    /// Payload bytes that arrived within [`WINDOW`].
    pub bytes_received: u64,
}

/// What a device does at a time.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The time.
    pub now: Instant,
    /// For how much of the time since the sample before the worker has worked.
    pub active: Duration,
    /// Sends and receives that have not ended.
    pub outstanding: (u64, u64),
    /// Payload bytes that have left so far, and that have arrived.
    pub bytes: (u64, u64),
}

/// The largest numbers of the last minute.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentPeaks {
    /// Those of the times before `newest`, and of `newest`. The place is the number of the time.
    cells: [Peaks; CELLS],
    /// Number of the newest time.
    newest: u64,
    /// Most sends and receives since the last sample.
    outstanding: (u64, u64),
    /// Bytes at the last sample.
    bytes: (u64, u64),
}

impl Peaks {
    fn max(self, other: Peaks) -> Peaks {
        Peaks {
            sends: self.sends.max(other.sends),
            receives: self.receives.max(other.receives),
            bytes_sent: self.bytes_sent.max(other.bytes_sent),
            bytes_received: self.bytes_received.max(other.bytes_received),
        }
    }
}

impl RecentPeaks {
    /// Takes the numbers of sends and receives that have not ended.
    #[inline]
    pub fn outstanding(&mut self, (sends, receives): (u64, u64)) {
        self.outstanding = (self.outstanding.0.max(sends), self.outstanding.1.max(receives));
    }

    /// Takes a sample.
    pub fn sample(&mut self, sample: &Sample) {
        self.outstanding(sample.outstanding);
        // Requests that have not ended are still there when the next time begins.
        let (sends, receives) = std::mem::replace(&mut self.outstanding, sample.outstanding);
        let before = std::mem::replace(&mut self.bytes, sample.bytes);
        let peaks = Peaks {
            sends,
            receives,
            bytes_sent: in_window(sample.bytes.0.saturating_sub(before.0), sample.active),
            bytes_received: in_window(sample.bytes.1.saturating_sub(before.1), sample.active),
        };
        self.advance(sample.now);
        let cell = &mut self.cells[(self.newest % CELLS as u64) as usize];
        *cell = cell.max(peaks);
    }

    /// Returns the largest numbers of the last minute, with a sample that is not kept.
    pub fn with(&self, sample: &Sample) -> Peaks {
        let mut copy = *self;
        copy.sample(sample);
        copy.cells.into_iter().fold(Peaks::default(), Peaks::max)
    }

    /// Forgets what is more than a minute old.
    fn advance(&mut self, now: Instant) {
        let now = now.0 / CELL;
        let passed = now.saturating_sub(self.newest);
        for number in (self.newest + 1..=self.newest + passed.min(CELLS as u64)).rev() {
            self.cells[(number % CELLS as u64) as usize] = Peaks::default();
        }
        self.newest += passed;
    }
}

/// Returns how many of the bytes of an active time were in [`WINDOW`], on average.
///
/// A shorter time was followed by a pause, so there were no more in the window.
fn in_window(bytes: u64, active: Duration) -> u64 {
    if active <= WINDOW {
        return bytes;
    }
    (u128::from(bytes) * WINDOW.as_nanos() / active.as_nanos()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64, outstanding: (u64, u64), bytes: u64) -> Sample {
        Sample {
            now: Instant(seconds * 1_000_000_000),
            active: WINDOW,
            outstanding,
            bytes: (bytes, 2 * bytes),
        }
    }

    fn shown(peaks: &RecentPeaks, sample: &Sample) -> (u64, u64, u64, u64) {
        let Peaks { sends, receives, bytes_sent, bytes_received } = peaks.with(sample);
        (sends, receives, bytes_sent, bytes_received)
    }

    #[test]
    fn what_is_largest_is_kept_for_a_minute() {
        let mut peaks = RecentPeaks::default();
        peaks.outstanding((7, 3));
        peaks.outstanding((5, 4));
        peaks.sample(&at(15, (1, 1), 100));
        peaks.sample(&at(16, (0, 0), 130));
        for seconds in [16, 59, 69] {
            assert_eq!(shown(&peaks, &at(seconds, (0, 0), 130)), (7, 4, 100, 200), "{seconds}");
        }
        assert_eq!(shown(&peaks, &at(70, (0, 0), 130)), (0, 0, 0, 0));
        peaks.sample(&at(20, (0, 0), 140));
        assert_eq!(shown(&peaks, &at(70, (0, 0), 140)), (0, 0, 10, 20));
        assert_eq!(shown(&peaks, &at(1000, (0, 0), 140)), (0, 0, 0, 0));
        assert_eq!(shown(&peaks, &at(1000, (2, 0), 145)), (2, 0, 5, 10));
        // Nobody who looks changes that.
        assert_eq!(shown(&peaks, &at(21, (0, 0), 140)), (7, 4, 100, 200));
    }

    #[test]
    fn requests_that_stay_count_for_as_long_as_they_stay() {
        let mut peaks = RecentPeaks::default();
        peaks.outstanding((500, 1));
        peaks.sample(&at(5, (500, 0), 0));
        peaks.sample(&at(300, (0, 0), 0));
        assert_eq!(shown(&peaks, &at(350, (0, 0), 0)), (500, 0, 0, 0));
        assert_eq!(shown(&peaks, &at(360, (0, 0), 0)), (0, 0, 0, 0));
    }

    #[test]
    fn a_long_time_counts_as_its_average() {
        let mut peaks = RecentPeaks::default();
        let sample = Sample { active: 4 * WINDOW, ..at(1, (0, 0), 1000) };
        assert_eq!(shown(&peaks, &sample), (0, 0, 250, 500));
        // So does all that was counted before the first sample.
        let all = 1 << 50;
        peaks.sample(&Sample { active: Duration::from_secs(1000), ..at(1, (0, 0), all) });
        assert_eq!(shown(&peaks, &at(1, (0, 0), all)), (0, 0, all / 100_000, all / 50_000));
        // A shorter time was followed by a pause.
        let sample = Sample { active: WINDOW / 5, ..at(100, (0, 0), all + 40) };
        assert_eq!(peaks.with(&sample).bytes_sent, 40);
        // Nothing overflows.
        let sample = Sample { active: Duration::MAX, now: Instant(u64::MAX), bytes: (u64::MAX, 0), ..sample };
        assert_eq!((peaks.with(&sample).bytes_sent, peaks.with(&sample).bytes_received), (0, 0));
    }

    proptest! {
        #[test]
        fn nothing_of_the_last_fifty_seconds_is_missed_and_nothing_older_than_a_minute_shown(
            steps in proptest::collection::vec((0u64..25, 0u64..1000, 0u64..1000), 1..100)
        ) {
            let (mut peaks, mut now, mut bytes) = (RecentPeaks::default(), 0, 0);
            let mut all: Vec<(u64, u64, u64)> = Vec::new();
            for (seconds, sends, sent) in steps {
                now += seconds;
                bytes += sent;
                peaks.outstanding((sends, 0));
                peaks.sample(&at(now, (0, 0), bytes));
                all.push((now, sends, sent));
                let most = |last: u64| {
                    let of_last = all.iter().filter(|(at, ..)| at + last > now);
                    of_last.fold((0, 0), |(sends, sent), each| (each.1.max(sends), each.2.max(sent)))
                };
                let shown = peaks.with(&at(now, (0, 0), bytes));
                let (least, most) = (most(51), most(60));
                prop_assert!(least.0 <= shown.sends && shown.sends <= most.0);
                prop_assert!(least.1 <= shown.bytes_sent && shown.bytes_sent <= most.1);
            }
        }
    }
}
