//! Families of series: their names, and where their numbers come from.

use crate::snapshot::{Scope, Snapshot, Subject};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use serde_json::Value;

/// Series with one name, whose labels differ.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Name without `vrdma_` at the beginning, and without the unit and `_total` at the end.
    pub name: &'static str,
    /// Meaning, as one sentence.
    pub help: &'static str,
    /// Usual cause of a number that an operator looks at, as one sentence.
    pub cause: &'static str,
    /// Whether it only grows.
    pub kind: Kind,
    /// What it counts.
    pub quantity: Quantity,
    /// What each of its series is about.
    pub scope: Scope,
    /// Labels beside those of the scope.
    pub labels: &'static [&'static str],
    /// Where the numbers come from: a series of each subject for each row.
    pub rows: &'static [Row],
}

/// How a number behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, from the daemon's start on.
    Counter,
    /// It grows and shrinks.
    Gauge,
    /// It is 1, and its labels have what is to be known.
    Info,
    /// Numbers of times by their length. They only grow.
    Histogram,
}

/// What a number counts, as the daemon tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Things, which are called so.
    Count(&'static str),
    /// Yes (1) or no (0).
    Flag,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Microseconds, which become seconds.
    Microseconds,
    /// Nanoseconds, which become seconds.
    Nanoseconds,
}

/// A series of each subject.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Values of the labels.
    pub values: &'static [&'static str],
    /// Names of the daemon's numbers, which are added up. A dot separates an object from a member.
    ///
    /// A star at the end stands for the rest of a member's name, which is the value of the label.
    /// In an [`Kind::Info`] these are the values of the labels. In a [`Kind::Histogram`] they are
    /// objects with `requests`, `sum_ns` and `buckets`.
    pub sources: &'static [&'static str],
}

/// A number with its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Names and values of the labels.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub number: Number,
}

/// A number, with the unit of its series.
#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    /// A whole number.
    Whole(u64),
    /// Seconds.
    Time(f64),
    /// How many times were how long.
    Times(Times),
}

/// How many times were how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// How many times there were.
    pub count: u64,
    /// Their sum in seconds.
    pub sum: f64,
    /// Upper bounds in seconds, each with how many times were no longer, and longer than the bound
    /// before. The last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
}

impl Quantity {
    /// Returns the unit of the series.
    pub fn unit(self) -> Option<Unit> {
        match self {
            Quantity::Count(_) | Quantity::Flag => None,
            Quantity::Bytes => Some(Unit::Bytes),
            Quantity::Seconds | Quantity::Microseconds | Quantity::Nanoseconds => Some(Unit::Seconds),
        }
    }

    /// Returns what the series count, for people.
    pub fn noun(self) -> &'static str {
        match self {
            Quantity::Count(things) => things,
            Quantity::Flag => "0 or 1",
            Quantity::Bytes => "bytes",
            Quantity::Seconds | Quantity::Microseconds | Quantity::Nanoseconds => "seconds",
        }
    }

    fn number(self, told: u64) -> Number {
        match self {
            Quantity::Count(_) | Quantity::Flag | Quantity::Bytes | Quantity::Seconds => Number::Whole(told),
            Quantity::Microseconds => Number::Time(told as f64 / 1e6),
            Quantity::Nanoseconds => Number::Time(told as f64 / 1e9),
        }
    }
}

impl Kind {
    /// Returns the type of OpenMetrics.
    pub fn metric_type(self) -> MetricType {
        match self {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Info => MetricType::Info,
            Kind::Histogram => MetricType::Histogram,
        }
    }
}

