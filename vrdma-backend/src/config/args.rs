//! The command line.

use super::access::User;
use super::tcp::Tcp;
use super::words::{Word, from_keys};
use super::{Congestion, Descriptor, GuestConfig};
use crate::jail::{Sandbox, Seccomp};
use crate::logger::LogLevel;
use crate::port::{FaultsConfig, UplinkDevice};
use clap::Parser;
use serde::Serialize;
use std::ops::Not;
use std::path::PathBuf;
use std::str::FromStr;

/// A virtual machine's RDMA NIC, as a vhost-user process.
///
/// Each guest connects its VMM to a socket of its own. QEMU (10.2 or later), for a guest with the
/// socket /run/vrdma/a.sock:
///
///   -machine q35,memory-backend=mem -object memory-backend-memfd,id=mem,size=4G,share=on
///   -chardev socket,id=rdma0,path=/run/vrdma/a.sock
///   -device vhost-user-test-device-pci,chardev=rdma0,virtio-id=38,num_vqs=64,vq_size=256,config_size=256,page-per-vq=on
///
/// num_vqs is 2 + the completion vectors + the channels. The MAC is that of the guest's netdev. The
/// netdev may be one of this process, too, with the socket /run/vrdma/a-net.sock (net=PATH):
///
///   -chardev socket,id=net0,path=/run/vrdma/a-net.sock -netdev vhost-user,id=net0,chardev=net0
///   -device virtio-net-pci,netdev=net0,mac=MAC,host_mtu=9000,rx_queue_size=1024
#[derive(Debug, Parser)]
#[command(name = "vrdma-backend", version, verbatim_doc_comment)]
pub struct Args {
    /// Configuration file (TOML); see docs/vrdma-backend.md for its keys
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A guest: `name=NAME,mac=MAC[,socket=PATH][,net=PATH][,gid=ADDRESS...]` and the file's other
    /// keys of a guest; may be repeated
    #[arg(short, long, value_name = "KEY=VALUE,...")]
    pub guest: Vec<GuestConfig>,
    /// Keys of the file that can also be given as flags.
    #[command(flatten)]
    pub keys: Keys,
    /// Log more: -v is --log debug, -vv is --log trace
    #[arg(short, long, action = clap::ArgAction::Count, conflicts_with = "log")]
    pub verbose: u8,
    /// Check the configuration, print it as a configuration file, and exit
    #[arg(long)]
    pub check: bool,
    /// Enter the jail, try something that it forbids, and print what happened
    #[cfg(debug_assertions)]
    #[arg(long, value_name = "THREAD:WHAT", hide = true)]
    pub jail_probe: Option<String>,
}

impl Args {
    /// Returns the log level that the number of -v flags stands for.
    pub(super) fn verbose_level(&self) -> Option<LogLevel> {
        match self.verbose {
            0 => None,
            1 => Some(LogLevel::Debug),
            _ => Some(LogLevel::Trace),
        }
    }
}

