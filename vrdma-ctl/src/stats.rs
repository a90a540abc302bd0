//! `stats`: all counters, or what changes.

use crate::args::StatsArgs;
use crate::connection::Connection;
use crate::counters::{flat, is_wanted, leaves, numbers};
use crate::print;
use crate::sheet::{Cell, Sheet};
use anyhow::{Result, bail};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use vrdma_admin::daemon::{AllCounters, GetStats};

/// Prints counters.
///
/// # Errors
/// The daemon does not answer, or has no counter of such a name.
pub fn stats(connection: &Connection, json: bool, args: &StatsArgs) -> Result<()> {
    let mut client = connection.to_observe()?;
    let Some(interval) = args.watch else {
        let AllCounters { stats } = client.call(&GetStats::default())?;
        return print_once(&stats, json, &args.names);
    };
    // The daemon may take as long as it was asked to.
    client.set_timeout(Some(interval + Duration::from_secs(20)))?;
    let get = GetStats { interval: Some(interval.as_millis() as u64) };
    let mut before: Option<(Instant, BTreeMap<String, u64>)> = None;
    // The first list is what the rates begin with.
    let count = args.count.map_or(usize::MAX, |count| count as usize + usize::from(!json));
    for reply in client.follow(&get)?.take(count) {
        let AllCounters { stats } = reply?;
        if json || before.is_none() {
            let wanted = wanted(&stats, &args.names)?;
            if json {
                print::json(&wanted)?;
                continue;
            }
        }
        let (now, new) = (Instant::now(), numbers(&stats));
        if let Some((then, old)) = before {
            print::table(&rates(&old, &new, now - then, &args.names), "nothing changed")?;
            print::line("")?;
        }
        before = Some((now, new));
    }
    Ok(())
}

fn print_once(stats: &Map<String, Value>, json: bool, names: &[String]) -> Result<()> {
    let wanted = wanted(stats, names)?;
    if json { print::json(&wanted) } else { print::pairs(&flat(&wanted)) }
}

/// Returns the counters whose names begin so, or all as they are if no name is given.
fn wanted(stats: &Map<String, Value>, names: &[String]) -> Result<Value> {
    let all = Value::Object(stats.clone());
    if names.is_empty() {
        return Ok(all);
    }
    let wanted: Map<_, _> = leaves(&all).into_iter().filter(|(name, _)| is_wanted(name, names)).collect();
    if wanted.is_empty() {
        bail!("no counter's name begins with {}: `vrdma-ctl stats` prints all", names.join(" or "));
    }
    Ok(wanted.into())
}

/// Makes the table of counters that changed.
fn rates(
    old: &BTreeMap<String, u64>,
    new: &BTreeMap<String, u64>,
    time: Duration,
    names: &[String],
) -> Sheet {
    let mut sheet = Sheet::new(&["COUNTER", "VALUE", "A SECOND"]);
    for (name, &value) in new.iter().filter(|(name, _)| is_wanted(name, names)) {
        let before = old.get(name).copied().unwrap_or_default();
        if value != before && name != "uptime" {
            let rate = (value as f64 - before as f64) / time.as_secs_f64().max(f64::MIN_POSITIVE);
            sheet.add([Cell::text(name), Cell::count(value), Cell::rate(rate)]);
        }
    }
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_shown() {
        let counters = |of: &[(&str, u64)]| of.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect();
        let old = counters(&[("a", 5), ("b", 7), ("uptime", 1), ("x", 9)]);
        let new = counters(&[("a", 5), ("b", 27), ("c", 4), ("uptime", 3), ("x", 1)]);
        let sheet = rates(&old, &new, Duration::from_secs(2), &[]);
        let rows: Vec<_> =
            sheet.rows.iter().map(|row| row.iter().map(Cell::shown).collect::<Vec<_>>()).collect();
        assert_eq!(rows, [["b", "27", "10"], ["c", "4", "2"], ["x", "1", "-4"]]);
        assert_eq!(rates(&old, &new, Duration::from_secs(2), &["c".into()]).rows.len(), 1);
    }
}
