//! The text that Prometheus reads.

use crate::families;
use crate::family::{Family, Kind, Number, Times};
use crate::snapshot::Snapshot;
use prometheus_client::collector::Collector as Source;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A format of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' own format, version 0.0.4.
    Plain,
}

impl Format {
    /// Returns the value of the field Content-Type.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Plain => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// What the daemon said, and the texts of it. Each text is made once, for the first that wants it.
#[derive(Debug)]
pub struct Exposition {
    snapshot: Arc<Snapshot>,
    open: OnceLock<Arc<str>>,
    plain: OnceLock<Arc<str>>,
}

impl Exposition {
    /// Returns that of what the daemon said.
    pub fn of(snapshot: Snapshot) -> Exposition {
        Exposition { snapshot: Arc::new(snapshot), open: OnceLock::new(), plain: OnceLock::new() }
    }

    /// Returns what the daemon said.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns the series. All callers share one text.
    pub fn text(&self, format: Format) -> Arc<str> {
        let place = match format {
            Format::OpenMetrics => &self.open,
            Format::Plain => &self.plain,
        };
        Arc::clone(place.get_or_init(|| text(Arc::clone(&self.snapshot), format).into()))
    }
}

/// Returns the series of what the daemon said.
fn text(snapshot: Arc<Snapshot>, format: Format) -> String {
    let mut registry = Registry::with_prefix("vrdma");
    registry.register_collector(Box::new(Said(snapshot)));
    let mut text = String::new();
    let written = match format {
        Format::OpenMetrics => text::encode(&mut text, &registry),
        Format::Plain => prometheus_text::encode(&mut text, &registry),
    };
    written.expect("a string takes all text, and numbers are in range");
    text
}

#[derive(Debug)]
struct Said(Arc<Snapshot>);

impl Source for Said {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        families::all().try_for_each(|family| write(family, &self.0, &mut encoder))
    }
}

