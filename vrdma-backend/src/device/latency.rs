//! The time from post to completion of some requests, by service.
//!
//! To measure all of them would cost more than many requests take. Measured is about one request of
//! 1,024. The numbers of requests between two of them vary, because programs post in patterns: if
//! each 1,024th request were measured, that might always be a receive.

use serde::ser::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::time::Duration;
use vrdma_transport::{DeviceId, QpType, TransportKind, WatchedEnd};

/// Mean number of requests of which one is measured.
const MEAN: usize = 1024;

/// Upper bounds of the buckets of a [`Histogram`], in nanoseconds.
///
/// They are close where requests on one host and in one rack are. Beyond 10 ms something is wrong,
/// and how wrong is enough.
const BOUNDS: [u64; 16] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
];

/// Which requests of a guest are measured, and how long those took.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Number of requests before the next that is measured.
    left: usize,
    steps: fastrand::Rng,
    by_service: BTreeMap<&'static str, Histogram>,
}

/// How many requests took how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Histogram {
    /// Number of requests that were measured.
    pub requests: u64,
    /// Nanoseconds that they took together.
    pub sum_ns: u64,
    /// Upper bounds in nanoseconds, each with the number of requests that took no longer, and
    /// longer than the bound before.
    #[serde(serialize_with = "with_bounds")]
    pub buckets: [u64; BOUNDS.len()],
}

fn with_bounds<S: Serializer>(buckets: &[u64; BOUNDS.len()], to: S) -> Result<S::Ok, S::Error> {
    BOUNDS.iter().zip(buckets).collect::<Vec<_>>().serialize(to)
}

impl Histogram {
    fn add(&mut self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.requests += 1;
        self.sum_ns = self.sum_ns.saturating_add(time);
        if let Some(bucket) = self.buckets.get_mut(BOUNDS.partition_point(|bound| *bound < time)) {
            *bucket += 1;
        }
    }
}

impl Latencies {
    /// Begins for a guest, of which nothing is measured so far.
    pub fn new(device: DeviceId) -> Latencies {
        // Each start of the daemon measures the same requests, which nobody can make use of: a
        // guest does not learn which they are.
        let steps = fastrand::Rng::with_seed(device.0.into());
        let mut new = Latencies { left: 0, steps, by_service: BTreeMap::new() };
        new.left = new.step();
        new
    }

    /// Returns the number of requests before the next that is measured.
    #[inline]
    pub fn left(&self) -> usize {
        self.left
    }

    /// Sets what [`Latencies::left`] returns.
    #[inline]
    pub fn set_left(&mut self, left: usize) {
        self.left = left;
    }

    /// Chooses the distance to the next request that is measured.
    pub fn step(&mut self) -> usize {
        self.steps.usize(1..2 * MEAN)
    }

    /// Counts a request that took this time.
    pub fn add(&mut self, end: &WatchedEnd, time: Duration) {
        self.by_service.entry(name(end)).or_default().add(time);
    }

    /// Returns the times by service. Services of which nothing was measured are missing.
    pub fn by_service(&self) -> &BTreeMap<&'static str, Histogram> {
        &self.by_service
    }
}

/// Returns the name of the service for operators. iWARP, which only has RC, is a name of its own.
fn name(end: &WatchedEnd) -> &'static str {
    match end.service {
        QpType::Rc if end.transport == TransportKind::Tcp => "iwarp",
        QpType::Rc => "rc",
        QpType::Uc => "uc",
        QpType::Ud => "ud",
        QpType::Gsi => "gsi",
        QpType::XrcSend | QpType::XrcRecv => "xrc",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use vrdma_transport::Instant;

    fn end(service: QpType, transport: TransportKind) -> WatchedEnd {
        WatchedEnd { service, transport, since: Instant(0) }
    }

    #[test]
    fn times_are_counted_between_their_bounds() {
        let mut histogram = Histogram::default();
        for time in [0, 1000, 1001, 2500, 9_999_999_999, 10_000_000_000, 10_000_000_001] {
            histogram.add(Duration::from_nanos(time));
        }
        let mut buckets = [0; BOUNDS.len()];
        (buckets[0], buckets[1], buckets[15]) = (2, 2, 2);
        assert_eq!(histogram, Histogram { requests: 7, sum_ns: 30_000_004_501, buckets });
        histogram.add(Duration::MAX);
        assert_eq!((histogram.requests, histogram.sum_ns, histogram.buckets), (8, u64::MAX, buckets));
        assert!(BOUNDS.is_sorted());
        let page = include_str!("../../../docs/metrics.md");
        let said = format!("has {} more of each service", BOUNDS.len() + 3);
        assert!(page.contains(&said), "docs/metrics.md does not say '{said}'");
    }

    #[test]
    fn services_are_apart_and_shown_with_bounds() {
        let mut latencies = Latencies::new(DeviceId(0));
        assert!(latencies.by_service().is_empty());
        for (service, transport) in [
            (QpType::Rc, TransportKind::Local),
            (QpType::Rc, TransportKind::Tcp),
            (QpType::Rc, TransportKind::Roce),
            (QpType::XrcSend, TransportKind::Roce),
            (QpType::Ud, TransportKind::Local),
        ] {
            latencies.add(&end(service, transport), Duration::from_micros(2));
        }
        let shown = serde_json::to_value(latencies.by_service()).unwrap();
        let requests: Vec<_> =
            shown.as_object().unwrap().iter().map(|(name, of)| (name.as_str(), &of["requests"])).collect();
        assert_eq!(
            requests,
            [("iwarp", &json!(1)), ("rc", &json!(2)), ("ud", &json!(1)), ("xrc", &json!(1))]
        );
        assert_eq!(shown["rc"]["sum_ns"], 4000);
        let buckets = shown["rc"]["buckets"].as_array().unwrap();
        assert_eq!(buckets[..3], [json!([1000, 0]), json!([2500, 2]), json!([5000, 0])]);
        assert_eq!(buckets.len(), BOUNDS.len());
    }

    #[test]
    fn one_request_of_1024_is_chosen_and_no_pattern_escapes() {
        const REQUESTS: usize = 1 << 22;
        let mut latencies = Latencies::new(DeviceId(3));
        // Which of 32 requests of a pattern are chosen.
        let (mut chosen, mut places) = (0, [0; 32]);
        let mut at = latencies.left();
        while at < REQUESTS {
            chosen += 1;
            places[at % 32] += 1;
            let step = latencies.step();
            assert!((1..2 * MEAN).contains(&step));
            at += step;
        }
        // Four times the standard deviation of that many steps.
        assert!((REQUESTS / MEAN).abs_diff(chosen) < 150, "{chosen}");
        assert!(places.iter().all(|&count| count > 60), "{places:?}");
    }
}
