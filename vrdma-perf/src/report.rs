//! The standard set of figures: `vrdma-perf report` and `compare`.

use crate::args::{Cli, Compare, DaemonArgs, Measure, PortKind, Report, Wire};
use crate::document;
use crate::idle;
use crate::lines;
use crate::machine;
use crate::measure::{Measured, measure};
use crate::missing::{is_missing, missing};
use crate::plan::{Operation, Plan};
use crate::reference::Beside;
use crate::rows::{ROWS, Row, What, With};
use crate::turns::Turns;
use crate::wire;
use crate::workers;
use anyhow::{Context, Result, ensure};
use clap::Parser;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Returns the plan of a command, which has one size.
pub fn plan(command: &str) -> Result<(Plan, Measure)> {
    let cli = Cli::try_parse_from(format!("vrdma-perf {command}").split(' '))?;
    let (operation, args) = Operation::of(&cli.command).context("a row measures an operation")?;
    let plan = Plan::all(operation, args.figure, &args.load)?.into_iter().next();
    Ok((plan.context("a row has one size")?, args.clone()))
}

/// The result of a row: its lines, and its windows, if it has any.
struct Shown {
    lines: Vec<String>,
    turns: Option<Turns>,
    small_pages: bool,
}

/// Measures a command, beside another daemon or the reference `with`.
fn command(
    text: &str,
    with: With,
    time: f64,
    daemon: &DaemonArgs,
    other: Option<&DaemonArgs>,
) -> Result<Measured> {
    let (own, mut args) = plan(text)?;
    args.run.duration = time;
    let poll_us = text.contains("--poll-us").then_some(args.daemon.poll_us);
    if poll_us.is_some() && !daemon.attach.is_empty() {
        return Err(missing("the daemon that is attached to sleeps when it likes"));
    }
    let (daemon, other) = daemons(poll_us, daemon, other);
    let reference = match with {
        With::Command(other) | With::Apart(other) => Some(plan(other)?.0),
        With::Limit | With::Median | With::FloorTail | With::Ucx => None,
    };
    let beside = match (&other, with, &reference) {
        (Some(other), ..) => Beside::Daemon(other),
        (None, With::Apart(_), Some(reference)) => Beside::Apart(reference),
        (None, _, Some(reference)) => Beside::Plan(reference),
        (None, With::Median, None) => Beside::Median,
        (None, With::FloorTail, None) => Beside::FloorTail,
        (None, With::Ucx, None) => Beside::Ucx,
        (None, _, None) => Beside::Reference,
    };
    measure(&own, args.figure, &args.run, &daemon, beside).context(text.to_owned())
}

/// Returns the daemons of a row. Each polls for as long as the row's command says, if it says so.
fn daemons(
    poll_us: Option<u64>,
    first: &DaemonArgs,
    second: Option<&DaemonArgs>,
) -> (DaemonArgs, Option<DaemonArgs>) {
    let told =
        |daemon: &DaemonArgs| DaemonArgs { poll_us: poll_us.unwrap_or(daemon.poll_us), ..daemon.clone() };
    (told(first), second.map(told))
}

/// Measures a row.
fn one(row: &Row, time: f64, daemon: &DaemonArgs) -> Result<Shown> {
    let Row { name, what, target, .. } = *row;
    let absolute = |value: String| {
        let lines = vec![lines::absolute(name, &value, target)];
        Shown { lines, turns: None, small_pages: false }
    };
    match what {
        What::Command(text, with) => {
            let measured = command(text, with, time, daemon, None)?;
            let lines = lines::of(name, &measured, target);
            Ok(Shown { lines, turns: measured.turns, small_pages: !measured.huge_pages })
        }
        What::Processor(qps) => {
            let time = Duration::from_secs_f64(time.max(1.));
            let percent = idle::processor(&plan("write rate")?.0, daemon, qps, time)?;
            let (low, high) = (percent.low, percent.high);
            Ok(absolute(format!("{:.3} % ({low:.3} to {high:.3})", percent.median)))
        }
        What::Memory(qps, is_wire) => {
            let bytes = idle::memory(&plan("write rate")?.0, daemon, qps, is_wire)?;
            Ok(absolute(format!("{bytes:.0} B")))
        }
        What::Wire(..)
        | What::Iwarp(..)
        | What::IwarpApart(..)
        | What::IwarpVeth(..)
        | What::Stalled(_)
        | What::Gap(_) => {
            if !ports_are_ours(daemon) {
                return Err(missing("its engines are this program's, not those of another daemon"));
            }
            let wire = wire_of(what, time, daemon).expect("it is over a port");
            apart(name, &wire, target)
        }
    }
}

