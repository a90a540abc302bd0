//! A daemon with guests that this process plays.

use crate::args::DaemonArgs;
use crate::daemon::Daemon;
use crate::missing::missing;
use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use vrdma_backend::config::{self, Config, GuestConfig, GuestLimits, HostAddress, Tcp};
use vrdma_guest::abi::config::transport::IWARP;
use vrdma_guest::abi::control::Status;
use vrdma_guest::cm::host_address;
use vrdma_guest::memory::{HUGE_PAGE, Memory};
use vrdma_guest::threads::pin;
use vrdma_guest::{Guest, GuestOptions, GuestTcp};

/// Number of entries of a channel.
pub const ENTRIES: u16 = 256;
/// Bytes of a guest's memory beside its buffers, for rings and CQs.
const OWN_MEMORY: u64 = 64 << 20;

/// Largest number of iWARP connections of a guest.
const CONNECTIONS: u32 = 1 << 15;

/// Name of the daemon's admin socket.
const ADMIN: &str = "admin.sock";
/// Time limit for its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The transport of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// RoCE.
    Roce,
    /// iWARP, over this kind of TCP.
    Iwarp(Tcp),
}

impl Transport {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Roce => "RoCE",
            Transport::Iwarp(Tcp::Own) => "iWARP",
            Transport::Iwarp(Tcp::Kernel) => "iWARP over the host's TCP",
        }
    }
}

