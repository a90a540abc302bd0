//! What a person tells the daemon: a file, flags, or both (flags win, guests add up).

use crate::port::{Device, FaultsConfig};
use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use serde::Deserialize;
use std::collections::HashSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use vrdma_wire::num::{Gid, Mac};

/// A virtual machine's RDMA NIC, as a vhost-user process.
///
/// Each guest connects its VMM to a socket of its own. QEMU (10.2 or later), for a guest with the socket /run/vrdma/a.sock:
///
///   -machine q35,memory-backend=mem -object memory-backend-memfd,id=mem,size=4G,share=on
///   -chardev socket,id=rdma0,path=/run/vrdma/a.sock
///   -device vhost-user-test-device-pci,chardev=rdma0,virtio-id=38,num_vqs=64,vq_size=256,config_size=256,page-per-vq=on
///
/// num_vqs is 2 + the completion vectors + the channels. The MAC is that of the guest's netdev, which may be one of this process too, with
/// the socket /run/vrdma/a-net.sock (net=PATH):
///
///   -chardev socket,id=net0,path=/run/vrdma/a-net.sock -netdev vhost-user,id=net0,chardev=net0
///   -device virtio-net-pci,netdev=net0,mac=MAC,host_mtu=9000,rx_queue_size=1024
#[derive(Debug, Parser)]
#[command(name = "vrdma-backend", version, verbatim_doc_comment)]
pub struct Args {
    /// Configuration file (TOML); see docs/vrdma-backend.md for its keys
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A guest: `name=NAME,mac=MAC[,socket=PATH][,net=PATH][,gid=ADDRESS...]`; may be repeated
    #[arg(short, long, value_name = "SPEC")]
    pub guest: Vec<GuestConfig>,
    /// Socket that answers `stats` with counters in JSON
    #[arg(long, value_name = "PATH")]
    pub admin: Option<PathBuf>,
    /// Completion vectors of each guest, an event virtqueue each [default: 2]
    #[arg(long, value_name = "N")]
    pub comp_vectors: Option<u16>,
    /// Channels of each guest: one for its kernel, and one for each process until they run out [default: 60]
    #[arg(long, value_name = "N")]
    pub channels: Option<u16>,
    /// Most bytes of an IP packet in a guest's Ethernet frames [default: 9000]
    #[arg(long, value_name = "BYTES")]
    pub mtu: Option<u16>,
    /// Microseconds without work after which the worker sleeps; 0: at once. It sleeps earlier if others want its
    /// processor [default: 200]
    #[arg(long, value_name = "US")]
    pub poll_us: Option<u64>,
    /// Never sleep: for a worker that has a processor of its own
    #[arg(long)]
    pub busy_poll: bool,
    /// NIC to the outside, as DPDK names it: a PCI address, or a driver like net_af_packet0,iface=eth1
    #[arg(long, value_name = "DEVICE")]
    pub uplink: Option<Device>,
    /// Arguments for DPDK's EAL, separated by spaces, before those that the daemon adds by itself
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub eal: Option<String>,
    /// MTU of the uplink [default: its interface's, else 1500]
    #[arg(long, value_name = "BYTES")]
    pub uplink_mtu: Option<u16>,
    /// File for everything that the uplink sends and receives (pcap)
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Faults on the uplink, for tests: loss=RATE,dup=RATE,reorder=RATE,corrupt=RATE,delay=RATE,delay_us=N,seed=N,dir=rx|tx|both
    #[arg(long, value_name = "FAULTS")]
    pub faults: Option<FaultsConfig>,
    /// Say more: -v is debug, -vv trace. RUST_LOG works too
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Check the configuration, print it, and exit
    #[arg(long)]
    pub check: bool,
}

/// Everything the daemon needs to know. The keys of the configuration file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Socket that answers `stats`.
    pub admin: Option<PathBuf>,
    /// Completion vectors of each guest.
    pub comp_vectors: u16,
    /// Channels of each guest, the kernel's included.
    pub channels: u16,
    /// Most bytes of an IP packet in a guest's Ethernet frames.
    pub mtu: u16,
    /// Microseconds without work after which the worker sleeps.
    pub poll_us: u64,
    /// Never sleep.
    pub busy_poll: bool,
    /// NIC to the outside.
    pub uplink: Option<Device>,
    /// Arguments for DPDK's EAL.
    pub eal: Option<String>,
    /// MTU of the uplink; its interface's, else 1500, if not given.
    pub uplink_mtu: Option<u16>,
    /// File for everything that the uplink sends and receives.
    pub capture: Option<PathBuf>,
    /// Faults on the uplink.
    pub faults: Option<FaultsConfig>,
    /// What one guest may have.
    pub limits: Limits,
    /// The guests.
    #[serde(rename = "guest")]
    pub guests: Vec<GuestConfig>,
}

