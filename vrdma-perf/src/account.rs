//! The cycle account: where the worker's time for a request goes, by stage. It covers the loads
//! that have targets in the report.
//!
//! The daemon keeps the account, if it was built with the feature `cycles`.

use crate::args::{DaemonArgs, Figure, Report};
use crate::document;
use crate::flow::Flows;
use crate::helper::Helper;
use crate::host::Host;
use crate::load;
use crate::machine;
use crate::missing::missing;
use crate::reference::Reference;
use crate::report::plan;
use crate::stats::Quartiles;
use crate::windows::histogram;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The name and the command of each load.
const LOADS: &[(&str, &str)] = &[
    ("8 B WRITE", "write rate"),
    ("8 B SEND", "send rate"),
    ("8 B SEND, shared receives", "send rate --srq"),
    ("8 B WRITE with immediate", "write rate --imm"),
    ("FETCH_ADD", "atomic rate"),
    ("CMP_SWAP", "atomic rate -A CMP_AND_SWAP"),
    ("8 B WRITE, 10,000 QPs", "write rate -q 10000"),
    ("8 B WRITE, 64 guests", "write rate --guests 64"),
    ("64 KiB WRITE", "write bw"),
    ("64 KiB READ", "read bw"),
    ("64 KiB SEND", "send bw"),
    ("1 MiB WRITE", "write bw -s 1048576"),
    ("1 MiB READ", "read bw -s 1048576"),
    ("1 MiB SEND", "send bw -s 1048576"),
];
/// The stages in their order, and a description of each.
const STAGES: &[(&str, &str)] = &[
    ("poll", "looking for work"),
    ("fetch", "copying units out of channels"),
    ("parse", "parsing them"),
    ("execute", "the engine"),
    ("copy", "copying data"),
    ("complete", "completions, and slots given back"),
    ("wire", "frames"),
    ("idle", "waiting for us"),
];
/// The stage in which the worker waits.
const IDLE: &str = "idle";
/// Number of operations between two reads of the clock.
const ROUND: u32 = 2000;
const LONG_ROUND: u32 = 64;
/// Number of windows of a limit.
const WINDOWS: usize = 7;

/// The account that the daemon reports.
#[derive(Clone, Debug, Deserialize)]
struct Told {
    ns: BTreeMap<String, u64>,
    /// Number of times that each stage ended.
    marks: BTreeMap<String, u64>,
    /// Nanoseconds that one such mark costs.
    mark_ns: f64,
}

impl Told {
    /// Returns the nanoseconds of a stage, and the overhead of the account in them.
    fn of(&self, stage: &str) -> [f64; 2] {
        let of = |all: &BTreeMap<String, u64>| all.get(stage).copied().unwrap_or_default() as f64;
        [of(&self.ns), of(&self.marks) * self.mark_ns]
    }
}

/// The account of one load, in nanoseconds for each operation.
#[derive(Clone, Debug)]
struct Row {
    name: &'static str,
    /// The stages in the order of [`STAGES`], without the overhead of the account.
    stages: Vec<f64>,
    /// Overhead of the account in the busy stages.
    marks: f64,
    limit: String,
    limit_ns: f64,
}

impl Row {
    /// Makes a row for this number of operations between two accounts.
    fn new(name: &'static str, [before, after]: [&Told; 2], operations: u64, limit: (String, f64)) -> Row {
        let each = |ns: f64| ns / operations.max(1) as f64;
        let between = |stage: &str| {
            let ([ns, marks], [old_ns, old_marks]) = (after.of(stage), before.of(stage));
            [each(ns - old_ns), each(marks - old_marks)]
        };
        let stage = |(stage, _): &(&str, &str)| {
            let [ns, marks] = between(stage);
            (ns - marks).max(0.)
        };
        let busy = STAGES.iter().filter(|(stage, _)| *stage != IDLE);
        Row {
            name,
            stages: STAGES.iter().map(stage).collect(),
            marks: busy.map(|(stage, _)| between(stage)[1]).sum(),
            limit: limit.0,
            limit_ns: limit.1,
        }
    }

    /// Returns each stage, its description and its time.
    fn stages(&self) -> impl Iterator<Item = (&'static str, &'static str, f64)> {
        STAGES.iter().zip(&self.stages).map(|(&(stage, what), &ns)| (stage, what, ns))
    }

    /// Returns the time that the worker was busy, without the overhead of the account.
    fn busy(&self) -> f64 {
        self.stages().filter(|(stage, ..)| *stage != IDLE).map(|(.., ns)| ns).sum()
    }

