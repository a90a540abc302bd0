//! The standard set of figures: `vrdma-perf report` and `compare`.

use crate::args::{Cli, Compare, DaemonArgs, Figure, Measure, Report};
use crate::measure::{Beside, Measured, measure};
use crate::plan::{Operation, Plan};
use crate::stats::Quartiles;
use anyhow::{Context, Result, ensure};
use clap::Parser;
use std::path::PathBuf;
use std::time::Instant;

/// A row: what it is, as a command, beside which other command (or the limit), and the ratio that is wanted.
struct Row {
    name: &'static str,
    command: &'static str,
    beside: Option<&'static str>,
    target: &'static str,
}

const fn row(
    name: &'static str,
    command: &'static str,
    beside: Option<&'static str>,
    target: &'static str,
) -> Row {
    Row { name, command, beside, target }
}

const WRITE: Option<&str> = Some("write rate");

const ROWS: &[Row] = &[
    row("8 B WRITE, post to CQE, one outstanding", "write lat", None, "<= 1.3"),
    row("8 B WRITE rate, one QP", "write rate", None, ">= 0.6"),
    row("8 B inline WRITE rate", "write rate -I 8", WRITE, ""),
    row("8 B SEND rate", "send rate", WRITE, ">= 0.7"),
    row("8 B SEND rate, shared receives", "send rate --srq", WRITE, ">= 0.7"),
    row("FETCH_ADD rate", "atomic rate", WRITE, ">= 0.8"),
    row("CMP_SWAP rate", "atomic rate -A CMP_AND_SWAP", WRITE, ">= 0.8"),
    row("8 B READ rate", "read rate", WRITE, ""),
    row("8 B UC WRITE rate", "write rate -c UC", WRITE, ""),
    row("8 B UD SEND rate", "send rate -c UD", WRITE, ""),
    row("8 B XRC SEND rate", "send rate -c XRC", WRITE, ""),
    row("8 B WRITE rate, 10,000 QPs in random order", "write rate -q 10000", WRITE, ">= 0.8"),
    row("8 B WRITE rate, 8 guests", "write rate --guests 8", WRITE, ""),
    row("64 KiB WRITE, hot", "write bw", None, ">= 0.95"),
    row("1 MiB WRITE, hot", "write bw -s 1048576", None, ">= 0.95"),
    row("1 MiB WRITE over 256 MiB, cold", "write bw -s 1048576 --cold", None, ">= 0.95"),
    row("64 KiB READ, hot", "read bw", None, ">= 0.95"),
    row("1 MiB READ, hot", "read bw -s 1048576", None, ">= 0.95"),
    row("64 KiB SEND, hot", "send bw", None, ">= 0.95"),
    row("1 MiB SEND, hot", "send bw -s 1048576", None, ">= 0.95"),
];

/// The one plan that a command is.
fn plan(command: &str) -> Result<(Plan, Measure)> {
    let cli = Cli::try_parse_from(format!("vrdma-perf {command}").split(' '))?;
    let (operation, args) = Operation::of(&cli.command).context("a row measures an operation")?;
    let plan = Plan::all(operation, args.figure, &args.load)?.into_iter().next();
    Ok((plan.context("a row has one size")?, args.clone()))
}

/// Measures a row, beside another daemon or what the row says.
fn one(row: &Row, duration: f64, daemon: &DaemonArgs, other: Option<&DaemonArgs>) -> Result<Measured> {
    let (own, mut args) = plan(row.command)?;
    args.run.duration = duration;
    let reference = row.beside.map(plan).transpose()?;
    let beside = match (other, &reference) {
        (Some(other), _) => Beside::Daemon(other),
        (None, Some((reference, _))) => Beside::Plan(reference),
        (None, None) => Beside::Limit,
    };
    measure(&own, args.figure, &args.run, daemon, beside).context(row.command)
}

/// The standard set, each row as soon as it is measured.
///
/// # Errors
/// Of a measurement.
pub fn report(args: &Report) -> Result<()> {
    let start = Instant::now();
    println!(
        "| figure | measured | beside | | ratio (quartiles) | line | pairs | target |\n|---|---|---|---|---|---|---|---|"
    );
    for row in picked(&args.only)? {
        let measured = one(row, args.duration, &args.daemon, None)?;
        lines(row.name, &measured, row.target).iter().for_each(|line| println!("{line}"));
    }
    println!(
        "\n{:.0} s; each row is a regime: windows between which a cache line took as long there and back",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// The same through two daemons in turns.
///
/// # Errors
/// Of a measurement.
pub fn compare(args: &Compare) -> Result<()> {
    let daemon = |program: &PathBuf| {
        ensure!(program.is_file(), "{} is no program", program.display());
        // A name alone would be looked up in the path.
        let program = std::path::absolute(program)?;
        Ok(DaemonArgs { daemon: Some(program), cpus: args.cpus, poll_us: 200, ..DaemonArgs::default() })
    };
    let (first, second) = (daemon(&args.first)?, daemon(&args.second)?);
    println!(
        "| figure | first | second | | first / second (quartiles) | line | pairs | |\n|---|---|---|---|---|---|---|---|"
    );
    for row in picked(&args.only)? {
        let measured = one(row, args.duration, &first, Some(&second))?;
        lines(row.name, &measured, "").iter().for_each(|line| println!("{line}"));
    }
    Ok(())
}

fn picked(only: &str) -> Result<Vec<&'static Row>> {
    let rows: Vec<_> = ROWS.iter().filter(|row| row.name.contains(only)).collect();
    ensure!(
        !rows.is_empty(),
        "no row has {only:?} in its name: {}",
        ROWS.iter().map(|row| row.name).collect::<Vec<_>>().join("; ")
    );
    Ok(rows)
}

/// A row for each regime.
fn lines(name: &str, measured: &Measured, target: &str) -> Vec<String> {
    let (factor, unit) = match measured.figure {
        Figure::Lat => (1., "us"),
        Figure::Bw => (1e-9, "GB/s"),
        Figure::Rate => (1e-6, "M/s"),
    };
    let limit = measured.limit.as_deref().unwrap_or("nothing");
    let regimes = measured.turns.iter().flat_map(|turns| &turns.regimes);
    let mut lines: Vec<String> = regimes
        .map(|regime| {
            let [own, its_limit] = [regime.own, regime.limit].map(|values| values.scaled(factor).median);
            let Quartiles { low, median, high } = regime.ratio;
            let (line, pairs) = (regime.line.median, regime.pairs);
            format!(
                "| {name} | {own:.3} {unit} | {limit} | {its_limit:.3} {unit} | {median:.2} ({low:.2} to {high:.2}) | {line:.0} ns | {pairs} | {target} |"
            )
        })
        .collect();
    if lines.is_empty() {
        lines.push(format!("| {name} | no two windows of the same regime: others wanted the processors | | | | | | {target} |"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_a_command_of_one_size() {
        for row in ROWS {
            for command in [Some(row.command), row.beside].into_iter().flatten() {
                let (plan, args) = plan(command).unwrap();
                assert!(!args.load.all && plan.depth >= plan.qps.min(128) || args.figure == Figure::Lat);
            }
        }
    }

    #[test]
    fn rows_are_picked_by_their_names() {
        assert_eq!(picked("").unwrap().len(), ROWS.len());
        assert_eq!(picked("FETCH_ADD").unwrap().len(), 1);
        assert!(picked("nothing").is_err());
    }
}
