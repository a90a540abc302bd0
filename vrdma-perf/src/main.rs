//! Measures RDMA between guests at the speed of this machine, without a VM. Each of perftest's
//! figures stands beside its limit, measured alternately with it.
//!
//! This program plays the guests itself ([`vrdma_guest`]): a vhost-user front-end with the driver
//! that guests have. The daemon is a separate process, as with real guests. Each file uses only
//! those above it:
//!
//! | file | question |
//! |---|---|
//! | `args` | what is asked for? |
//! | `missing`, `machine`, `network` | what does this machine lack, and what is it; a veth |
//! | `stats`, `load` | how are many measurements summed up; the measuring loops for any load |
//! | `helper`, `line`, `copies`, `copying`, `floor`, `bells`, `ucx` | what can the machine do: a second thread, round trips of a cache line, copies, a ring without checks, two eventfds; what does UCX do? |
//! | `turns` | how are two things compared on a machine that changes? |
//! | `daemon`, `host` | which daemon, which guests? |
//! | `plan`, `process`, `keys`, `flow` | what is posted, and is it valid; from and to which processes, with which keys; by which requests |
//! | `windows`, `beside` | in which windows of time is it measured, and beside what? |
//! | `measure`, `limits`, `idle` | what are the results; what do idle connections cost? |
//! | `table`, `lines`, `plot` | how is it shown: to people, in Markdown, as a curve? |
//! | `wire`, `workers`, `loss` | two engines over a port; the engines of two workers; two daemons on a lossy link |
//! | `rows`, `document`, `report`, `account` | the standard set; where does the worker's time go? |

mod account;
mod args;
mod bells;
mod copies;
mod copying;
mod daemon;
mod document;
mod floor;
mod flow;
mod helper;
mod host;
mod idle;
mod keys;
mod limits;
mod line;
mod lines;
mod load;
mod loss;
mod machine;
mod measure;
mod missing;
mod network;
mod plan;
mod plot;
mod process;
mod reference;
mod report;
mod rows;
mod stats;
mod table;
mod turns;
mod ucx;
mod windows;
mod wire;
mod workers;

use anyhow::{Result, bail, ensure};
use args::{Cli, Command, Figure, Measure};
use clap::Parser;
use missing::{LACKS, is_missing};
use plan::Operation;
use plot::{Drawing, Series};
use std::process::ExitCode;
use vrdma_backend::allocator::Allocator;
use vrdma_guest::threads::may_run_on;

/// The allocator of the daemon, because this program may run as the daemon.
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vrdma-perf: {error:#}");
            if is_missing(&error) { ExitCode::from(LACKS) } else { ExitCode::FAILURE }
        }
    }
}

fn run(command: Command) -> Result<()> {
    if !matches!(command, Command::Daemon(_)) {
        let there = std::thread::available_parallelism().map_or(1, |n| n.get());
        ensure!(there >= 2, "we and the daemon's worker need a processor each: there is {there}");
    }
    // Threads that cannot be pinned would give misleading figures.
    if let Some(cpu) = command.cpus().into_iter().flat_map(<[usize; 2]>::from).find(|cpu| !may_run_on(*cpu)) {
        bail!("processor {cpu} is none that we may run on: --cpus says on which");
    }
    if let Some((operation, args)) = Operation::of(&command) {
        return measure(operation, args);
    }
    match command {
        Command::Write(_) | Command::Read(_) | Command::Send(_) | Command::Atomic(_) | Command::Bind(_) => {
            unreachable!("they are operations")
        }
        Command::Limits(args) => {
            let limits = limits::measure(&args)?;
            println!(
                "{}",
                if args.json { serde_json::to_string_pretty(&limits)? } else { limits::table(&limits) }
            );
            Ok(())
        }
        Command::Wire(args) if args.account => {
            let parts = wire::parts(&args)?;
            println!(
                "{}",
                if args.json {
                    serde_json::to_string_pretty(&parts)?
                } else {
                    wire::tables(&[(args.port, parts)])
                }
            );
            Ok(())
        }
        Command::Wire(args) => {
            let measured = wire::measure(&args)?;
            let text =
                if args.json { serde_json::to_string_pretty(&measured)? } else { wire::describe(&measured) };
            println!("{text}");
            Ok(())
        }
        Command::Workers(args) => {
            println!("{}", workers::measure(&args)?);
            Ok(())
        }
        Command::Report(args) if args.account => account::report(&args),
        Command::Report(args) => report::report(&args),
        Command::Compare(args) => report::compare(&args),
        Command::Loss(args) => loss::report(&args),
        Command::Daemon(args) => daemon::run(&args),
    }
}

/// Draws the results of each size beside their limits, in the regime with the most windows.
fn sweep(all: &[measure::Measured], figure: Figure) -> Drawing {
    let unit = lines::Unit::of(figure);
    let name = all.first().map_or("", |measured| measured.operation);
    let limit = |measured: &measure::Measured| Some(measured.turns.as_ref()?.regimes.first()?.limit.median);
    let own = |measured: &measure::Measured| match (measured.rate, &measured.latency_us) {
        (Some(rate), _) if figure == Figure::Bw => Some(rate.median * f64::from(measured.size)),
        (Some(rate), _) => Some(rate.median),
        (None, latency) => latency.as_ref().map(|latency| latency.typical),
    };
    let series = |name: &str, value: &dyn Fn(&measure::Measured) -> Option<f64>| {
        let point = |one: &measure::Measured| Some((f64::from(one.size), value(one)? * unit.factor));
        Series { name: name.to_owned(), points: all.iter().filter_map(point).collect() }
    };
    let mut all_series = vec![series("measured", &own), series("limit, in turns with it", &limit)];
    // Without limits there is one curve.
    all_series.retain(|series| !series.points.is_empty());
    Drawing {
        title: format!("{name} by size"),
        along: "bytes of a message".to_owned(),
        up: unit.name.to_owned(),
        powers: true,
        series: all_series,
    }
}

fn measure(operation: Operation, args: &Measure) -> Result<()> {
    let mut all = Vec::new();
    measure::all(operation, args, |plan, measured| {
        if !args.run.json {
            if all.is_empty() {
                println!("{}", table::header(plan, args.figure));
            }
            println!("{}", table::rows(&measured));
        }
        all.push(measured);
        Ok(())
    })?;
    if let Some(file) = &args.run.plot {
        plot::write(&sweep(&all, args.figure), file)?;
    }
    if args.run.json {
        println!("{}", serde_json::to_string_pretty(&all)?);
    }
    Ok(())
}