/// Writes a family, if the daemon told a number of it.
fn write(family: &Family, snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let samples = family.samples(snapshot);
    if samples.is_empty() {
        return Ok(());
    }
    let unit = family.quantity.unit();
    let kind = family.kind.metric_type();
    let mut metric = encoder.encode_descriptor(family.name, family.help, unit.as_ref(), kind)?;
    for sample in samples {
        match (family.kind, sample.number) {
            (Kind::Info, _) => metric.encode_info(&sample.labels)?,
            (_, Number::Times(Times { count, sum, buckets })) => {
                let mut own = metric.encode_family(&sample.labels)?;
                own.encode_histogram::<Vec<(&str, String)>>(sum, count, &buckets, None)?;
            }
            (Kind::Histogram, _) => unreachable!("a histogram has times"),
            (Kind::Counter, Number::Whole(number)) => {
                ConstCounter::new(number).encode(metric.encode_family(&sample.labels)?)?;
            }
            (Kind::Counter, Number::Time(seconds)) => {
                ConstCounter::new(seconds).encode(metric.encode_family(&sample.labels)?)?;
            }
            (Kind::Gauge, Number::Whole(number)) => {
                // The format's numbers have a sign.
                let number = i64::try_from(number).unwrap_or(i64::MAX);
                ConstGauge::new(number).encode(metric.encode_family(&sample.labels)?)?;
            }
            (Kind::Gauge, Number::Time(seconds)) => {
                ConstGauge::new(seconds).encode(metric.encode_family(&sample.labels)?)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Replies, VERSION};
    use proptest::prelude::*;
    use serde_json::json;
    use std::time::Duration;

    fn of_guest(name: &str, stats: serde_json::Value) -> Arc<Snapshot> {
        let guest = json!({"name": name, "mac": "52:54:00:00:00:01", "worker": 0, "functions": []});
        let replies = Replies {
            stats: Some(json!({"stats": {"guests": [stats]}})),
            guests: Some(json!({"guests": [guest]})),
            ..Replies::default()
        };
        Arc::new(Snapshot::of(replies, Duration::from_millis(1500)))
    }

    #[test]
    fn without_a_daemon_the_text_says_so() {
        let down = || Arc::new(Snapshot::down());
        let plain = format!(
            "# HELP vrdma_up Whether the daemon answered.\n# TYPE vrdma_up gauge\nvrdma_up 0\n\
             # HELP vrdma_exporter_build_info Version of the exporter.\n\
             # TYPE vrdma_exporter_build_info gauge\nvrdma_exporter_build_info{{version=\"{VERSION}\"}} 1\n"
        );
        assert_eq!(text(down(), Format::Plain), plain);
        let open = format!(
            "# HELP vrdma_up Whether the daemon answered.\n# TYPE vrdma_up gauge\nvrdma_up 0\n\
             # HELP vrdma_exporter_build Version of the exporter.\n\
             # TYPE vrdma_exporter_build info\nvrdma_exporter_build_info{{version=\"{VERSION}\"}} 1\n# EOF\n"
        );
        assert_eq!(text(down(), Format::OpenMetrics), open);
    }

    #[test]
    fn a_text_is_made_once() {
        let exposition = Exposition::of(Snapshot::down());
        for format in [Format::OpenMetrics, Format::Plain] {
            let first = exposition.text(format);
            assert!(Arc::ptr_eq(&first, &exposition.text(format)));
            assert_eq!(*first, text(Arc::new(Snapshot::down()), format));
        }
    }

    #[test]
    fn counters_have_their_ends_and_units() {
        let stats = json!({"name": "a", "transport": {"retries": 7, "bytes_out": 1, "bytes_in": u64::MAX}});
        let open = text(of_guest("a", stats.clone()), Format::OpenMetrics);
        let expected = "# TYPE vrdma_guest_payload_bytes counter\n# UNIT vrdma_guest_payload_bytes bytes\n\
                        vrdma_guest_payload_bytes_total{guest=\"a\",direction=\"sent\"} 1\n\
                        vrdma_guest_payload_bytes_total{guest=\"a\",direction=\"received\"} 18446744073709551615\n";
        assert!(open.contains(expected), "{open}");
        assert!(open.contains("\nvrdma_exporter_collect_seconds 1.5\n"), "{open}");
        let plain = text(of_guest("a", stats), Format::Plain);
        let expected = "# TYPE vrdma_guest_retransmissions_total counter\n\
                        vrdma_guest_retransmissions_total{guest=\"a\"} 7\n";
        assert!(plain.contains(expected), "{plain}");
        assert!(!plain.contains("rnr"), "the daemon did not tell these");
    }

    #[test]
    fn a_histogram_has_its_buckets_in_both_formats() {
        let rc = json!({"requests": 7, "sum_ns": 5_500_000u64, "buckets": [[1000, 2], [2500, 4]]});
        let stats = json!({"name": "a", "latency": {"rc": rc}});
        let name = "vrdma_guest_request_latency_seconds";
        let labels = "guest=\"a\",service=\"rc\"";
        let ends = format!("{name}_sum{{{labels}}} 0.0055\n{name}_count{{{labels}}} 7\n");
        let open = text(of_guest("a", stats.clone()), Format::OpenMetrics);
        let buckets = [("0.000001", 2), ("0.0000025", 6), ("+Inf", 7)]
            .map(|(bound, count)| format!("{name}_bucket{{le=\"{bound}\",{labels}}} {count}\n"));
        let expected = format!("# TYPE {name} histogram\n# UNIT {name} seconds\n{ends}{}", buckets.concat());
        assert!(open.contains(&expected), "{open}");
        let buckets = [("1e-06", 2), ("2.5e-06", 6), ("+Inf", 7)]
            .map(|(bound, count)| format!("{name}_bucket{{{labels},le=\"{bound}\"}} {count}\n"));
        let plain = text(of_guest("a", stats), Format::Plain);
        let expected = format!("# TYPE {name} histogram\n{}{ends}", buckets.concat());
        assert!(plain.contains(&expected), "{plain}");
    }

    /// Takes the value of the label `guest` of a line.
    fn unescaped(line: &str) -> String {
        let mut characters = line.split_once("guest=\"").unwrap().1.chars();
        let mut value = String::new();
        loop {
            match characters.next().unwrap() {
                '"' => return value,
                '\\' => value.push(match characters.next().unwrap() {
                    'n' => '\n',
                    other => other,
                }),
                other => value.push(other),
            }
        }
    }

    proptest! {
        #[test]
        fn names_of_guests_survive(name in "(\\PC|[\"\\\\\n{},=# ]){0,12}") {
            for format in [Format::OpenMetrics, Format::Plain] {
                let text = text(of_guest(&name, json!({"name": name.as_str(), "device": {"events": 3}})), format);
                let line = text.split('\n').find(|line| line.starts_with("vrdma_guest_events_total{")).unwrap();
                prop_assert_eq!(unescaped(line), name.as_str());
                prop_assert!(line.ends_with("\"} 3"), "{}", line);
            }
        }
    }
}