/// What one guest may have.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// User contexts (processes).
    pub contexts: u32,
    /// Protection domains.
    pub pds: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Entries of one completion queue; a power of two.
    pub cq_entries: u32,
    /// Memory regions.
    pub mrs: u32,
    /// Runs of memory in one region.
    pub mr_runs: u32,
    /// Runs of memory in all regions and queues together.
    pub total_runs: u64,
    /// Queue pairs; a power of two.
    pub qps: u32,
    /// Requests outstanding of one queue.
    pub qp_requests: u32,
    /// Requests outstanding of all queues together.
    pub total_requests: u64,
    /// Address handles.
    pub ahs: u32,
}

/// A guest.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestConfig {
    /// Name in messages and counters.
    pub name: String,
    /// Socket to which its VMM connects for the RDMA function; without one it has none.
    pub socket: Option<PathBuf>,
    /// Socket to which its VMM connects for the Ethernet function; without one it has none.
    pub net: Option<PathBuf>,
    /// Its MAC address.
    #[serde(deserialize_with = "parsed")]
    pub mac: Mac,
    /// Addresses that it may use as GIDs; any if empty.
    #[serde(default)]
    pub gids: Vec<IpAddr>,
    /// Other addresses from which its Ethernet function may send.
    #[serde(default, deserialize_with = "all_parsed")]
    pub extra_macs: Vec<Mac>,
    /// Its Ethernet function may send from any address that is no other guest's.
    #[serde(default)]
    pub any_mac: bool,
}

/// How long the worker polls without work before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// For ever.
    Always,
    /// For so long, unless others want its processor.
    For(Duration),
}

impl Default for Config {
    fn default() -> Self {
        Config {
            admin: None,
            comp_vectors: 2,
            channels: 60,
            mtu: 9000,
            poll_us: 200,
            busy_poll: false,
            uplink: None,
            eal: None,
            uplink_mtu: None,
            capture: None,
            faults: None,
            limits: Limits::default(),
            guests: Vec::new(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            contexts: 1024,
            pds: 16384,
            cqs: 16384,
            cq_entries: 1 << 20,
            mrs: 65536,
            mr_runs: 1 << 20,
            total_runs: 1 << 22,
            qps: 16384,
            qp_requests: 16384,
            total_requests: 1 << 22,
            ahs: 4096,
        }
    }
}

impl Config {
    /// Most virtqueues of a guest: `vhost-user` can name 256, and QEMU's generic device has as many.
    pub const MAX_QUEUES: u32 = 256;
    /// Most entries of a virtqueue.
    pub const MAX_QUEUE_SIZE: u16 = 1024;

    /// From flags, and the file that they name.
    ///
    /// # Errors
    /// A file that cannot be read, or a configuration that makes no sense; the message says which part.
    pub fn load(args: &Args) -> Result<Config> {
        let mut config = match &args.config {
            Some(path) => Self::read(path).with_context(|| format!("in {}", path.display()))?,
            None => Config::default(),
        };
        config.guests.extend(args.guest.iter().cloned());
        config.admin = args.admin.clone().or(config.admin);
        config.comp_vectors = args.comp_vectors.unwrap_or(config.comp_vectors);
        config.channels = args.channels.unwrap_or(config.channels);
        config.mtu = args.mtu.unwrap_or(config.mtu);
        config.poll_us = args.poll_us.unwrap_or(config.poll_us);
        config.busy_poll |= args.busy_poll;
        config.uplink = args.uplink.clone().or(config.uplink);
        config.eal = args.eal.clone().or(config.eal);
        config.uplink_mtu = args.uplink_mtu.or(config.uplink_mtu);
        config.capture = args.capture.clone().or(config.capture);
        config.faults = args.faults.or(config.faults);
        config.check()?;
        Ok(config)
    }

    fn read(path: &Path) -> Result<Config> {
        Ok(toml::from_str(&std::fs::read_to_string(path)?)?)
    }

    /// Virtqueues of a guest.
    pub fn num_queues(&self) -> u32 {
        2 + u32::from(self.comp_vectors) + u32::from(self.channels)
    }

    /// How long the worker polls without work before it sleeps.
    pub fn poll(&self) -> Poll {
        if self.busy_poll { Poll::Always } else { Poll::For(Duration::from_micros(self.poll_us)) }
    }