impl Family {
    /// Returns the name of the series, as Prometheus knows it.
    pub fn full_name(&self) -> String {
        let unit = self.quantity.unit().map(|unit| format!("_{}", unit.as_str())).unwrap_or_default();
        let end = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge | Kind::Histogram => "",
            Kind::Info => "_info",
        };
        format!("vrdma_{}{unit}{end}", self.name)
    }

    /// Returns the names of its series in the text.
    pub fn series(&self) -> Vec<String> {
        let ends = if self.kind == Kind::Histogram { &["_bucket", "_sum", "_count"][..] } else { &[""] };
        ends.iter().map(|end| format!("{}{end}", self.full_name())).collect()
    }

    /// Returns the names of all labels.
    pub fn all_labels(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.scope.labels().iter().chain(self.labels).copied()
    }

    /// Returns the series of what the daemon told. What it did not tell is missing.
    pub fn samples(&self, snapshot: &Snapshot) -> Vec<Sample> {
        let subjects = snapshot.subjects.iter().filter(|subject| subject.scope == self.scope);
        subjects.flat_map(|subject| self.rows.iter().flat_map(move |row| self.of_row(row, subject))).collect()
    }

    fn of_row(&self, row: &Row, subject: &Subject) -> Vec<Sample> {
        if self.kind == Kind::Info {
            return info(self.labels, row, subject).into_iter().collect();
        }
        if let [source] = row.sources
            && let Some(start) = source.strip_suffix('*')
        {
            return self.of_members(start, subject);
        }
        let add = |sum: u64, source: &&str| Some(sum.saturating_add(number(find(&subject.facts, source)?)?));
        let Some(told) = row.sources.iter().try_fold(0, add) else { return Vec::new() };
        let own = self.labels.iter().zip(row.values).map(|(label, value)| (*label, (*value).to_owned()));
        vec![Sample {
            labels: subject.labels.iter().cloned().chain(own).collect(),
            number: self.quantity.number(told),
        }]
    }

    /// Returns a series for each member of an object whose name begins so.
    fn of_members(&self, start: &str, subject: &Subject) -> Vec<Sample> {
        let (object, start) = start.rsplit_once('.').unwrap_or(("", start));
        let members = find(&subject.facts, object).and_then(Value::as_object).into_iter().flatten();
        let samples = members.filter_map(|(name, value)| {
            let own = self.labels.iter().map(|label| Some((*label, name.strip_prefix(start)?.to_owned())));
            let labels = subject.labels.iter().cloned().map(Some).chain(own);
            let number = match self.kind {
                Kind::Histogram => Number::Times(times(value)?),
                _ => self.quantity.number(number(value)?),
            };
            Some(Sample { labels: labels.collect::<Option<_>>()?, number })
        });
        samples.collect()
    }
}

fn info(labels: &[&'static str], row: &Row, subject: &Subject) -> Option<Sample> {
    let text =
        |value: &Value| value.as_str().map(str::to_owned).or_else(|| Some(value.as_u64()?.to_string()));
    let own = labels
        .iter()
        .zip(row.sources)
        .map(|(label, source)| Some((*label, text(find(&subject.facts, source)?)?)));
    let labels = subject.labels.iter().cloned().map(Some).chain(own);
    Some(Sample { labels: labels.collect::<Option<_>>()?, number: Number::Whole(1) })
}

/// Returns how many requests took how long. The daemon tells the times in nanoseconds.
fn times(value: &Value) -> Option<Times> {
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    let (count, sum) = (value.get("requests")?.as_u64()?, seconds(value.get("sum_ns")?.as_u64()?));
    let told = value.get("buckets")?.as_array()?.iter();
    let bucket = |bucket: &Value| Some((seconds(bucket.get(0)?.as_u64()?), bucket.get(1)?.as_u64()?));
    let mut buckets: Vec<(f64, u64)> = told.map(bucket).collect::<Option<_>>()?;
    let within = buckets.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
    buckets.push((f64::INFINITY, count.checked_sub(within)?));
    Some(Times { count, sum, buckets })
}

/// Returns a member of a member.
fn find<'a>(facts: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').filter(|name| !name.is_empty()).try_fold(facts, |value, name| value.get(name))
}

