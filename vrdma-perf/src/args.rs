//! The command line. Options that perftest has too have its letters.

use crate::words::{processors, seconds};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// RDMA between guests at the speed of this machine, without a VM.
///
/// It plays the guests itself: through the daemon's real sockets, the real rings in memory that
/// both map, and the driver that guests have. One thread posts and polls for all guests on one
/// processor, the daemon's worker has another. Beside each figure stands the limit that was
/// measured in turns with it: the ring floor (a bare virtqueue and CQ ring between the same two
/// processors, with no check at all), or the best plain copy.
#[derive(Debug, Parser)]
#[command(name = "vrdma-perf", version)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// RDMA WRITE
    Write(Measure),
    /// RDMA READ
    Read(Measure),
    /// SEND into a receive
    Send(Measure),
    /// Compare-and-swap, fetch-and-add, or ATOMIC WRITE of 8 bytes
    Atomic(Measure),
    /// BIND_MW and LOCAL_INV of memory windows, in turn
    Bind(Measure),
    /// WRITE between two engines over a port that needs no NIC
    Wire(Wire),
    /// WRITE between guests of two workers, beside two guests of one
    Near(Near),
    /// What this machine can do at best
    Limits(Limits),
    /// The standard set, each figure beside its limit, as a table in Markdown
    Report(Report),
    /// The standard set through two daemons in turns: the ratios of the first to the second
    Compare(Compare),
    /// Is a daemon, for the other commands
    #[command(hide = true)]
    Daemon(vrdma_backend::config::Args),
}

impl Command {
    /// The processors that it wants, ours first.
    pub fn cpus(&self) -> Option<(usize, usize)> {
        match self {
            Command::Write(args)
            | Command::Read(args)
            | Command::Send(args)
            | Command::Atomic(args)
            | Command::Bind(args) => Some(args.daemon.cpus),
            Command::Wire(args) => Some(args.cpus),
            Command::Near(args) => Some(args.cpus),
            Command::Limits(args) => Some(args.cpus),
            Command::Report(args) => Some(args.daemon.cpus),
            Command::Compare(args) => Some(args.cpus),
            Command::Daemon(_) => None,
        }
    }
}

/// What of an operation is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Figure {
    /// Time from the post of an operation until it has ended, one after the other
    Lat,
    /// Bytes a second
    Bw,
    /// Operations a second
    Rate,
}

/// Service of the QPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[value(rename_all = "UPPER")]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs, reason = "each is the service of that name")]
pub enum Connection {
    Rc,
    Uc,
    Ud,
    Xrc,
}

/// Which atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Atomic {
    /// FETCH_ADD
    FetchAndAdd,
    /// CMP_SWAP
    CmpAndSwap,
    /// ATOMIC WRITE
    Write,
}

/// Type of a memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WindowType {
    /// Type 1
    #[value(name = "1")]
    Type1,
    /// Type 2B
    #[value(name = "2B")]
    Type2b,
}

/// One measurement, or one for each size.
#[derive(Clone, Debug, Args)]
pub struct Measure {
    /// What is measured
    #[arg(value_enum)]
    pub figure: Figure,
    /// How
    #[command(flatten)]
    pub load: LoadArgs,
    /// How long
    #[command(flatten)]
    pub run: Run,
    /// With which daemon
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

/// What is posted.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// Bytes of a message [default: 8 for lat and rate, 65536 for bw]
    #[arg(short, long)]
    pub size: Option<u32>,
    /// All sizes from 2 bytes to 8 MiB (UD: to 4096 bytes)
    #[arg(short, long, conflicts_with = "size")]
    pub all: bool,
    /// QPs of each guest that sends to another; requests go to them in a random order
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub qp: u32,
    /// Requests outstanding in each direction, on all QPs together (lat: one)
    #[arg(short = 't', long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub tx_depth: u32,
    /// WRITEs and SENDs of up to so many bytes travel in their requests
    #[arg(short = 'I', long, default_value_t = 0, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(..=220))]
    pub inline_size: u32,
    /// Sleep until an event tells of completions, instead of polling
    #[arg(short, long)]
    pub events: bool,
    /// Both ways at once (not for lat)
    #[arg(short, long)]
    pub bidirectional: bool,
    /// Service
    #[arg(short, long, value_enum, ignore_case = true, default_value = "RC")]
    pub connection: Connection,
    /// Guests have iWARP functions over our own TCP, and their QPs are connected as programs with
    /// rdma_cm do: two guests of one worker go without TCP. Services are RC alone, and there is no
    /// ATOMIC WRITE. The completion of a WRITE or SEND says that it was taken, not that it arrived:
    /// for a way there and back take READ, for what has arrived SEND or --imm
    #[arg(long)]
    pub iwarp: bool,
    /// The guests' TCP is the host's instead, over lo
    #[arg(long, requires = "iwarp", conflicts_with = "attach")]
    pub kernel_tcp: bool,
    /// Which atomic operation [default: FETCH_AND_ADD]
    #[arg(short = 'A', long = "atomic", value_enum, ignore_case = true, value_name = "TYPE")]
    pub atomic: Option<Atomic>,
    /// Guests: one sends to itself, of two the first to the second, of more each to the next
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub guests: u8,
    /// Receives come from a shared queue
    #[arg(long)]
    pub srq: bool,
    /// Messages lie one behind the other in 256 MiB, instead of all in the same place
    #[arg(long, conflicts_with = "hot")]
    pub cold: bool,
    /// All messages in the same place (as without --cold)
    #[arg(long)]
    pub hot: bool,
    /// One request in so many has a completion (lat: each)
    #[arg(short = 'Q', long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cq_mod: u32,
    /// WRITEs have immediate data, and so take receives
    #[arg(long)]
    pub imm: bool,
    /// WRITEs, READs and atomics name a memory window of this type
    #[arg(long, value_enum, ignore_case = true, value_name = "TYPE")]
    pub window: Option<WindowType>,
    /// WRITEs, READs and atomics name so many regions of the receiver, one after the other in a
    /// random order
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=120_000))]
    pub regions: u32,
    /// So many further QPs are connected, and do nothing
    #[arg(long, default_value_t = 0, value_name = "QPS", value_parser = clap::value_parser!(u32).range(..=65536))]
    pub idle: u32,
    /// Microseconds between two operations whose latency is measured (with --poll-us 0, the worker
    /// goes to sleep in them)
    #[arg(long, default_value_t = 0, value_name = "US", value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub pause: u32,
}

