//! The command line. Options that perftest also has use its letters.

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use vrdma_backend::port::FaultsConfig;

/// RDMA between guests at the speed of this machine, without a VM.
///
/// This program plays the guests itself. It uses the daemon's real sockets, real rings in memory
/// that both map, and the driver that guests have. One thread posts and polls for all guests on one
/// processor, and the daemon's worker has another. Each figure stands beside a limit that is
/// measured alternately with it. The limit is the ring floor (a bare virtqueue and CQ ring between
/// the same two processors, without any check), or the best plain copy.
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
    /// WRITE between guests of two workers, beside two guests of one worker
    Workers(Workers),
    /// What this machine can do at best
    Limits(Limits),
    /// The standard set, each figure beside its limit, as a Markdown table
    Report(Report),
    /// The standard set through two daemons alternately: the ratios of the first to the second
    Compare(Compare),
    /// Two daemons on a link that loses, reorders and duplicates packets, beside one that does not
    Loss(Loss),
    /// Runs as a daemon, for the other commands
    #[command(hide = true)]
    Daemon(Box<vrdma_backend::config::Args>),
}

impl Command {
    /// Returns the processors that the command uses, this program's first.
    pub fn cpus(&self) -> Option<(usize, usize)> {
        match self {
            Command::Write(args)
            | Command::Read(args)
            | Command::Send(args)
            | Command::Atomic(args)
            | Command::Bind(args) => Some(args.daemon.cpus),
            Command::Wire(args) => Some(args.cpus),
            Command::Workers(args) => Some(args.cpus),
            Command::Limits(args) => Some(args.cpus),
            Command::Report(args) => Some(args.daemon.cpus),
            Command::Compare(args) => Some(args.cpus),
            Command::Loss(args) => Some(args.cpus),
            Command::Daemon(_) => None,
        }
    }
}

/// The measured quantity of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Figure {
    /// Time from posting an operation to its completion, one operation at a time
    Lat,
    /// Bytes per second
    Bw,
    /// Operations per second
    Rate,
}

/// Transport service of the QPs.
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

/// The atomic operation.
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

/// Arguments of one measurement, or of one for each size.
#[derive(Clone, Debug, Args)]
pub struct Measure {
    /// The measured quantity
    #[arg(value_enum)]
    pub figure: Figure,
    /// What is posted
    #[command(flatten)]
    pub load: LoadArgs,
    /// How long it is measured
    #[command(flatten)]
    pub run: Run,
    /// Which daemon is measured
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

/// Arguments that describe the load.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// Bytes of a message [default: 8 for lat and rate, 65536 for bw]
    #[arg(short, long)]
    pub size: Option<u32>,
    /// All sizes from 2 bytes to 8 MiB (UD: to 4096 bytes)
    #[arg(short, long, conflicts_with = "size")]
    pub all: bool,
    /// QPs of each guest to the guest that it sends to. Requests use them in random order
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub qp: u32,
    /// Outstanding requests in each direction, on all QPs together (lat: one)
    #[arg(short = 't', long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub tx_depth: u32,
    /// Post WRITEs and SENDs of up to this size inline
    #[arg(short = 'I', long, default_value_t = 0, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(..=220))]
    pub inline_size: u32,
    /// Sleep until a completion event, instead of polling
    #[arg(short, long)]
    pub events: bool,
    /// Both directions at once (not for lat)
    #[arg(short, long)]
    pub bidirectional: bool,
    /// Transport service
    #[arg(short, long, value_enum, ignore_case = true, default_value = "RC")]
    pub connection: Connection,
    /// Give the guests iWARP functions over vrdma's own TCP. QPs are connected as programs with
    /// rdma_cm do, and two guests of one worker use no TCP. The only service is RC, and there is no
    /// ATOMIC WRITE. A completed WRITE or SEND was taken, but need not have arrived. Use READ to
    /// measure a round trip, and SEND or --imm to measure arrival
    #[arg(long)]
    pub iwarp: bool,
    /// Use the host's TCP over lo for the guests instead
    #[arg(long, requires = "iwarp", conflicts_with = "attach")]
    pub kernel_tcp: bool,
    /// Which atomic operation [default: FETCH_AND_ADD]
    #[arg(short = 'A', long = "atomic", value_enum, ignore_case = true, value_name = "TYPE")]
    pub atomic: Option<Atomic>,
    /// Number of guests. One sends to itself, of two the first sends to the second, of more each
    /// sends to the next
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub guests: u8,
    /// Take receives from a shared receive queue
    #[arg(long)]
    pub srq: bool,
    /// Place messages one after the other in 256 MiB, instead of all at the same address
    #[arg(long, conflicts_with = "hot")]
    pub cold: bool,
    /// Place all messages at the same address (as without --cold)
    #[arg(long)]
    pub hot: bool,
    /// One request in N has a completion (lat: each)
    #[arg(short = 'Q', long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cq_mod: u32,
    /// WRITEs have immediate data, and therefore take receives
    #[arg(long)]
    pub imm: bool,
    /// WRITEs, READs and atomics use a memory window of this type
    #[arg(long, value_enum, ignore_case = true, value_name = "TYPE")]
    pub window: Option<WindowType>,
    /// WRITEs, READs and atomics use N regions of the receiver, one after the other in random order
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=120_000))]
    pub regions: u32,
    /// Number of further QPs that are connected and idle
    #[arg(long, default_value_t = 0, value_name = "QPS", value_parser = clap::value_parser!(u32).range(..=65536))]
    pub idle: u32,
    /// Microseconds between two operations whose latency is measured (with --poll-us 0, the worker
    /// sleeps in the pause)
    #[arg(long, default_value_t = 0, value_name = "US", value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub pause: u32,
}