/// Returns the arguments of a row that is measured over a port.
fn wire_of(what: What, time: f64, daemon: &DaemonArgs) -> Option<Wire> {
    let roce = |port| over(port, time, daemon);
    let iwarp = |port, mtu| Wire { mtu: Some(mtu), iwarp: true, ..roce(port) };
    Some(match what {
        What::Wire(port, size) => Wire { size, ..roce(port) },
        What::Iwarp(port, size, qp, tx_depth) => Wire { size, qp, tx_depth, ..iwarp(port, 9000) },
        What::IwarpApart(size, qp, tx_depth) => {
            Wire { size, qp, tx_depth, apart: true, ..iwarp(PortKind::Memif, 9000) }
        }
        What::IwarpVeth(port, mtu, apart) => Wire { apart, ..iwarp(port, mtu) },
        What::Stalled(stalled) => Wire { stalled, ..iwarp(PortKind::Ring, 9000) },
        What::Gap(beyond) => Wire { gap: Some(beyond), ..iwarp(PortKind::Ring, 9000) },
        What::Command(..) | What::Processor(_) | What::Memory(..) => return None,
    })
}

/// Returns whether the engines measured over ports are the same program as the daemon.
fn ports_are_ours(daemon: &DaemonArgs) -> bool {
    daemon.daemon.is_none() && daemon.attach.is_empty()
}

/// Returns the arguments for 64 KiB WRITEs over a port by RoCE.
fn over(port: PortKind, duration: f64, daemon: &DaemonArgs) -> Wire {
    let cpus = daemon.cpus;
    let (size, qp, tx_depth, mtu) = (65536, 1, 128, None);
    Wire {
        port,
        size,
        iwarp: false,
        qp,
        stalled: 0,
        gap: None,
        apart: false,
        tx_depth,
        mtu,
        duration,
        cpus,
        account: false,
        json: true,
    }
}

/// Accounts for the time of a packet over memif, and over a veth if there can be one.
fn parts(args: &Report) -> Result<String> {
    let mut all = Vec::new();
    for port in [PortKind::Memif, PortKind::AfPacket, PortKind::AfXdp] {
        match on_its_own(|| wire::parts_apart(&over(port, args.duration, &args.daemon))) {
            Ok(parts) => all.push((port, parts)),
            Err(error) if is_missing(&error) => eprintln!("no account of {}: {error:#}", port.name()),
            Err(error) => return Err(error),
        }
    }
    Ok(wire::tables(&all))
}

/// Reports what WRITEs cost workers, and a model of more workers than there are processors.
fn workers(args: &Report) -> Result<()> {
    let text = match on_its_own(|| workers::tables(args.duration, args.daemon.cpus)) {
        Err(error) if is_missing(&error) => {
            eprintln!("no costs of workers: {error:#}");
            return Ok(());
        }
        tables => tables?,
    };
    println!("\n{text}");
    match &args.out {
        Some(dir) => document::put(dir, "workers", &format!("{}\n\n{text}", machine::describe())),
        None => Ok(()),
    }
}

/// Measures two engines over a port.
fn apart(name: &str, wire: &Wire, target: &str) -> Result<Shown> {
    let measured = wire::measure_apart(wire)?;
    let lines = wire::lines(name, &measured, target);
    Ok(Shown { lines, turns: Some(measured.turns), small_pages: false })
}

/// Text that is printed and also kept for a file.
#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, line: &str) {
        println!("{line}");
        self.0 += line;
        self.0.push('\n');
    }
}

/// Measures the standard set, and prints each row as soon as it is measured.
///
/// A row that this machine cannot measure says what is missing.
///
/// # Errors
/// No row matches, a measurement fails for another reason, or the files cannot be written.
pub fn report(args: &Report) -> Result<()> {
    let start = Instant::now();
    let mut text = Text::default();
    text.line(&machine::describe());
    text.line("");
    text.line(lines::HEAD);
    let (mut points, mut failed, mut small_pages) = (Vec::new(), Vec::new(), Vec::new());
    let had_huge_pages = machine::huge_pages() > 0;
    for row in picked(&args.only)? {
        match on_its_own(|| one(row, args.duration, &args.daemon)) {
            Ok(shown) => {
                shown.lines.iter().for_each(|line| text.line(line));
                small_pages.extend(shown.small_pages.then_some(row.name));
                points.extend(row.point.zip(shown.turns));
            }
            Err(error) => {
                text.line(&lines::left_out(row.name, &format!("{error:#}"), row.target));
                failed.extend((!is_missing(&error)).then_some(row.name));
            }
        }
    }
    text.line("");
    if had_huge_pages && !small_pages.is_empty() {
        text.line(&format!("In pages of 4 KiB, for want of huge ones: {}.", small_pages.join("; ")));
    }
    let (seconds, each) = (start.elapsed().as_secs_f64(), args.duration);
    text.line(&format!(
        "{seconds:.0} s, {each} s for each row; each row is a regime: windows between which a cache line took as long there and back."
    ));
    if let Some(dir) = &args.out {
        document::report(dir, &text.0, &points)?;
    }
    if args.only.is_empty() && ports_are_ours(&args.daemon) {
        workers(args)?;
        let parts = parts(args)?;
        println!("\n{parts}");
        if let Some(dir) = &args.out {
            document::put(dir, "wire", &format!("{}\n\n{parts}", machine::describe()))?;
        }
    }
    ensure!(failed.is_empty(), "these failed: {}", failed.join("; "));
    Ok(())
}