    /// Whether this makes sense.
    ///
    /// # Errors
    /// Says what does not.
    pub fn check(&self) -> Result<()> {
        ensure!(
            !self.guests.is_empty(),
            "no guest: give --guest name=NAME,socket=PATH,mac=MAC, or [[guest]] in a file"
        );
        ensure!(self.comp_vectors >= 1, "at least one completion vector is needed");
        ensure!((1280..=9600).contains(&self.mtu), "mtu: 1280 to 9600");
        ensure!(self.channels >= 1, "at least one channel is needed, the kernel's");
        let queues = self.num_queues();
        let max = Self::MAX_QUEUES;
        ensure!(queues <= max, "{queues} virtqueues (2 + completion vectors + channels) are more than {max}");
        let limits = &self.limits;
        ensure!(
            limits.qps.is_power_of_two() && limits.qps <= 1 << 16,
            "limits.qps: a power of two up to 65536"
        );
        ensure!(
            limits.cq_entries.is_power_of_two() && limits.cq_entries <= 1 << 24,
            "limits.cq_entries: a power of two up to 16777216"
        );
        ensure!(limits.qp_requests >= 1 && limits.qp_requests <= 1 << 15, "limits.qp_requests: 1 to 32768");
        ensure!(limits.mrs >= 1 && limits.mrs <= 1 << 24, "limits.mrs: 1 to 16777216");
        let needs = [
            (self.eal.is_some(), "eal"),
            (self.uplink_mtu.is_some(), "uplink_mtu"),
            (self.capture.is_some(), "capture"),
            (self.faults.is_some(), "faults"),
        ];
        for (given, name) in needs {
            ensure!(self.uplink.is_some() || !given, "{name} is of an uplink, and there is none");
        }
        if let Some(mtu) = self.uplink_mtu {
            ensure!((576..=9600).contains(&mtu), "uplink_mtu: 576 to 9600");
        }
        if let Some(faults) = &self.faults {
            faults.check()?;
        }
        let (mut names, mut sockets, mut macs) = (HashSet::new(), HashSet::new(), HashSet::new());
        for guest in &self.guests {
            ensure!(!guest.name.is_empty(), "a guest without a name");
            ensure!(names.insert(&guest.name), "two guests are called {}", guest.name);
            let paths = [&guest.socket, &guest.net].into_iter().flatten();
            for path in paths.clone() {
                ensure!(sockets.insert(path), "the socket {} is there twice", path.display());
            }
            ensure!(paths.count() != 0, "guest {}: neither socket nor net is given", guest.name);
            for mac in guest.extra_macs.iter().chain([&guest.mac]) {
                ensure!(macs.insert(*mac), "the MAC address {mac} is there twice");
                ensure!(mac.is_unicast(), "guest {}: {mac} is no address of a NIC", guest.name);
            }
        }
        Ok(())
    }
}

impl GuestConfig {
    /// Whether the host lets this guest use the GID.
    pub fn allows(&self, gid: Gid) -> bool {
        !gid.is_multicast() && (self.gids.is_empty() || self.allowed_gids().contains(&gid))
    }