/// How long it takes, and what comes out.
#[derive(Clone, Debug, Args)]
pub struct Run {
    /// Operations, instead of a duration
    #[arg(short = 'n', long, conflicts_with = "duration", value_parser = clap::value_parser!(u32).range(1..))]
    pub iters: Option<u32>,
    /// Seconds for each size, for the measurement and its limit together
    #[arg(short = 'D', long, default_value_t = 1.0, value_parser = seconds)]
    pub duration: f64,
    /// Do not measure the limit
    #[arg(long)]
    pub no_limits: bool,
    /// JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Draw it by size, beside its limit
    #[arg(long, value_name = "FILE.svg", requires = "all")]
    pub plot: Option<PathBuf>,
}

/// Which daemon, and where it and we run.
#[derive(Clone, Debug, Default, Args)]
pub struct DaemonArgs {
    /// Socket of a guest of a daemon that runs, once for each guest; --cpus has to name its
    /// worker's processor [default: a daemon of our own]
    #[arg(long, value_name = "SOCKET", action = ArgAction::Append)]
    pub attach: Vec<PathBuf>,
    /// Another program as our daemon: a vrdma-backend of another version
    #[arg(long, value_name = "PROGRAM", conflicts_with = "attach")]
    pub daemon: Option<PathBuf>,
    /// Microseconds without work after which the worker of our daemon sleeps
    #[arg(long, default_value_t = 200, value_name = "US", conflicts_with = "attach")]
    pub poll_us: u64,
    /// Processors of our thread, and of the worker and the limits
    #[arg(long, default_value = "0,1", value_name = "OURS,WORKER'S", value_parser = processors)]
    pub cpus: (usize, usize),
}

/// A port that needs no NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PortKind {
    /// Shared memory between two ports
    Memif,
    /// A queue of DPDK that brings back what is sent
    Ring,
    /// Packet sockets of our driver (net_packet) at both ends of a veth
    Packet,
    /// Packet sockets of DPDK's driver at both ends of a veth
    #[value(name = "af_packet")]
    AfPacket,
    /// XDP sockets at both ends of a veth
    #[value(name = "af_xdp")]
    AfXdp,
}

impl PortKind {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            PortKind::Memif => "memif",
            PortKind::Ring => "ring",
            PortKind::Packet => "packet",
            PortKind::AfPacket => "af_packet",
            PortKind::AfXdp => "af_xdp",
        }
    }

    /// Whether its driver moves frames in memory, without the kernel.
    pub fn is_memory(self) -> bool {
        matches!(self, PortKind::Memif | PortKind::Ring)
    }
}