/// Measures the standard set through two daemons alternately. The ratio shows the difference of the
/// daemons, not of the machine.
///
/// # Errors
/// A measurement fails.
pub fn compare(args: &Compare) -> Result<()> {
    let daemon = |program: &PathBuf| {
        ensure!(program.is_file(), "{} is no program", program.display());
        // A bare name would be searched in PATH.
        let program = std::path::absolute(program)?;
        Ok(DaemonArgs { daemon: Some(program), cpus: args.cpus, poll_us: 200, ..DaemonArgs::default() })
    };
    let (first, second) = (daemon(&args.first)?, daemon(&args.second)?);
    println!("{}", lines::COMPARED);
    for row in picked(&args.only)? {
        // The other rows have the same commands beside another reference, or no windows.
        let What::Command(text, With::Limit | With::Command(_) | With::Apart(_)) = row.what else { continue };
        let measured = on_its_own(|| command(text, With::Limit, args.duration, &first, Some(&second)))?;
        lines::of(row.name, &measured, "").iter().for_each(|line| println!("{line}"));
    }
    Ok(())
}

/// Runs a measurement in another thread.
///
/// A measurement pins its thread. The processes that it starts (a daemon, the wire's process) would
/// inherit this one processor.
fn on_its_own<T: Send>(measure: impl FnOnce() -> T + Send) -> T {
    let result = std::thread::scope(|scope| scope.spawn(measure).join());
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, Figure};
    use crate::host::Transport;

    #[test]
    fn each_row_is_a_command_of_one_size() {
        for row in ROWS {
            let What::Command(own, with) = row.what else { continue };
            let beside = match with {
                With::Command(other) | With::Apart(other) => Some(other),
                With::Limit | With::Median | With::FloorTail | With::Ucx => None,
            };
            for command in [Some(own), beside].into_iter().flatten() {
                let (plan, args) = plan(command).unwrap();
                assert!(
                    matches!(with, With::Apart(_)) || plan.transport == Transport::Roce,
                    "the same guests"
                );
                assert!(!args.load.all && plan.depth >= plan.qps.min(128) || args.figure == Figure::Lat);
            }
        }
    }

    #[test]
    fn each_row_over_a_port_is_a_command() {
        let daemon = DaemonArgs { cpus: (0, 1), ..DaemonArgs::default() };
        let rows = || ROWS.iter().filter_map(|row| wire_of(row.what, 0.5, &daemon));
        let accounts = [PortKind::Memif, PortKind::AfPacket]
            .map(|port| Wire { account: true, ..over(port, 0.5, &daemon) });
        for wire in rows().chain(accounts) {
            let words = wire::words(&wire);
            let cli = Cli::try_parse_from(["vrdma-perf".to_owned()].into_iter().chain(words)).unwrap();
            let Command::Wire(parsed) = cli.command else { panic!("{:?}", cli.command) };
            assert_eq!(parsed, wire);
        }
        assert!(rows().any(|wire| wire.apart) && rows().any(|wire| wire.gap.is_some()));
    }

    #[test]
    fn two_daemons_sleep_after_the_same_time() {
        let ours = DaemonArgs { poll_us: 200, ..DaemonArgs::default() };
        let after = |poll_us| {
            let (first, second) = daemons(poll_us, &ours, Some(&ours));
            (first.poll_us, second.map(|second| second.poll_us))
        };
        assert_eq!(after(Some(0)), (0, Some(0)));
        assert_eq!(after(None), (200, Some(200)));
        assert!(daemons(Some(0), &ours, None).1.is_none());
    }

    #[test]
    fn rows_have_names_of_their_own() {
        let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
    }

    #[test]
    fn rows_are_picked_by_their_names() {
        assert_eq!(picked("").unwrap().len(), ROWS.len());
        assert_eq!(picked("FETCH_ADD").unwrap().len(), 1);
        assert!(picked("nothing").is_err());
    }
}
