//! All families of series.

mod daemon;
mod guest;
mod port;

use crate::family::Family;

/// Returns all families, in the order in which they are shown.
pub fn all() -> impl Iterator<Item = &'static Family> {
    [daemon::FAMILIES, guest::FAMILIES, port::FAMILIES].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Kind;
    use crate::snapshot::Scope;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn names_are_as_prometheus_wants_them() {
        let mut names = BTreeSet::new();
        for family in all() {
            let name = family.full_name();
            let is_plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            assert!(is_plain && !name.contains("__"), "{name}");
            let ends = ["_total", "_info", "_count", "_sum", "_bucket", "_created", "_seconds", "_bytes"];
            assert!(!ends.iter().any(|end| family.name.ends_with(end)), "{name}");
            assert!(names.insert(name.clone()), "{name} is there twice");
            assert!(family.help.ends_with('.') && !family.help.contains(['\n', '\\', '"']), "{name}");
        }
    }

    #[test]
    fn each_row_has_its_labels() {
        for family in all() {
            let name = family.full_name();
            let mut values = BTreeSet::new();
            for row in family.rows {
                let has_star = row.sources.iter().any(|source| source.ends_with('*'));
                let expected = match family.kind {
                    Kind::Info => row.sources.len(),
                    _ => row.values.len() + usize::from(has_star),
                };
                assert_eq!(family.labels.len(), expected, "{name}");
                assert!(!has_star || row.sources.len() == 1, "{name}: a star is alone");
                // A port has either counters of a guest or those of an uplink.
                let of = row.sources[0].split('.').next().filter(|_| family.scope == Scope::Port);
                assert!(values.insert((of, row.values)) || has_star, "{name}: {row:?}");
            }
            let labels: Vec<_> = family.all_labels().collect();
            assert_eq!(labels.iter().collect::<BTreeSet<_>>().len(), labels.len(), "{name}");
        }
    }

    /// Returns the keys in the tables of docs/monitoring.md, by the heading above them.
    fn documented() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
        let text = include_str!("../../../docs/monitoring.md");
        let (_, text) = text.split_once("\n## Counters\n").unwrap();
        let sections = text.split("\n### ").skip(1).map(|section| {
            let (heading, rows) = section.split_once('\n').unwrap();
            let cells = rows.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
            let keys = cells.flat_map(|(cell, _)| cell.split(", ").map(|key| key.trim_matches('`')));
            (heading, keys.collect())
        });
        sections.collect()
    }

    #[test]
    fn series_come_from_documented_counters() {
        let documented = documented();
        let mut count = 0;
        for (family, source) in all().flat_map(|family| {
            family.rows.iter().flat_map(|row| row.sources).map(move |source| (family, *source))
        }) {
            let (section, key) = match (family.scope, source.split_once('.')) {
                (Scope::Worker, Some(("between", key))) => ("worker", key),
                (Scope::Function, None) if source == "reachable" => ("guest", source),
                (Scope::Daemon, None) => ("daemon", source),
                // These are fields of replies of their own.
                (Scope::Exporter | Scope::Worker | Scope::Function, _) | (_, None) => continue,
                (_, Some(("info" | "place", _))) => continue,
                (_, Some((section, key))) => (section, key),
            };
            let of_packet = documented["net_packet"].iter().filter(|_| section == "uplink");
            let known: BTreeSet<&str> = documented[section].iter().chain(of_packet).copied().collect();
            let is_known = match key.strip_suffix('*') {
                Some(start) => known.iter().any(|known| known.starts_with(start)),
                None => known.contains(key),
            };
            assert!(is_known, "{}: {source} is not in docs/monitoring.md", family.full_name());
            count += 1;
        }
        assert!(count > 60, "too few for that to mean something: {count}");
    }

    #[test]
    fn series_of_replies_come_from_fields_that_are_there() {
        let worker = serde_json::to_value(vrdma_admin::worker::Worker::default()).unwrap();
        let function = vrdma_admin::guest::GuestFunction {
            kind: vrdma_admin::guest::FunctionKind::Roce,
            meets: vrdma_admin::guest::Meeting::Socket,
            socket: None,
            connected: false,
            pid: None,
            uid: None,
        };
        let function = serde_json::to_value(function).unwrap();
        for family in all() {
            let fields = match family.scope {
                Scope::Worker => &worker,
                Scope::Function => &function,
                _ => continue,
            };
            for source in family.rows.iter().flat_map(|row| row.sources) {
                let elsewhere = source.starts_with("between.") || *source == "reachable";
                assert!(elsewhere || fields.get(source).is_some(), "{}: {source}", family.full_name());
            }
        }
    }
}