    /// The addresses that it may use, as GIDs; any if empty.
    pub fn allowed_gids(&self) -> Vec<Gid> {
        let gid = |address: &IpAddr| match address {
            IpAddr::V4(v4) => Gid(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Gid(v6.octets()),
        };
        self.gids.iter().map(gid).collect()
    }
}

impl FromStr for GuestConfig {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<GuestConfig> {
        let (mut name, mut socket, mut net, mut mac, mut gids) = (None, None, None, None, Vec::new());
        let (mut extra_macs, mut any_mac) = (Vec::new(), false);
        for part in text.split(',') {
            let (key, value) = part.split_once('=').with_context(|| format!("'{part}' is not KEY=VALUE"))?;
            match key {
                "name" => name = Some(value.to_owned()),
                "socket" => socket = Some(PathBuf::from(value)),
                "net" => net = Some(PathBuf::from(value)),
                "mac" => mac = Some(parse_mac(value)?),
                "extra-mac" => extra_macs.push(parse_mac(value)?),
                "any-mac" => {
                    any_mac = value.parse().with_context(|| format!("'{value}' is not true or false"))?
                }
                "gid" => gids.push(value.parse().with_context(|| format!("'{value}' is no IP address"))?),
                _ => {
                    bail!("unknown key '{key}': name, socket, net, mac, gid, extra-mac and any-mac are known")
                }
            }
        }
        Ok(GuestConfig {
            name: name.context("name= is missing")?,
            socket,
            net,
            mac: mac.context("mac= is missing")?,
            gids,
            extra_macs,
            any_mac,
        })
    }
}

fn parse_mac(text: &str) -> Result<Mac> {
    let bytes: Option<Vec<u8>> =
        text.split(':').map(|b| (b.len() == 2).then(|| u8::from_str_radix(b, 16).ok()).flatten()).collect();
    let bytes = bytes.and_then(|b| <[u8; 6]>::try_from(b).ok());
    bytes.map(Mac).with_context(|| format!("'{text}' is no MAC address (like 52:54:00:12:34:56)"))
}

fn parsed<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Mac, D::Error> {
    parse_mac(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn all_parsed<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Mac>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| parse_mac(text).map_err(serde::de::Error::custom)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUEST: &str = "name=a,socket=/tmp/a,mac=52:54:00:00:00:01";

    fn load(args: &[&str]) -> Result<Config> {
        Config::load(&Args::try_parse_from([&["vrdma-backend"], args].concat())?)
    }

    #[test]
    fn flags_alone_are_enough() {
        let config = load(&["--guest", GUEST, "--channels", "3"]).unwrap();
        assert_eq!((config.channels, config.num_queues()), (3, 7));
        assert_eq!(config.guests[0].mac.0, [0x52, 0x54, 0, 0, 0, 1]);
    }

    #[test]
    fn mistakes_are_named() {
        for (args, message) in [
            (&[][..], "no guest"),
            (&["--guest", "name=a,socket=/x"], "mac= is missing"),
            (&["--guest", "name=a,mac=52:54:00:00:00:01"], "neither socket nor net"),
            (&["--guest", "name=a,socket=/x,net=/x,mac=52:54:00:00:00:01"], "/x is there twice"),
            (
                &["--guest", &format!("{GUEST},extra-mac=52:54:00:00:00:01")],
                "52:54:00:00:00:01 is there twice",
            ),
            (&["--guest", &format!("{GUEST},any-mac=maybe")], "'maybe' is not true or false"),
            (&["--guest", GUEST, "--mtu", "100"], "mtu: 1280 to 9600"),
            (&["--guest", "name=a,socket=/x,mac=1:2"], "no MAC address"),
            (&["--guest", "name=a,socket=/x,mac=53:54:00:00:00:01"], "no address of a NIC"),
            (&["--guest", "name=a,colour=red"], "unknown key 'colour'"),
            (&["--guest", GUEST, "--guest", GUEST], "two guests are called a"),
            (&["--guest", GUEST, "--channels", "300"], "more than 256"),
            (&["--guest", GUEST, "--uplink", ""], "no device"),
            (&["--guest", GUEST, "--uplink", "net_ring0", "--faults", "loss=2"], "no rate"),
            (&["--guest", GUEST, "--capture", "/x"], "capture is of an uplink"),
            (&["--guest", GUEST, "--uplink", "net_ring0", "--uplink-mtu", "1"], "uplink_mtu: 576"),
            (&["--config", "/nonexistent"], "/nonexistent"),
        ] {
            let error = format!("{:#}", load(args).unwrap_err());
            assert!(error.contains(message), "{args:?}: {error}");
        }
    }

    #[test]
    fn an_uplink_is_told_in_both_ways() {
        let eal = "--no-huge -m 64";
        let flags = load(&[
            "--guest",
            GUEST,
            "--uplink",
            "net_ring0,a=b",
            "--eal",
            eal,
            "--faults",
            "loss=0.5,dir=tx",
        ]);
        let text = format!("uplink = 'net_ring0,a=b'\neal = '{eal}'\nfaults = {{ loss = 0.5, rx = false }}");
        let file: Config = toml::from_str(&text).unwrap();
        for config in [flags.unwrap(), file] {
            assert_eq!(config.uplink.unwrap().to_string(), "net_ring0,a=b");
            assert_eq!(config.eal.as_deref(), Some(eal));
            let faults = config.faults.unwrap();
            assert_eq!((faults.loss, faults.dup, faults.rx, faults.tx), (0.5, 0., false, true));
        }
        assert!(toml::from_str::<Config>("uplink = ''").is_err());
    }

    #[test]
    fn files_are_read_and_unknown_keys_refused() {
        let text = "poll_us = 7\n[limits]\nqps = 64\n[[guest]]\nname='a'\nsocket='/x'\nmac='52:54:00:00:00:01'\ngids=['10.0.0.1']";
        let config: Config = toml::from_str(text).unwrap();
        assert_eq!((config.poll_us, config.limits.qps, config.channels), (7, 64, 60));
        let gid = |last| Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last]);
        assert!(config.guests[0].allows(gid(1)) && !config.guests[0].allows(gid(2)));
        assert!(toml::from_str::<Config>("pol_us = 7").is_err());
        assert!(toml::from_str::<Config>("[[guest]]\nname='a'\nsocket='/x'\nmac='nonsense'").is_err());
    }
}