    fn line(&self) -> String {
        let stages: Vec<String> = self.stages.iter().map(|ns| format!("{ns:.1}")).collect();
        let (busy, limit) = (self.busy(), self.limit_ns);
        format!(
            "| {} | {} | {busy:.1} | {:.1} | {} {limit:.1} |",
            self.name,
            stages.join(" | "),
            self.marks,
            self.limit
        )
    }

    /// Says in a sentence where most of the time goes.
    fn words(&self) -> String {
        let mut stages: Vec<_> = self.stages().filter(|(stage, ..)| *stage != IDLE).collect();
        stages.sort_by(|(.., a), (.., b)| b.total_cmp(a));
        let most: Vec<String> =
            stages.iter().take(4).map(|(_, what, ns)| format!("{what} {ns:.0}")).collect();
        format!(
            "* **{}**: the worker is busy for {:.0} ns an operation, beside {:.0} ns of the {}. Most goes to: {}.",
            self.name,
            self.busy(),
            self.limit_ns,
            self.limit,
            most.join(", ")
        )
    }
}

/// Measures and prints the account of each load.
///
/// # Errors
/// The daemon keeps no account, or a measurement fails.
pub fn report(args: &Report) -> Result<()> {
    let mut text = machine::describe();
    text += "\n\n| ns an operation |";
    STAGES.iter().for_each(|(stage, _)| text += &format!(" {stage} |"));
    text += " busy | the account besides | limit |\n|---|";
    text += &"---|".repeat(STAGES.len() + 3);
    println!("{text}");
    let mut words = String::new();
    for (name, command) in LOADS.iter().filter(|(name, _)| name.contains(&args.only)) {
        let row = one(name, command, args.duration, &args.daemon).context(*command)?;
        println!("{}", row.line());
        text += &format!("\n{}", row.line());
        words += &format!("\n{}", row.words());
    }
    println!("{words}");
    if let Some(dir) = &args.out {
        document::put(dir, "account", &format!("{text}\n{words}"))?;
    }
    Ok(())
}

/// Measures the account of one load.
fn one(name: &'static str, command: &str, time: f64, daemon: &DaemonArgs) -> Result<Row> {
    let (plan, args) = plan(command)?;
    let host = Host::new(daemon, plan.guests, plan.memory(), plan.transport)?;
    let mut flows = Flows::new(&host, &plan)?;
    let round = if args.figure == Figure::Bw { LONG_ROUND } else { ROUND };
    load::rate(&mut flows, round)?;
    let (before, ended) = (told(&host)?, flows.ended());
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs_f64(time) {
        load::rate(&mut flows, round)?;
    }
    let (after, operations) = (told(&host)?, flows.ended() - ended);
    let helper = Helper::start(daemon.cpus.1);
    std::thread::sleep(crate::reference::ASLEEP);
    let mut times = histogram();
    let mut limit = Reference::new(&helper, &flows, &plan, args.figure, &mut times)?;
    let windows = (0..WINDOWS).map(|_| limit.window(&helper)).collect::<Result<Vec<f64>>>()?;
    // In bandwidths, a value is in bytes per second; in rates, in operations per second.
    let bytes = if args.figure == Figure::Bw { f64::from(plan.size) } else { 1. };
    let limit_ns = 1e9 * bytes / Quartiles::of(windows).median;
    Ok(Row::new(name, [&before, &after], operations, (limit.name(), limit_ns)))
}

/// Returns the daemon's account so far.
fn told(host: &Host) -> Result<Told> {
    let mut stats = host.stats()?;
    let account = stats.get_mut("cycles").map(serde_json::Value::take);
    let account = account.ok_or_else(|| {
        missing("the daemon keeps no account: build it with the feature cycles (cargo run --release -p vrdma-perf --features cycles -- report --account)")
    })?;
    Ok(serde_json::from_value(account)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(execute: u64, idle: u64, marks: u64) -> Told {
        let of = |execute, idle| [("execute".to_owned(), execute), (IDLE.to_owned(), idle)].into();
        Told { ns: of(execute, idle), marks: of(marks, 3 * marks), mark_ns: 2. }
    }

    #[test]
    fn an_operation_has_its_share_of_what_was_between() {
        let row = Row::new("x", [&told(100, 50, 10), &told(1100, 250, 30)], 10, ("floor".into(), 19.));
        let of = |wanted| row.stages().find(|(stage, ..)| *stage == wanted).map(|(.., ns)| ns);
        assert_eq!((of("execute"), of(IDLE), row.busy(), row.marks), (Some(96.), Some(8.), 96., 4.));
        assert_eq!(row.line().matches('|').count(), STAGES.len() + 5);
        assert!(row.words().contains("the engine 96"), "{}", row.words());
    }

    #[test]
    fn each_load_is_a_command() {
        for (_, command) in LOADS {
            assert_ne!(plan(command).unwrap().0.guests, 0);
        }
    }
}
