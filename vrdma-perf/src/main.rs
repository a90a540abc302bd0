//! RDMA between guests at the speed of this machine, without a VM: perftest's figures, each beside
//! the limit that was measured in turns with it.
//!
//! It plays the guests itself ([`vrdma_guest`]): a vhost-user front-end with the driver that guests
//! have. The daemon is a process of its own, as guests have it. Each file uses only those above it:
//!
//! | file | question |
//! |---|---|
//! | `words`, `args` | what is asked for? |
//! | `missing`, `machine` | what has this machine not got, and what is it? |
//! | `stats`, `load` | what is said of many measurements; the loops that measure, whatever they drive |
//! | `helper`, `line`, `copies`, `copying`, `floor`, `bells`, `ucx` | what can the machine do: a second thread, round trips of a cache line, copies, a ring without checks, two eventfds; what do others do? |
//! | `turns` | how are two things compared on a machine that changes? |
//! | `daemon`, `host` | which daemon, which guests? |
//! | `plan`, `process`, `keys`, `flow` | what is posted: checked; from and to which processes, with which keys; by which requests |
//! | `windows`, `beside` | in which pieces of time is it measured, and beside what? |
//! | `measure`, `limits`, `idle` | what came out; what do connections take that do nothing? |
//! | `table`, `lines`, `plot` | how is it shown: to people, in Markdown, as a curve? |
//! | `wire`, `near` | two engines over a port, and those of two workers |
//! | `rows`, `document`, `report`, `account` | the standard set; what the worker's time goes to |

mod account;
mod args;
mod bells;
mod beside;
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
mod machine;
mod measure;
mod missing;
mod near;
mod plan;
mod plot;
mod process;
mod report;
mod rows;
mod stats;
mod table;
mod turns;
mod ucx;
mod windows;
mod wire;
mod words;

use anyhow::{Result, bail, ensure};
use args::{Cli, Command, Figure, Measure};
use clap::Parser;
use missing::{LACKS, is_missing};
use plan::Operation;
use plot::{Drawing, Series};
use std::process::ExitCode;
use vrdma_backend::allocator::Allocator;
use vrdma_guest::threads::may_run_on;

/// As the daemon has it, which this program may be.
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
    // Threads that were pinned nowhere would be measured as if they were.
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
        Command::Near(args) => {
            println!("{}", near::measure(&args)?);
            Ok(())
        }
        Command::Report(args) if args.account => account::report(&args),
        Command::Report(args) => report::report(&args),
        Command::Compare(args) => report::compare(&args),
        Command::Daemon(args) => daemon::run(&args),
    }
}

/// What was measured of each size, beside its limit, in the regime that most windows had.
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
