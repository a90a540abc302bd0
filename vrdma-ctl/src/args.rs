//! The command line.

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::path::PathBuf;
use std::time::Duration;

/// Shows and changes a running vrdma daemon.
///
/// Exit status: 0 if the command succeeded, 1 if it failed, 2 for a wrong command line, 3 if no
/// daemon could be reached, 4 if the time of `drain` was over.
#[derive(Debug, Parser)]
#[command(name = "vrdma-ctl", version, max_term_width = 100)]
pub struct Args {
    /// The daemon's socket [default: /run/vrdma/observe or /run/vrdma/admin, as the command needs]
    #[arg(short, long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Print JSON, as the daemon sends it
    #[arg(short, long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the guests
    List,
    /// Show a guest, its queue pairs and memory regions, workers or ports
    Show {
        /// What to show.
        #[command(subcommand)]
        what: What,
    },
    /// Print all counters, or those that begin with a name
    Stats(StatsArgs),
    /// Show guests, queue pairs, workers and ports, and refresh the screen
    Top {
        /// Seconds between two looks
        #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
        interval: Duration,
    },
    /// Print the least important level that is logged, or set it until the daemon ends
    Log {
        /// The level to set
        level: Option<LogLevel>,
    },
    /// Follow a queue pair: print what changes, until it ends
    Trace {
        /// Name of the guest
        guest: String,
        /// Number of the queue pair, decimal or as 0x...
        #[arg(value_parser = number)]
        qpn: u32,
        /// Seconds between two looks
        #[arg(short, long, value_name = "SECONDS", default_value = "0.2", value_parser = seconds)]
        interval: Duration,
    },
    /// Write what guests send and receive to a file or a program, in the format pcapng
    ///
    /// Messages between guests of one host are shown as the packets that they would have been. It
    /// ends with Ctrl-C. How much was captured is on standard error.
    Capture(CaptureArgs),
    /// Add, change or remove a guest while the daemon runs
    Guest {
        /// What to do with it.
        #[command(subcommand)]
        change: GuestChange,
    },
    /// Have the daemon read its configuration file again, and do what was changed in it
    ///
    /// If anything in the file is wrong, nothing is changed.
    Reload,
    /// Let no new front-ends, queue pairs and iWARP connections in, and wait until no guest has
    /// sends that have not ended
    ///
    /// Exit status 4: the time was over before that. The daemon lets nothing in until `resume`,
    /// whatever the status.
    Drain {
        /// Seconds to wait [default: for ever]
        #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
        timeout: Option<Duration>,
    },
    /// Let in again what `drain` keeps out
    Resume,
    /// Write the daemon's configuration to a file, with what was changed while it runs
    SaveConfig {
        /// The file, which is replaced as a whole [default: standard output]
        file: Option<PathBuf>,
    },
    /// Print the versions of this program and of the daemon
    Version,
    /// Print what a package of this program needs beside it
    Generate {
        /// What to print.
        #[command(subcommand)]
        what: Generated,
    },
}

/// What is done with a guest.
#[derive(Debug, Subcommand)]
pub enum GuestChange {
    /// Add a guest, with keys as the daemon's option --guest takes them
    Add {
        /// name=NAME,mac=MAC,socket=PATH and other keys of a guest, in one word or several
        #[arg(required = true, value_name = "KEY=VALUE,...")]
        keys: Vec<String>,
    },
    /// Change keys of a guest: weight, tx_bytes, rx_bytes, tx_messages, rx_messages, burst_ms, dscp
    /// or pcp
    Set {
        /// Name of the guest
        name: String,
        /// The keys, in one word or several
        #[arg(required = true, value_name = "KEY=VALUE,...")]
        keys: Vec<String>,
    },
    /// Remove a guest that has no front-end
    Remove {
        /// Name of the guest
        name: String,
        /// Remove it although a front-end is connected. The VM loses the devices, and goes on
        #[arg(short, long)]
        force: bool,
    },
}

/// What is generated.
#[derive(Debug, Subcommand)]
pub enum Generated {
    /// Completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// A man page, or all of them
    Man {
        /// The command that it is about [default: the program as a whole]
        command: Option<String>,
        /// Write all man pages as files into this directory
        #[arg(long, value_name = "DIRECTORY", conflicts_with = "command")]
        all: Option<PathBuf>,
    },
}

