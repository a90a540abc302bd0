//! RDMA between guests at the speed of this machine, without a VM: perftest's figures, each beside the limit that was measured in turns with it.
//!
//! It plays the guests itself ([`vrdma_guest`]): a vhost-user front-end with the driver that guests have. The daemon is a process of its own, as guests have
//! it. Each file uses only those above it:
//!
//! | file | question |
//! |---|---|
//! | `args` | what is asked for? |
//! | `stats`, `load` | what is said of many measurements; the loops that measure, whatever they drive |
//! | `helper`, `line`, `copies`, `copying`, `floor` | what can the machine do: a second thread, round trips of a cache line, copies, a ring without checks |
//! | `turns` | how are two things compared on a machine that changes? |
//! | `daemon`, `host` | which daemon, which guests? |
//! | `plan`, `process`, `flow` | what is posted: checked; from and to which processes; by which requests |
//! | `measure`, `limits` | what came out? |
//! | `table`, `report` | how is it shown; the standard set |

mod args;
mod copies;
mod copying;
mod daemon;
mod floor;
mod flow;
mod helper;
mod host;
mod limits;
mod line;
mod load;
mod measure;
mod plan;
mod process;
mod report;
mod stats;
mod table;
mod turns;

use anyhow::{Result, ensure};
use args::{Cli, Command, Measure};
use clap::Parser;
use plan::Operation;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vrdma-perf: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    if !matches!(command, Command::Daemon(_)) {
        let there = std::thread::available_parallelism().map_or(1, |n| n.get());
        ensure!(there >= 2, "we and the daemon's worker need a processor each: there is {there}");
    }
    if let Some((operation, args)) = Operation::of(&command) {
        return measure(operation, args);
    }
    match command {
        Command::Write(_) | Command::Read(_) | Command::Send(_) | Command::Atomic(_) => {
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
        Command::Report(args) => report::report(&args),
        Command::Compare(args) => report::compare(&args),
        Command::Daemon(args) => daemon::run(&args),
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
    if args.run.json {
        println!("{}", serde_json::to_string_pretty(&all)?);
    }
    Ok(())
}