/// A device of DPDK, as the daemon's uplink.
#[derive(Clone, Copy, Debug)]
pub struct Uplink(pub &'static str);

/// Guests, and their daemon if this program started it.
#[derive(Debug)]
pub struct Host {
    /// The guests. Number i has the address 10.0.0.(i+1).
    pub guests: Vec<Arc<Guest>>,
    // After `guests`, so that guests are dropped first.
    daemon: Option<Daemon>,
    dir: TempDir,
}

impl Host {
    /// Connects `guests` guests with room for `buffers` bytes each.
    ///
    /// This pins this thread and the worker to the processors that `args` names.
    ///
    /// # Errors
    /// The daemon does not start, or refuses a guest.
    pub fn new(args: &DaemonArgs, guests: u8, buffers: u64, transport: Transport) -> Result<Host> {
        Host::with(args, guests, buffers, transport, None)
    }

    /// Connects guests to a daemon with an uplink.
    ///
    /// # Errors
    /// The errors of [`Host::new`].
    pub fn with(
        args: &DaemonArgs,
        guests: u8,
        buffers: u64,
        transport: Transport,
        uplink: Option<Uplink>,
    ) -> Result<Host> {
        let dir = TempDir::new().context("a temporary directory")?;
        let path = |name: &str| dir.path().join(name);
        let own: Vec<PathBuf> = (0..guests).map(|i| path(&format!("g{i}.sock"))).collect();
        let attached = !args.attach.is_empty();
        if attached && uplink.is_some() {
            return Err(missing("a daemon that is attached to has the uplink that it has"));
        }
        ensure!(
            !attached || args.attach.len() == usize::from(guests),
            "--attach wants {guests} sockets, one for each guest: {} given",
            args.attach.len()
        );
        let daemon = match attached {
            true => None,
            false => {
                let daemon = Daemon::start(
                    args.daemon.as_deref(),
                    &config(&own, args, transport, uplink, path(ADMIN))?,
                    dir.path(),
                )?;
                daemon.worker().into_iter().for_each(|worker| pin(worker, args.cpus.1));
                Some(daemon)
            }
        };
        pin(0, args.cpus.0);
        let sockets = if attached { &args.attach } else { &own };
        let connect = |(i, socket): (usize, &PathBuf)| {
            let options = GuestOptions {
                memory: vec![(HUGE_PAGE, OWN_MEMORY), (1 << 32, buffers.max(1).next_multiple_of(HUGE_PAGE))],
                huge_pages: true,
                channel_size: ENTRIES,
                host: i as u8 + 1,
                tcp: if transport == Transport::Iwarp(Tcp::Kernel) {
                    GuestTcp::Kernel
                } else {
                    GuestTcp::Own
                },
                ..GuestOptions::default()
            };
            let guest = Guest::connect(socket, options).with_context(|| socket.display().to_string())?;
            let is_iwarp = guest.config.transport == IWARP;
            ensure!(
                is_iwarp == (transport != Transport::Roce),
                "{} is a guest's with{} iWARP: {} --iwarp",
                socket.display(),
                if is_iwarp { "" } else { "out" },
                if is_iwarp { "say" } else { "do not say" },
            );
            if is_iwarp {
                return Ok(guest);
            }
            refused(guest.add_gid(0, guest.gid()), "the address 10.0.0.x (the guest wants any-gid=true)")?;
            Ok(guest)
        };
        let guests = sockets.iter().enumerate().map(connect).collect::<Result<_>>()?;
        Ok(Host { guests, daemon, dir })
    }

    /// Returns the daemon, if this program started it.
    pub fn daemon(&self) -> Option<&Daemon> {
        self.daemon.as_ref()
    }

    /// Returns the daemon's counters.
    ///
    /// # Errors
    /// This program did not start it, or it does not answer.
    pub fn stats(&self) -> Result<Value> {
        if self.daemon.is_none() {
            return Err(missing("the counters of a daemon that is attached to are not ours to ask for"));
        }
        let mut socket =
            UnixStream::connect(self.dir.path().join(ADMIN)).context("the daemon's admin socket")?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(b"stats\n")?;
        let mut text = String::new();
        socket.read_to_string(&mut text)?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Returns whether all guests' memory is in huge pages.
    pub fn has_huge_pages(&self) -> bool {
        self.guests.iter().all(|guest| guest.memory.is_huge())
    }
}

/// Allocates at least `len` bytes of memory as guests have it: in huge pages, if enough of them are
/// free.
///
/// # Errors
/// The system refuses the memory.
pub fn memory(len: u64) -> Result<Arc<Memory>> {
    let layout = [(0, len.next_multiple_of(HUGE_PAGE))];
    Ok(Memory::huge(&layout).or_else(|_| Memory::new(&layout))?)
}

/// Turns a refusal of the device into an error that names `what`.
///
/// # Errors
/// The device refused.
pub fn refused<T>(answer: Result<T, Status>, what: &str) -> Result<T> {
    answer.map_err(|status| anyhow!("the device refuses {what}: {status:?}"))
}

fn config(
    sockets: &[PathBuf],
    args: &DaemonArgs,
    transport: Transport,
    uplink: Option<Uplink>,
    admin: PathBuf,
) -> Result<Config> {
    let guest = |(i, socket): (usize, &PathBuf)| -> Result<GuestConfig> {
        let socket = socket.display();
        let text = format!("name=g{i},socket={socket},mac=52:54:00:00:00:{:02x},any-gid=true", i + 1);
        let guest: GuestConfig = text.parse()?;
        Ok(match transport {
            Transport::Roce => guest,
            Transport::Iwarp(Tcp::Own) => GuestConfig { transport: config::Transport::Iwarp, ..guest },
            Transport::Iwarp(Tcp::Kernel) => {
                let host_addresses = vec![HostAddress(host_address(i as u8).into())];
                GuestConfig { transport: config::Transport::Iwarp, host_addresses, ..guest }
            }
        })
    };
    let guests = sockets.iter().enumerate().map(guest).collect::<Result<_>>()?;
    let mut config = Config { guests, poll_us: args.poll_us, admin: Some(admin), ..Config::default() };
    // One guest sends everything through one channel. Its kernel needs another one, and receiving a
    // third.
    config.channels = 8;
    // vrdma's own TCP needs an uplink, even if nothing is sent there.
    let uplink = uplink.or((transport == Transport::Iwarp(Tcp::Own)).then_some(Uplink("net_ring0")));
    config.uplink = uplink.map(|Uplink(device)| device.parse()).transpose()?;
    if let Transport::Iwarp(tcp) = transport {
        config.tcp = Some(tcp);
        config.limits = GuestLimits { connections: CONNECTIONS, ..GuestLimits::default() };
    }
    Ok(config)
}