/// Arguments for the duration and the output.
#[derive(Clone, Debug, Args)]
pub struct Run {
    /// Number of operations, instead of a duration
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
    /// Draw the results by size, beside their limit
    #[arg(long, value_name = "FILE.svg", requires = "all")]
    pub plot: Option<PathBuf>,
}

/// Arguments that name the daemon, and the processors.
#[derive(Clone, Debug, Default, Args)]
pub struct DaemonArgs {
    /// Socket of a guest of a running daemon, once for each guest. --cpus has to name its worker's
    /// processor [default: a daemon that this program starts]
    #[arg(long, value_name = "SOCKET", action = ArgAction::Append)]
    pub attach: Vec<PathBuf>,
    /// Program to start as the daemon: a vrdma-backend of another version
    #[arg(long, value_name = "PROGRAM", conflicts_with = "attach")]
    pub daemon: Option<PathBuf>,
    /// Microseconds without work after which the worker of the started daemon sleeps
    #[arg(long, default_value_t = 200, value_name = "US", conflicts_with = "attach")]
    pub poll_us: u64,
    /// Processors of this program's thread, and of the worker and the limits
    #[arg(long, default_value = "0,1", value_name = "OURS,WORKER'S", value_parser = processors)]
    pub cpus: (usize, usize),
}

/// The kind of a port that needs no NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PortKind {
    /// Shared memory between two ports
    Memif,
    /// A queue of DPDK that returns what is sent
    Ring,
    /// Packet sockets of vrdma's driver (net_packet) at both ends of a veth
    Packet,
    /// Packet sockets of DPDK's driver at both ends of a veth
    #[value(name = "af_packet")]
    AfPacket,
    /// XDP sockets at both ends of a veth
    #[value(name = "af_xdp")]
    AfXdp,
}

impl PortKind {
    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            PortKind::Memif => "memif",
            PortKind::Ring => "ring",
            PortKind::Packet => "packet",
            PortKind::AfPacket => "af_packet",
            PortKind::AfXdp => "af_xdp",
        }
    }

    /// Returns whether its driver moves frames in memory, without the kernel.
    pub fn is_memory(self) -> bool {
        matches!(self, PortKind::Memif | PortKind::Ring)
    }
}

