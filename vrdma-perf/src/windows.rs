//! Windows of time in which a load is measured.

use crate::args::Figure;
use crate::load::{self, Load};
use crate::plan::Plan;
use crate::stats::Quartiles;
use crate::turns::Until;
use anyhow::Result;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Length of a window in milliseconds. It is short, so that processors seldom move during it.
pub const WINDOW_MS: f64 = 5.;
/// Number of operations before those that count. They wake the worker and fill the caches.
const WARM_UP: u32 = 200;
/// Number of operations that determine the time of one.
const TRIAL: u32 = 2000;
/// Number of such operations if there are pauses between them.
const SLOW_TRIAL: u32 = 20;
/// Number of operations in a window for a 99.9th percentile. With few operations it would be the
/// worst one, and with one operation the median.
const TAIL: u32 = 2000;
/// Largest number of bytes in a trial.
const TRIAL_BYTES: u32 = 256 << 20;

/// A distribution of times in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is what its name says")]
pub struct Latency {
    pub min: f64,
    pub max: f64,
    pub typical: f64,
    pub average: f64,
    pub deviation: f64,
    pub p99: f64,
    pub p999: f64,
}

impl Latency {
    /// Makes the distribution of times in nanoseconds.
    pub fn of(times: &Histogram<u64>) -> Latency {
        let us = |nanos: u64| nanos as f64 / 1e3;
        Latency {
            min: us(times.min()),
            max: us(times.max()),
            typical: us(times.value_at_quantile(0.5)),
            average: times.mean() / 1e3,
            deviation: times.stdev() / 1e3,
            p99: us(times.value_at_quantile(0.99)),
            p999: us(times.value_at_quantile(0.999)),
        }
    }
}

/// Creates a histogram for up to a minute in nanoseconds, with three significant digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("possible bounds")
}

/// What the windows of a load measure.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The measured quantity.
    pub figure: Figure,
    /// Size of an operation in bytes.
    pub size: u32,
    /// Time between two operations whose latency is measured.
    pub pause: Duration,
}

impl Kind {
    /// Returns the kind for the windows of a plan.
    pub fn of(plan: &Plan, figure: Figure) -> Kind {
        Kind { figure, size: plan.size, pause: plan.pause }
    }
}

/// A load that is measured in windows.
pub struct Windows<'a, L> {
    /// The load.
    pub load: L,
    kind: Kind,
    /// Number of operations in a window.
    pub count: u32,
    /// All latencies in nanoseconds.
    pub times: &'a mut Histogram<u64>,
    /// Number of operations in all windows.
    pub operations: u64,
    /// The rate of each window.
    pub rates: Vec<f64>,
    /// The 99.9th percentile of the latencies in the last window, in microseconds.
    pub tail: f64,
}

impl<'a, L: Load> Windows<'a, L> {
    /// Determines the number of operations in a window, at most `most`.
    ///
    /// # Errors
    /// The errors of [`Windows::window`].
    pub fn new(load: L, kind: Kind, most: u32, times: &'a mut Histogram<u64>) -> Result<Self> {
        let (operations, rates) = (0, Vec::new());
        let mut windows = Windows { load, kind, count: 1, times, operations, rates, tail: 0. };
        let trial = if kind.pause.is_zero() { TRIAL } else { SLOW_TRIAL };
        windows.count = trial.min(TRIAL_BYTES / kind.size.max(1)).clamp(1, most);
        windows.window()?;
        let start = Instant::now();
        windows.window()?;
        let each = start.elapsed().as_secs_f64() * 1e3 / f64::from(windows.count);
        windows.count = ((WINDOW_MS / each) as u32).clamp(1, most);
        windows.forget();
        Ok(windows)
    }

    /// Makes windows long enough for a 99.9th percentile, even on a slow machine.
    pub fn for_tails(&mut self) {
        self.count = self.count.max(TAIL);
    }

    /// Discards the results so far.
    fn forget(&mut self) {
        self.times.reset();
        self.operations = 0;
        self.rates.clear();
    }

    /// Measures a window. Returns its median in microseconds, or its rate in operations or bytes
    /// per second.
    ///
    /// # Errors
    /// An operation fails, or does not end.
    pub fn window(&mut self) -> Result<f64> {
        self.operations += u64::from(self.count);
        let warm_up = WARM_UP.min(self.count);
        let Kind { figure, size, pause } = self.kind;
        if figure == Figure::Lat {
            load::latency(&mut self.load, warm_up, pause, |_| ())?;
            let (times, mut window) = (&mut *self.times, Vec::with_capacity(self.count as usize));
            load::latency(&mut self.load, self.count, pause, |time| {
                window.push(time.as_nanos() as u64);
                times.saturating_record(time.as_nanos() as u64);
            })?;
            window.sort_unstable();
            let at = |thousandth: usize| window[(window.len() - 1) * thousandth / 1000] as f64 / 1e3;
            self.tail = at(999);
            return Ok(at(500));
        }
        load::rate(&mut self.load, warm_up)?;
        let time = load::rate(&mut self.load, self.count)?;
        let rate = f64::from(self.count) / time.as_secs_f64();
        self.rates.push(rate);
        Ok(if figure == Figure::Bw { rate * f64::from(size) } else { rate })
    }

    /// Measures windows one after the other.
    ///
    /// # Errors
    /// The errors of [`Windows::window`].
    pub fn alone(&mut self, until: Until) -> Result<()> {
        let (start, mut count) = (Instant::now(), 0);
        loop {
            let enough = match until {
                Until::Time(time) => start.elapsed() >= time,
                Until::Pairs(pairs) => count >= pairs,
            };
            if enough {
                return Ok(());
            }
            self.window()?;
            count += 1;
        }
    }

    /// Returns the results of all windows: latencies, or the rates' quartiles and the best rate.
    pub fn results(&self) -> (Option<Latency>, Option<Quartiles>, Option<f64>) {
        match self.kind.figure {
            Figure::Lat => (Some(Latency::of(self.times)), None, None),
            Figure::Bw | Figure::Rate => {
                let best = self.rates.iter().copied().fold(0., f64::max);
                (None, Some(Quartiles::of(self.rates.iter().copied())), Some(best))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load with one operation at a time. The last five of each thousand are slow.
    #[derive(Default)]
    struct Uneven {
        posted: u32,
        outstanding: u32,
    }

    impl Load for Uneven {
        fn post(&mut self) -> bool {
            self.posted += 1;
            self.outstanding = 1;
            true
        }
        fn ring(&mut self) {}
        fn poll(&mut self) -> Result<u32> {
            if self.posted % 1000 >= 995 {
                std::thread::sleep(Duration::from_millis(2));
            }
            Ok(std::mem::take(&mut self.outstanding))
        }
        fn idle(&mut self) -> Result<()> {
            Ok(())
        }
        fn outstanding(&self) -> u32 {
            self.outstanding
        }
    }

    #[test]
    fn a_window_has_operations_enough_for_its_tail() {
        let mut times = histogram();
        let kind = Kind { figure: Figure::Lat, size: 8, pause: Duration::ZERO };
        let mut windows = Windows::new(Uneven::default(), kind, 3, &mut times).unwrap();
        windows.for_tails();
        windows.window().unwrap();
        assert_eq!(windows.operations, u64::from(TAIL));
        assert!(windows.tail >= 2000., "{} us: it is one of the slow ones", windows.tail);
    }
}