/// Flags that override the file's key of the same name (`--poll-us` overrides `poll_us`).
///
/// The fields have the names of [`Config`]'s fields.
///
/// [`Config`]: super::Config
#[derive(Debug, clap::Args, Serialize)]
pub struct Keys {
    /// Log messages of this level and of more important ones [default: what RUST_LOG says, else
    /// info]
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<LogLevel>,
    /// User that the daemon becomes after the start [default: vrdma, if there is such a user and
    /// root starts it]
    #[arg(long, value_name = "USER", value_parser = user)]
    pub user: Option<User>,
    /// How the daemon is separated from the host after the start [default: namespace, as far as it
    /// can be had]
    #[arg(long, value_name = "namespace|none", hide_possible_values = true)]
    pub sandbox: Option<Sandbox>,
    /// What happens to a thread that makes a system call outside its list [default: kill, if it can
    /// be had]
    #[arg(long, value_name = "kill|log|none", hide_possible_values = true)]
    pub seccomp: Option<Seccomp>,
    /// Socket of administrators, who may change the daemon; none: no socket [default:
    /// /run/vrdma/admin, if that can be made]
    #[arg(long, value_name = "PATH")]
    pub admin: Option<PathBuf>,
    /// Instead of --admin: a socket that the daemon inherits, by its number or by its name in
    /// LISTEN_FDNAMES
    #[arg(long, value_name = "FD", value_parser = descriptor)]
    pub admin_fd: Option<Descriptor>,
    /// Socket of observers, who may only look. The group vrdma may connect; none: no socket
    /// [default: /run/vrdma/observe, if that can be made]
    #[arg(long, value_name = "PATH")]
    pub observe: Option<PathBuf>,
    /// Instead of --observe: a socket that the daemon inherits, by its number or by its name in
    /// LISTEN_FDNAMES
    #[arg(long, value_name = "FD", value_parser = descriptor)]
    pub observe_fd: Option<Descriptor>,
    /// Completion vectors of each guest; each has an event virtqueue [default: 2]
    #[arg(long, value_name = "N")]
    pub comp_vectors: Option<u16>,
    /// Channels of each guest: one for its kernel, and one for each process until they run out
    /// [default: 60]
    #[arg(long, value_name = "N")]
    pub channels: Option<u16>,
    /// Most bytes of an IP packet in a guest's Ethernet frames [default: 9000]
    #[arg(long, value_name = "BYTES")]
    pub mtu: Option<u32>,
    /// Microseconds without work after which the worker sleeps; 0: at once. It sleeps earlier if
    /// other threads want its processor [default: 200]
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub poll_us: Option<u64>,
    /// Never sleep: for a worker that has a processor of its own
    #[arg(long)]
    #[serde(skip_serializing_if = "Not::not")]
    pub busy_poll: bool,
    /// Threads that serve guests; each guest is served by one of them [default: 1]
    #[arg(long, value_name = "N")]
    pub workers: Option<u16>,
    /// Processors for the threads, one each, as in 2,3 or 2-5 [default: anywhere]
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    pub cpus: Option<Cpus>,
    /// NIC to other hosts: a PCI address, or a driver with its parameters as DPDK names them, like
    /// net_packet0,iface=eth1 (vrdma's own)
    #[arg(long, value_name = "DEVICE")]
    pub uplink: Option<UplinkDevice>,
    /// Arguments for DPDK's EAL, separated by spaces. The daemon adds its own after them
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub eal: Option<String>,
    /// MTU of the uplink [default: its interface's, else 1500]
    #[arg(long, value_name = "BYTES")]
    pub uplink_mtu: Option<u32>,
    /// Copy payload to packets, even if the uplink could read it from guests' memory. Guests'
    /// memory is then not mapped for the uplink's DMA
    #[arg(long)]
    #[serde(skip_serializing_if = "Not::not")]
    pub no_zero_copy: bool,
    /// File for all frames that the uplink sends and receives (pcap)
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Faults on the uplink, for tests:
    /// loss=RATE,burst=N,drop=N|KIND/N,dup=RATE,reorder=RATE,reorder_us=N,corrupt=RATE,delay=RATE,
    /// delay_us=N,rate=BYTES,queue=BYTES,ecn_min=BYTES,ecn_max=BYTES,seed=N,dir=rx|tx|both
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub faults: Option<FaultsConfig>,
    /// Congestion control of RoCE: mode=dcqcn|delay|off and the parameters of docs/congestion.md
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = congestion)]
    pub congestion: Option<Congestion>,
    /// Whose TCP iWARP uses: own (over the uplink) or kernel (the host's) [default: own]
    #[arg(long, value_name = "own|kernel", value_parser = tcp)]
    pub tcp: Option<Tcp>,
    /// Seconds without a word after which an iWARP peer is probed. If it does not answer for as
    /// long again, its connection ends. 0: never [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub tcp_keepalive: Option<u16>,
    /// Use TCP for iWARP between guests of one worker, too, instead of copying in memory
    #[arg(long)]
    #[serde(skip_serializing_if = "Not::not")]
    pub tcp_between_guests: bool,
}

/// A list of processor numbers, as an option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Cpus(Vec<u16>);

/// Parses a list like `2,3,8-11`.
fn cpus(text: &str) -> Result<Cpus, String> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?;
        Some(range).filter(|range| !range.is_empty())
    };
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    let ranges = ranges.ok_or("give numbers of processors, like 2,3 or 2-5")?;
    Ok(Cpus(ranges.into_iter().flatten().collect()))
}

fn user(text: &str) -> Result<User, String> {
    User::read(text).ok_or_else(|| format!("give {}", User::KIND))
}

fn descriptor(text: &str) -> Result<Descriptor, String> {
    Descriptor::read(text).ok_or_else(|| format!("give {}", Descriptor::KIND))
}

fn tcp(text: &str) -> Result<Tcp, String> {
    match text {
        "own" => Ok(Tcp::Own),
        "kernel" => Ok(Tcp::Kernel),
        _ => Err("there is own, and kernel".into()),
    }
}

/// Parses `mode=dcqcn,rp_min_rate=100`. The keys are those of the file.
fn congestion(text: &str) -> anyhow::Result<Congestion> {
    from_keys(text)
}

/// Parses `loss=0.01,dup=0.01,drop=ack/100,rate=125000000,seed=7,dir=tx`.
///
/// Each part is optional. The keys are those of the file.
impl FromStr for FaultsConfig {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<FaultsConfig> {
        let config: FaultsConfig = from_keys(text)?;
        config.check()?;
        Ok(config)
    }
}
