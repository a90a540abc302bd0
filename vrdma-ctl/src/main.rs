//! `vrdma-ctl`: shows and changes a running daemon.
//!
//! * `args.rs` is the command line. `connection.rs` finds the daemon's socket.
//! * `sheet.rs` has tables of cells that can be sorted. `sheets.rs` makes those of guests, queue
//!   pairs, regions, workers and ports. `print.rs` prints them, as a table or as JSON.
//! * `list.rs` and `show.rs` are the commands that look, and `trace.rs` follows a queue pair.
//! * `log.rs` is the log level, `drain.rs` keeps newcomers out, `save.rs` writes the configuration.
//! * `capture.rs` captures what guests send and receive.
//! * `guest.rs` adds, changes and removes guests, and has the configuration read again.
//! * `counters.rs` flattens counters, and `stats.rs` prints them and their rates. `latency.rs` says
//!   how long requests took.
//! * `top/` is the screen that refreshes itself: `state.rs` what it shows, `screen.rs` how it is
//!   drawn, `mod.rs` the loop.
//! * `generate.rs` writes completions and man pages.
#![forbid(unsafe_code)]

mod args;
mod capture;
mod connection;
mod counters;
mod drain;
mod generate;
mod guest;
mod latency;
mod list;
mod log;
mod print;
mod save;
mod sheet;
mod sheets;
mod show;
mod stats;
mod top;
mod trace;

use args::{Args, Command, Generated};
use clap::Parser;
use connection::Connection;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use vrdma_admin::ClientError;

/// The daemon refused the command, or something else failed.
const FAILED: u8 = 1;
// clap ends the program with 2 for a wrong command line.
/// No daemon could be reached.
const NO_DAEMON: u8 = 3;
/// What helps if no daemon listens.
const NO_SOCKET: &str = "Start it (systemctl start vrdma-backend), or name its socket: --socket PATH";
/// The time was over before the guests were idle.
const BUSY: u8 = 4;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A reader that has enough (`vrdma-ctl list | head`) is no failure.
            if is_closed_output(&error) {
                return ExitCode::SUCCESS;
            }
            let _ = writeln!(std::io::stderr(), "vrdma-ctl: {error:#}");
            if let Some(ClientError::Connect { error, .. }) = error.downcast_ref()
                && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
            {
                let _ = writeln!(std::io::stderr(), "{NO_SOCKET}");
            }
            let no_daemon = matches!(error.downcast_ref(), Some(ClientError::Connect { .. }));
            let is_busy = error.is::<drain::Busy>();
            ExitCode::from(match () {
                () if no_daemon => NO_DAEMON,
                () if is_busy => BUSY,
                () => FAILED,
            })
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let connection = Connection::new(args.socket.as_deref());
    match &args.command {
        Command::List => list::list(&connection, args.json),
        Command::Show { what } => show::show(&connection, args.json, what),
        Command::Stats(stats) => stats::stats(&connection, args.json, stats),
        Command::Top { interval } => top::run(&connection, *interval),
        Command::Log { level } => log::log(&connection, args.json, *level),
        Command::Trace { guest, qpn, interval } => {
            trace::trace(&connection, args.json, (guest, *qpn), *interval)
        }
        Command::Capture(what) => capture::capture(&connection, args.json, what),
        Command::Drain { timeout } => drain::drain(&connection, args.json, *timeout),
        Command::Guest { change } => guest::guest(&connection, args.json, change),
        Command::Reload => guest::reload(&connection, args.json),
        Command::Resume => drain::resume(&connection, args.json),
        Command::SaveConfig { file } => save::save(&connection, file.as_deref()),
        Command::Version => list::version(&connection, args.json),
        Command::Generate { what: Generated::Completions { shell } } => generate::completions(*shell),
        Command::Generate { what: Generated::Man { all: Some(directory), .. } } => {
            generate::all_pages(directory)
        }
        Command::Generate { what: Generated::Man { command, all: None } } => {
            generate::man(command.as_deref())
        }
    }
}

fn is_closed_output(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<std::io::Error>();
    cause.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