/// Returns a number, or 1 for yes and 0 for no.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| Some(value.as_bool()?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const LOST: Family = Family {
        name: "lost",
        help: "",
        cause: "",
        kind: Kind::Counter,
        quantity: Quantity::Count("messages"),
        scope: Scope::Guest,
        labels: &["reason"],
        rows: &[
            Row { values: &["key"], sources: &["transport.drop_pkey", "transport.drop_qkey"] },
            Row { values: &["psn"], sources: &["transport.drop_psn"] },
        ],
    };

    fn told(family: &Family, facts: Value) -> Vec<(String, Number)> {
        let labels = vec![("guest", "a".to_owned())];
        let subject = Subject { scope: Scope::Guest, labels, facts };
        let samples = family.samples(&Snapshot { subjects: vec![subject] }).into_iter();
        samples
            .map(|sample| {
                (
                    sample.labels.into_iter().map(|(_, value)| value).collect::<Vec<_>>().join(" "),
                    sample.number,
                )
            })
            .collect()
    }

    #[test]
    fn numbers_are_added_up_by_label() {
        let facts = json!({"transport": {"drop_pkey": 1, "drop_qkey": 2, "drop_psn": 4}});
        assert_eq!(
            told(&LOST, facts),
            [("a key".into(), Number::Whole(3)), ("a psn".into(), Number::Whole(4))]
        );
    }

    #[test]
    fn what_the_daemon_does_not_tell_is_left_out() {
        // A sum without one of its parts would be a guess.
        assert_eq!(told(&LOST, json!({"transport": {"drop_pkey": 1}})), []);
        assert_eq!(told(&LOST, json!({"transport": {"drop_psn": null, "drop_pkey": "1"}})), []);
        assert_eq!(told(&LOST, json!({})), []);
        assert_eq!(told(&LOST, json!(null)), []);
    }

    #[test]
    fn a_star_stands_for_the_rest_of_a_name() {
        let family = Family { rows: &[Row { values: &[], sources: &["switch.drop_*"] }], ..LOST };
        let facts = json!({"switch": {"drop_runt": 5, "forwarded": 6, "drop_odd": "x"}});
        assert_eq!(told(&family, facts), [("a runt".into(), Number::Whole(5))]);
        assert_eq!(told(&family, json!({})), []);
    }

    #[test]
    fn numbers_have_base_units() {
        let family = Family {
            labels: &[],
            rows: &[Row { values: &[], sources: &["busy"] }],
            quantity: Quantity::Microseconds,
            ..LOST
        };
        assert_eq!(family.full_name(), "vrdma_lost_seconds_total");
        assert_eq!(told(&family, json!({"busy": 2_500_000})), [("a".into(), Number::Time(2.5))]);
        let family = Family { kind: Kind::Gauge, quantity: Quantity::Bytes, ..family };
        assert_eq!(family.full_name(), "vrdma_lost_bytes");
        let yes = Family { quantity: Quantity::Flag, ..family };
        assert_eq!(told(&yes, json!({"busy": true})), [("a".into(), Number::Whole(1))]);
        assert_eq!(told(&yes, json!({"busy": false})), [("a".into(), Number::Whole(0))]);
        assert_eq!(told(&yes, json!({"busy": -1})), []);
    }

    #[test]
    fn times_are_counted_by_their_bounds() {
        let family = Family {
            name: "latency",
            kind: Kind::Histogram,
            quantity: Quantity::Nanoseconds,
            labels: &["service"],
            rows: &[Row { values: &[], sources: &["latency.*"] }],
            ..LOST
        };
        let name = "vrdma_latency_seconds";
        assert_eq!(
            family.series(),
            [format!("{name}_bucket"), format!("{name}_sum"), format!("{name}_count")]
        );
        assert_eq!(LOST.series(), ["vrdma_lost_total"]);
        let rc = json!({"requests": 7, "sum_ns": 5_000_000_000u64, "buckets": [[1000, 2], [2500, 4]]});
        let buckets = vec![(1e-6, 2), (2.5e-6, 4), (f64::INFINITY, 1)];
        let expected = Times { count: 7, sum: 5.0, buckets };
        assert_eq!(told(&family, json!({"latency": {"rc": rc}})), [("a rc".into(), Number::Times(expected))]);
        for odd in [
            json!(7),
            json!({"requests": 7, "sum_ns": 5}),
            json!({"requests": 7, "sum_ns": 5, "buckets": [[1000]]}),
            json!({"requests": 7, "sum_ns": 5, "buckets": [[1000, 8]]}),
            json!({"requests": 7, "sum_ns": 5, "buckets": [[1000, u64::MAX], [2500, u64::MAX]]}),
        ] {
            assert_eq!(told(&family, json!({"latency": {"rc": odd}})), [], "{odd}");
        }
    }

    #[test]
    fn an_info_has_its_facts_as_labels() {
        let family = Family {
            kind: Kind::Info,
            labels: &["mac", "worker"],
            rows: &[Row { values: &[], sources: &["mac", "worker"] }],
            ..LOST
        };
        assert_eq!(told(&family, json!({"mac": "x", "worker": 3})), [("a x 3".into(), Number::Whole(1))]);
        assert_eq!(told(&family, json!({"mac": "x"})), []);
    }
}
