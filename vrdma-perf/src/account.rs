//! The cycle account: what the worker's time of a request goes to, by stage, of the loads that the report holds against targets. The daemon keeps it, if it
//! was built so.

use crate::args::{DaemonArgs, Figure, Report};
use crate::beside::Limit;
use crate::document;
use crate::flow::Flows;
use crate::helper::Helper;
use crate::host::Host;
use crate::load;
use crate::machine;
use crate::missing::missing;
use crate::report::plan;
use crate::stats::Quartiles;
use crate::windows::histogram;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Each load, and the command that it is.
const LOADS: &[(&str, &str)] = &[
    ("8 B WRITE", "write rate"),
    ("8 B SEND", "send rate"),
    ("8 B SEND, shared receives", "send rate --srq"),
    ("FETCH_ADD", "atomic rate"),
    ("8 B WRITE, 10,000 QPs", "write rate -q 10000"),
    ("64 KiB WRITE", "write bw"),
];
/// Stages in their order, and what each is.
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
/// Operations between two looks at the clock.
const ROUND: u32 = 2000;
const LONG_ROUND: u32 = 64;
/// Windows of a limit.
const WINDOWS: usize = 7;

/// What the daemon tells.
#[derive(Clone, Debug, Deserialize)]
struct Told {
    ns: BTreeMap<String, u64>,
    marks: u64,
    mark_ns: f64,
}

/// Of one load, in nanoseconds of an operation.
#[derive(Clone, Debug)]
struct Row {
    name: &'static str,
    stages: BTreeMap<String, f64>,
    /// What the account itself took.
    marks: f64,
    limit: String,
    limit_ns: f64,
}

impl Row {
    /// Of so many operations between two accounts.
    fn new(name: &'static str, [before, after]: [&Told; 2], operations: u64, limit: (String, f64)) -> Row {
        let each = |ns: f64| ns / operations.max(1) as f64;
        let stage = |(stage, ns): (&String, &u64)| {
            let before = before.ns.get(stage).copied().unwrap_or_default();
            (stage.clone(), each(ns.saturating_sub(before) as f64))
        };
        Row {
            name,
            stages: after.ns.iter().map(stage).collect(),
            marks: each((after.marks - before.marks) as f64 * after.mark_ns),
            limit: limit.0,
            limit_ns: limit.1,
        }
    }

    fn stage(&self, name: &str) -> f64 {
        self.stages.get(name).copied().unwrap_or_default()
    }

    /// What the worker was busy for, with the account.
    fn busy(&self) -> f64 {
        self.stages.iter().filter(|(stage, _)| *stage != "idle").map(|(_, ns)| ns).sum()
    }

    fn line(&self) -> String {
        let stages: Vec<String> =
            STAGES.iter().map(|(stage, _)| format!("{:.1}", self.stage(stage))).collect();
        let (busy, limit) = (self.busy(), self.limit_ns);
        format!(
            "| {} | {} | {busy:.1} | {:.1} | {} {limit:.1} |",
            self.name,
            stages.join(" | "),
            self.marks,
            self.limit
        )
    }

    /// In a sentence: what most of the time goes to.
    fn words(&self) -> String {
        let mut stages: Vec<(f64, &str)> =
            STAGES.iter().map(|(name, what)| (self.stage(name), *what)).collect();
        stages.sort_by(|a, b| b.0.total_cmp(&a.0));
        let most: Vec<String> = stages.iter().take(4).map(|(ns, what)| format!("{what} {ns:.0}")).collect();
        let (busy, marks) = (self.busy(), self.marks);
        format!(
            "* **{}**: the worker is busy for {busy:.0} ns an operation, of which the account itself takes some {marks:.0}, beside {:.0} ns of the {}. Most goes to: {}.",
            self.name,
            self.limit_ns,
            self.limit,
            most.join(", ")
        )
    }
}

/// Measures and prints the account of each load.
///
/// # Errors
/// The daemon keeps none, or something fails.
pub fn report(args: &Report) -> Result<()> {
    let mut text = machine::describe();
    text += "\n\n| ns an operation |";
    STAGES.iter().for_each(|(stage, _)| text += &format!(" {stage} |"));
    text += " busy | of which the account | limit |\n|---|";
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

/// Measures a load.
fn one(name: &'static str, command: &str, time: f64, daemon: &DaemonArgs) -> Result<Row> {
    let (plan, args) = plan(command)?;
    let host = Host::new(daemon, plan.guests, plan.memory())?;
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
    std::thread::sleep(crate::beside::ASLEEP);
    let mut times = histogram();
    let mut limit = Limit::new(&helper, &flows, &plan, args.figure, &mut times)?;
    let windows = (0..WINDOWS).map(|_| limit.window(&helper)).collect::<Result<Vec<f64>>>()?;
    // Bytes or operations a second.
    let bytes = if args.figure == Figure::Bw { f64::from(plan.size) } else { 1. };
    let limit_ns = 1e9 * bytes / Quartiles::of(windows).median;
    Ok(Row::new(name, [&before, &after], operations, (limit.name(), limit_ns)))
}

/// The daemon's account so far.
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
        let ns = [("execute".to_owned(), execute), ("idle".to_owned(), idle)].into();
        Told { ns, marks, mark_ns: 2. }
    }

    #[test]
    fn an_operation_has_its_share_of_what_was_between() {
        let row = Row::new("x", [&told(100, 50, 10), &told(1100, 250, 30)], 10, ("floor".into(), 19.));
        assert_eq!((row.stage("execute"), row.stage("idle"), row.busy(), row.marks), (100., 20., 100., 4.));
        assert_eq!(row.line().matches('|').count(), STAGES.len() + 5);
        assert!(row.words().contains("the engine 100"), "{}", row.words());
    }

    #[test]
    fn each_load_is_a_command() {
        for (_, command) in LOADS {
            assert_eq!(plan(command).unwrap().0.guests, 2);
        }
    }
}