/// `vrdma-perf wire`.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct Wire {
    /// Over what
    #[arg(value_enum)]
    pub port: PortKind,
    /// Bytes of a message
    #[arg(short, long, default_value_t = 65536, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub size: u32,
    /// iWARP over our own TCP, beside RoCE, or over a veth beside full frames; several connections
    /// beside one
    #[arg(long)]
    pub iwarp: bool,
    /// Connections
    #[arg(short, long, default_value_t = 1, requires = "iwarp", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub qp: u32,
    /// Further connections whose peers take nothing, so that their windows are closed: with these
    /// beside without them
    #[arg(long, default_value_t = 0, requires = "iwarp", value_parser = clap::value_parser!(u32).range(..=2048))]
    pub stalled: u32,
    /// The time from the repair of a hole, beyond which so many frames came, to the last WRITE:
    /// where FPDUs are placed as they come, beside where they wait
    #[arg(long, value_name = "FRAMES", requires = "iwarp", conflicts_with_all = ["size", "qp", "stalled", "tx_depth"], value_parser = clap::value_parser!(u32).range(1..=100))]
    pub hole: Option<u32>,
    /// Each host has a thread and a processor of its own
    #[arg(long, requires = "iwarp", conflicts_with_all = ["stalled", "hole"])]
    pub apart: bool,
    /// Requests outstanding on each
    #[arg(short = 't', long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=128))]
    pub tx_depth: u32,
    /// MTU of the link [default: what suits RoCE]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1500..=9600))]
    pub mtu: Option<u16>,
    /// Seconds
    #[arg(short = 'D', long, default_value_t = 2.0, value_parser = seconds)]
    pub duration: f64,
    /// Processors of the helper, and of the thread that has engines and ports
    #[arg(long, default_value = "0,1", value_name = "OTHER,OURS", value_parser = processors)]
    pub cpus: (usize, usize),
    /// What the time of a packet goes to instead, of messages of 64 bytes and of 64 KiB, and what
    /// follows from it for a NIC of 100 Gb/s
    #[arg(long, conflicts_with = "iwarp")]
    pub account: bool,
    /// JSON instead of a line
    #[arg(long)]
    pub json: bool,
}

/// `vrdma-perf near`.
#[derive(Clone, Debug, Args)]
pub struct Near {
    /// What is measured
    #[arg(value_enum)]
    pub figure: Figure,
    /// Bytes of a message [default: 8 for lat and rate, 65536 for bw]
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub size: Option<u32>,
    /// As frames, as what goes to multicast groups does
    #[arg(long)]
    pub frames: bool,
    /// Two workers with a pair of guests each instead, beside one of them alone: what they take
    /// from each other
    #[arg(long, conflicts_with = "frames")]
    pub pairs: bool,
    /// Both workers' turns in one thread: what they do, without the way of cache lines between
    /// processors
    #[arg(long, conflicts_with = "pairs")]
    pub one_thread: bool,
    /// What the stages of a WRITE take instead, in one thread: for lat
    #[arg(long, requires = "one_thread")]
    pub account: bool,
    /// Cycles of WRITEs of 8 B and 64 KiB instead, within a worker and between two, and a model of
    /// more workers
    #[arg(long, conflicts_with_all = ["pairs", "one_thread", "frames", "size"])]
    pub model: bool,
    /// Seconds
    #[arg(short = 'D', long, default_value_t = 2.0, value_parser = seconds)]
    pub duration: f64,
    /// Processors of the worker that sends, and plays its driver, and of the other
    #[arg(long, default_value = "0,1", value_name = "SENDER'S,OTHER", value_parser = processors)]
    pub cpus: (usize, usize),
}

/// `vrdma-perf limits`.
#[derive(Clone, Debug, Args)]
pub struct Limits {
    /// Sizes [default: 8, 4096, 65536, 1048576]
    #[arg(short, long, action = ArgAction::Append)]
    pub size: Vec<u32>,
    /// Processors of our thread, and of the other
    #[arg(long, default_value = "0,1", value_name = "OURS,OTHER", value_parser = processors)]
    pub cpus: (usize, usize),
    /// JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// `vrdma-perf report`.
#[derive(Clone, Debug, Args)]
pub struct Report {
    /// Rows whose names have this in them
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Seconds for each row
    #[arg(short = 'D', long, default_value_t = 1.5, value_parser = seconds)]
    pub duration: f64,
    /// Put the table into DIR/report.md, between its marks, and plots beside it
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What the worker's time goes to instead, by stage: the daemon has to be built with the
    /// feature cycles
    #[arg(long)]
    pub account: bool,
    /// With which daemon
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

/// `vrdma-perf compare`.
#[derive(Clone, Debug, Args)]
pub struct Compare {
    /// A vrdma-backend
    pub first: PathBuf,
    /// Another
    pub second: PathBuf,
    /// Rows whose names have this in them
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Seconds for each row
    #[arg(short = 'D', long, default_value_t = 4.0, value_parser = seconds)]
    pub duration: f64,
    /// Processors of our thread, and of both workers
    #[arg(long, default_value = "0,1", value_name = "OURS,WORKERS'", value_parser = processors)]
    pub cpus: (usize, usize),
}