/// Arguments of `vrdma-perf wire`.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct Wire {
    /// The kind of port
    #[arg(value_enum)]
    pub port: PortKind,
    /// Bytes of a message
    #[arg(short, long, default_value_t = 65536, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub size: u32,
    /// iWARP over vrdma's own TCP, beside RoCE; over a veth, beside full frames; with several
    /// connections, beside one
    #[arg(long)]
    pub iwarp: bool,
    /// Number of connections
    #[arg(short, long, default_value_t = 1, requires = "iwarp", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub qp: u32,
    /// Number of further connections whose peers take nothing, so that their windows are closed.
    /// Measured beside none
    #[arg(long, default_value_t = 0, requires = "iwarp", value_parser = clap::value_parser!(u32).range(..=2048))]
    pub stalled: u32,
    /// Measure the time from the repair of a gap to the last WRITE, after this many frames arrived
    /// beyond the gap. FPDUs that are placed out of order stand beside FPDUs that wait
    #[arg(long, value_name = "FRAMES", requires = "iwarp", conflicts_with_all = ["size", "qp", "stalled", "tx_depth"], value_parser = clap::value_parser!(u32).range(1..=100))]
    pub gap: Option<u32>,
    /// Give each host its own thread and processor
    #[arg(long, requires = "iwarp", conflicts_with_all = ["stalled", "gap"])]
    pub apart: bool,
    /// Outstanding requests on each connection
    #[arg(short = 't', long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=128))]
    pub tx_depth: u32,
    /// MTU of the link [default: suitable for RoCE]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1500..=9600))]
    pub mtu: Option<u16>,
    /// Seconds
    #[arg(short = 'D', long, default_value_t = 2.0, value_parser = seconds)]
    pub duration: f64,
    /// Processors of the helper, and of the thread with engines and ports
    #[arg(long, default_value = "0,1", value_name = "OTHER,OURS", value_parser = processors)]
    pub cpus: (usize, usize),
    /// Account for the time of a packet instead, with messages of 64 bytes and 64 KiB. Also model a
    /// NIC of 100 Gb/s
    #[arg(long, conflicts_with = "iwarp")]
    pub account: bool,
    /// JSON instead of a line
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `vrdma-perf workers`.
#[derive(Clone, Debug, Args)]
pub struct Workers {
    /// The measured quantity
    #[arg(value_enum)]
    pub figure: Figure,
    /// Bytes of a message [default: 8 for lat and rate, 65536 for bw]
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub size: Option<u32>,
    /// Send frames, as messages to multicast groups are sent
    #[arg(long)]
    pub frames: bool,
    /// Measure two workers with a pair of guests each instead, beside one of them alone, to show
    /// how much they slow each other down
    #[arg(long, conflicts_with = "frames")]
    pub pairs: bool,
    /// Run both workers' rounds in one thread: this measures their work without moving cache lines
    /// between processors
    #[arg(long, conflicts_with = "pairs")]
    pub one_thread: bool,
    /// Account for the stages of a WRITE instead, in one thread (for lat)
    #[arg(long, requires = "one_thread")]
    pub account: bool,
    /// Count cycles of WRITEs of 8 B and 64 KiB instead, within a worker and between two, and model
    /// more workers
    #[arg(long, conflicts_with_all = ["pairs", "one_thread", "frames", "size"])]
    pub model: bool,
    /// Seconds
    #[arg(short = 'D', long, default_value_t = 2.0, value_parser = seconds)]
    pub duration: f64,
    /// Processors of the sending worker, which also plays its driver, and of the other worker
    #[arg(long, default_value = "0,1", value_name = "SENDER'S,OTHER", value_parser = processors)]
    pub cpus: (usize, usize),
}

