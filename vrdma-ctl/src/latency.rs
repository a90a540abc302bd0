//! How long requests of a guest took, from the daemon's counts of times.

use serde_json::Value;

/// How many requests took how long.
#[derive(Debug)]
struct Times {
    requests: u64,
    /// Upper bounds in nanoseconds, each with how many requests took no longer, and longer than the
    /// bound before.
    buckets: Vec<(u64, u64)>,
}

impl Times {
    fn of(told: &Value) -> Option<Times> {
        let bucket = |bucket: &Value| Some((bucket.get(0)?.as_u64()?, bucket.get(1)?.as_u64()?));
        Some(Times {
            requests: told.get("requests")?.as_u64()?,
            buckets: told.get("buckets")?.as_array()?.iter().map(bucket).collect::<Option<_>>()?,
        })
    }

    /// Says within which time this part of the requests ended.
    ///
    /// Between two bounds, times count as evenly spread, as `histogram_quantile` of Prometheus has
    /// it.
    fn within(&self, part: f64) -> String {
        let wanted = part * self.requests as f64;
        let (mut before, mut from) = (0.0, 0.0);
        for &(bound, count) in &self.buckets {
            let (bound, count) = (bound as f64, count as f64);
            if count > 0.0 && before + count >= wanted {
                return time(from + (bound - from) * (wanted - before) / count);
            }
            (before, from) = (before + count, bound);
        }
        format!("over {}", time(from))
    }
}

/// Returns a line for each service: its name, and the times of its requests.
pub fn lines(latency: &Value) -> Vec<(String, String)> {
    let services = latency.as_object().into_iter().flatten();
    let known = services.filter_map(|(service, told)| Some((service, Times::of(told)?)));
    known
        .map(|(service, times)| {
            let Times { requests, .. } = times;
            let (half, most) = (times.within(0.5), times.within(0.99));
            (service.clone(), format!("p50 {half}, p99 {most}, of {requests} requests that were measured"))
        })
        .collect()
}

/// Returns nanoseconds with a unit.
fn time(nanoseconds: f64) -> String {
    let units = [("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (unit, size) = units.into_iter().find(|(_, size)| nanoseconds < 1e3 * size).unwrap_or(units[2]);
    format!("{:.1} {unit}", nanoseconds / size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_service_has_its_times() {
        let buckets = json!([[1000, 50], [2000, 0], [4000, 40], [1_000_000, 9]]);
        let latency = json!({
            "rc": {"requests": 100, "sum_ns": 1, "buckets": buckets},
            "ud": {"requests": 2, "sum_ns": 1, "buckets": [[1000, 0], [10_000_000_000u64, 2]]},
            "odd": {"requests": 7},
        });
        let expected = [
            ("rc", "p50 1.0 us, p99 1.0 ms, of 100 requests that were measured"),
            ("ud", "p50 5.0 s, p99 9.9 s, of 2 requests that were measured"),
        ];
        assert_eq!(lines(&latency), expected.map(|(service, said)| (service.to_owned(), said.to_owned())));
        assert_eq!(lines(&json!(null)), []);
    }

    #[test]
    fn times_are_those_of_prometheus() {
        let times = Times { requests: 10, buckets: vec![(1000, 2), (2500, 5), (5000, 2)] };
        let parts = [0.1, 0.2, 0.5, 0.9, 0.95].map(|part| times.within(part));
        assert_eq!(parts, ["0.5 us", "1.0 us", "1.9 us", "5.0 us", "over 5.0 us"]);
        assert_eq!([999.0e3, 1e6, 12.34e9, 5e12].map(time), ["999.0 us", "1.0 ms", "12.3 s", "5000.0 s"]);
    }
}