/// What is shown.
#[derive(Debug, Subcommand)]
pub enum What {
    /// A guest: its functions, keys and counters
    Guest {
        /// Name of the guest
        name: String,
    },
    /// The queue pairs of a guest, or one of them with its last errors
    Qp {
        /// Name of the guest
        guest: String,
        /// Number of the queue pair, decimal or as 0x...
        #[arg(value_parser = number)]
        qpn: Option<u32>,
    },
    /// The memory regions of a guest
    Mr {
        /// Name of the guest
        guest: String,
    },
    /// The workers, or one of them
    Worker {
        /// Number of the worker
        number: Option<u64>,
    },
    /// The ports of the switch, or one of them with its counters
    Port {
        /// Name of the guest, or `uplink`
        name: Option<String>,
    },
}

/// Which counters to print.
#[derive(Debug, clap::Args)]
pub struct StatsArgs {
    /// Print what changes, as rates a second, each time after so many seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub watch: Option<Duration>,
    /// End after so many lists
    #[arg(short = 'n', long, value_name = "N", requires = "watch")]
    pub count: Option<u64>,
    /// Beginnings of names, like guests.vm1.transport
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}

/// What to capture, and where to.
#[derive(Debug, clap::Args)]
pub struct CaptureArgs {
    /// Only what this guest sends or receives
    #[arg(short, long, value_name = "NAME")]
    pub guest: Option<String>,
    /// Only what queue pairs of this number send or receive. Decimal or as 0x...
    #[arg(short, long, value_name = "QPN", value_parser = number)]
    pub qpn: Option<u32>,
    /// Only what has this IP address or GID as its source or destination
    #[arg(short, long, value_name = "ADDRESS")]
    pub peer: Option<String>,
    /// Write at most so many bytes of a packet [default: all]
    #[arg(long, value_name = "BYTES")]
    pub snap: Option<u32>,
    /// End after so many packets
    #[arg(short, long, value_name = "PACKETS")]
    pub count: Option<u64>,
    /// End after so many seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub time: Option<Duration>,
    /// The file or pipe; `-` is standard output. A file that exists is replaced when the capture
    /// begins [default: -]
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

/// A level of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// What ends the daemon, or a part of it
    Error,
    /// What an operator should look at
    Warn,
    /// What happens
    Info,
    /// What a developer asks for
    Debug,
    /// Everything
    Trace,
}

/// Parses a time in seconds, of a tenth to a day.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=86400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "give seconds from 0.1 to 86400, like 1 or 0.5".into())
}

/// Parses a number, decimal or hexadecimal.
fn number(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "give a number, like 17 or 0x11".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_manual_has_all_commands_and_options() {
        let manual = include_str!("../../docs/vrdma-ctl.md");
        let program = Args::command();
        for command in program.get_subcommands() {
            let name = command.get_name();
            assert!(manual.contains(&format!("`{name}")), "{name} is missing");
            for inner in command.get_subcommands() {
                assert!(
                    manual.contains(&format!("`{name} {}", inner.get_name())),
                    "{name} {inner} is missing"
                );
                for argument in inner.get_arguments().filter(|argument| !argument.is_positional()) {
                    let long = argument.get_long().filter(|_| !argument.is_global_set());
                    assert!(
                        long.is_none_or(|long| manual.contains(&format!("--{long}"))),
                        "{name} {} {argument} is missing",
                        inner.get_name()
                    );
                }
            }
            for argument in command.get_arguments().filter(|argument| !argument.is_global_set()) {
                let (short, long) = (argument.get_short(), argument.get_long());
                let is_there = |text: String| manual.contains(&text);
                let is_told = short.is_some_and(|short| is_there(format!("-{short} ")))
                    || long.is_some_and(|long| is_there(format!("--{long}")));
                assert!(argument.is_positional() || is_told, "{name} {argument} is missing");
            }
        }
        for argument in program.get_arguments() {
            let long = argument.get_long().unwrap();
            assert!(manual.contains(&format!("--{long}")), "--{long} is missing");
        }
    }

    #[test]
    fn times_and_numbers_are_checked() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "x", "nan", "inf", "100000"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!((number("17"), number("0x11")), (Ok(17), Ok(17)));
        assert!(number("1x").is_err() && number("-1").is_err() && number("0x").is_err());
    }

    #[test]
    fn a_mistyped_command_gets_the_nearest_one() {
        for (line, said) in [
            ("lst", "'list'"),
            ("show gest x", "'guest'"),
            ("log debgu", "'debug'"),
            ("guest ad name=a", "'add'"),
            ("guest remove a --forc", "'--force'"),
            ("relaod", "'reload'"),
            ("list --jsn", "'--json'"),
        ] {
            let words = std::iter::once("vrdma-ctl").chain(line.split(' '));
            let error = Args::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}
