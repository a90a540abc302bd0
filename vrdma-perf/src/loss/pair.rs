//! Two daemons with a guest each, and a veth between them.

use crate::args::{DaemonArgs, Loss, VethPort};
use crate::daemon::Daemon;
use crate::host::{Host, Transport};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use vrdma_backend::config::{Config, GuestConfig};
use vrdma_backend::port::FaultsConfig;
use vrdma_guest::threads::pin;

/// Time limit for the answer of an admin socket.
const PATIENCE: Duration = Duration::from_secs(10);

/// Two daemons. Guest 0 of [`Pair::host`] is the first daemon's, guest 1 the second's.
#[derive(Debug)]
pub struct Pair {
    /// Both guests.
    pub host: Host,
    /// The daemons, in the order of their guests.
    pub daemons: [Daemon; 2],
    admin: [PathBuf; 2],
    _dirs: [TempDir; 2],
}

impl Pair {
    /// Starts both daemons, and connects their guests with room for `buffers` bytes each. The first
    /// daemon has the faults, in both directions.
    ///
    /// # Errors
    /// A daemon does not start, or refuses its guest.
    pub fn new(args: &Loss, faults: &FaultsConfig, buffers: u64) -> Result<Pair> {
        let dirs = [TempDir::new()?, TempDir::new()?];
        let path = |at: usize, name: &str| dirs[at].path().join(name);
        let driver = match args.port {
            VethPort::Packet => "net_packet0",
            VethPort::AfPacket => "net_af_packet0",
        };
        let start = |at: usize| -> Result<Daemon> {
            let (socket, end) = (path(at, "guest.sock"), ["va", "vb"][at]);
            let guest =
                format!("name=g{at},socket={},mac=52:54:00:00:00:0{at},any-gid=true", socket.display());
            let guest: GuestConfig = guest.parse()?;
            let config = Config {
                guests: vec![guest],
                poll_us: args.poll_us,
                channels: 8,
                admin: Some(path(at, "admin.sock")),
                observe: Some(Config::NO_SOCKET.into()),
                uplink: Some(format!("{driver},iface={end}").parse()?),
                uplink_mtu: Some(args.mtu.into()),
                faults: (at == 0 && *faults != FaultsConfig::default()).then(|| faults.clone()),
                ..Config::default()
            };
            let daemon = Daemon::start(args.daemon.as_deref(), &config, dirs[at].path())?;
            let cpu = [args.cpus.1, args.cpus.0][at];
            daemon.worker().into_iter().for_each(|worker| pin(worker, cpu));
            Ok(daemon)
        };
        let daemons = [start(0)?, start(1)?];
        let attach = (0..2).map(|at| path(at, "guest.sock")).collect();
        let both = DaemonArgs { attach, cpus: args.cpus, ..DaemonArgs::default() };
        let host = Host::new(&both, 2, buffers, Transport::Roce)?;
        let admin = [path(0, "admin.sock"), path(1, "admin.sock")];
        Ok(Pair { host, daemons, admin, _dirs: dirs })
    }

    /// Returns the counters of both daemons, in their order.
    ///
    /// # Errors
    /// A daemon does not answer.
    pub fn counters(&self) -> Result<[Counters; 2]> {
        Ok([counters(&self.admin[0])?, counters(&self.admin[1])?])
    }
}

/// Counters of a daemon, by their names.
#[derive(Clone, Debug, Deserialize)]
pub struct Counters {
    guests: [GuestCounters; 1],
    uplink: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Deserialize)]
struct GuestCounters {
    transport: BTreeMap<String, u64>,
}

impl Counters {
    /// Returns a counter of the guest's queue pairs; 0 if this version of the daemon lacks it.
    pub fn transport(&self, name: &str) -> u64 {
        self.guests[0].transport.get(name).copied().unwrap_or_default()
    }

    /// Returns a counter of the uplink; 0 if this version of the daemon lacks it.
    pub fn uplink(&self, name: &str) -> u64 {
        self.uplink.get(name).copied().unwrap_or_default()
    }
}

fn counters(admin: &PathBuf) -> Result<Counters> {
    let mut socket = UnixStream::connect(admin).context("the daemon's admin socket")?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.write_all(b"stats\n")?;
    let mut text = String::new();
    socket.read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}