/// Arguments of `vrdma-perf limits`.
#[derive(Clone, Debug, Args)]
pub struct Limits {
    /// Sizes [default: 8, 4096, 65536, 1048576]
    #[arg(short, long, action = ArgAction::Append)]
    pub size: Vec<u32>,
    /// Processors of this program's thread, and of the helper
    #[arg(long, default_value = "0,1", value_name = "OURS,OTHER", value_parser = processors)]
    pub cpus: (usize, usize),
    /// JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `vrdma-perf report`.
#[derive(Clone, Debug, Args)]
pub struct Report {
    /// Measure only rows whose names contain this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Seconds for each row
    #[arg(short = 'D', long, default_value_t = 1.5, value_parser = seconds)]
    pub duration: f64,
    /// Put the table into DIR/report.md, between its marks, and plots next to it
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Account for the worker's time by stage instead. The daemon has to be built with the feature
    /// cycles
    #[arg(long)]
    pub account: bool,
    /// Which daemon is measured
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

/// Arguments of `vrdma-perf compare`.
#[derive(Clone, Debug, Args)]
pub struct Compare {
    /// A vrdma-backend program
    pub first: PathBuf,
    /// Another vrdma-backend program
    pub second: PathBuf,
    /// Measure only rows whose names contain this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Seconds for each row
    #[arg(short = 'D', long, default_value_t = 4.0, value_parser = seconds)]
    pub duration: f64,
    /// Processors of this program's thread, and of both workers
    #[arg(long, default_value = "0,1", value_name = "OURS,WORKERS'", value_parser = processors)]
    pub cpus: (usize, usize),
}

/// Arguments of `vrdma-perf loss`.
///
/// Each row starts two daemons for each run, with a veth between them and a guest each.
#[derive(Clone, Debug, Args)]
pub struct Loss {
    /// Measure only rows whose names contain this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Number of runs of each row; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub runs: u8,
    /// Seconds for each run of a row
    #[arg(short = 'D', long, default_value_t = 2.0, value_parser = seconds)]
    pub duration: f64,
    /// Faults instead of those of the rows, as the daemon's --faults has them
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub faults: Option<FaultsConfig>,
    /// Number of losses of each kind whose time is measured
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub losses: u32,
    /// The driver at both ends of the veth
    #[arg(long, value_enum, default_value = "packet")]
    pub port: VethPort,
    /// MTU of the link
    #[arg(long, default_value_t = 4500, value_parser = clap::value_parser!(u16).range(4200..=9600))]
    pub mtu: u16,
    /// Program to start as both daemons: a vrdma-backend of another version
    #[arg(long, value_name = "PROGRAM")]
    pub daemon: Option<PathBuf>,
    /// Microseconds without work after which a worker sleeps
    #[arg(long, default_value_t = 50, value_name = "US")]
    pub poll_us: u64,
    /// Processors of this program's thread and the second daemon's worker, and of the first
    /// daemon's
    #[arg(long, default_value = "0,1", value_name = "OURS,FIRST'S", value_parser = processors)]
    pub cpus: (usize, usize),
}

/// A driver of ports at the ends of a veth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VethPort {
    /// Packet sockets of vrdma's driver (net_packet)
    Packet,
    /// Packet sockets of DPDK's driver
    #[value(name = "af_packet")]
    AfPacket,
}

/// Parses two processor numbers, such as `0,1`.
///
/// # Errors
/// The text is no valid pair.
fn processors(text: &str) -> Result<(usize, usize), String> {
    let two = text.split_once(',').and_then(|(ours, other)| Some((ours.parse().ok()?, other.parse().ok()?)));
    let two: (usize, usize) = two.ok_or("two numbers of processors, such as 0,1")?;
    let there = std::thread::available_parallelism().map_or(1, |n| n.get());
    match two {
        (ours, other) if ours == other => Err("each needs a processor of its own".into()),
        (ours, other) if ours.max(other) >= 1024 => Err(format!("there are {there}")),
        two => Ok(two),
    }
}

/// Parses a duration.
///
/// # Errors
/// The duration is not from 0.01 to 3600 seconds.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=3600.).contains(&seconds) => Ok(seconds),
        _ => Err("seconds from 0.01 to 3600".into()),
    }
}
