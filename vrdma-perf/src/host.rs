//! The machine: a daemon with guests that this process plays.

use crate::args::DaemonArgs;
use crate::daemon::Daemon;
use anyhow::{Context, Result, anyhow, ensure};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use vrdma_backend::config::{Config, GuestConfig};
use vrdma_guest::abi::control::Status;
use vrdma_guest::threads::pin;
use vrdma_guest::{Guest, GuestOptions};

/// Entries of channels.
pub const ENTRIES: u16 = 256;
/// Memory that a guest has beside its buffers: rings, CQs.
const OWN_MEMORY: u64 = 64 << 20;
const HUGE_PAGE: u64 = 2 << 20;

/// Guests, and their daemon if it is ours.
#[derive(Debug)]
pub struct Host {
    /// Number i is 10.0.0.(i+1).
    pub guests: Vec<Arc<Guest>>,
    // Below the guests: they leave first.
    _daemon: Option<Daemon>,
    _dir: TempDir,
}

impl Host {
    /// So many guests with room for `buffers` bytes each. From now on this thread and the worker have the processors that `args` say.
    ///
    /// # Errors
    /// The daemon does not start, or refuses a guest.
    pub fn new(args: &DaemonArgs, guests: u8, buffers: u64) -> Result<Host> {
        let dir = TempDir::new().context("a temporary directory")?;
        let path = |name: &str| dir.path().join(name);
        let own: Vec<PathBuf> = (0..guests).map(|i| path(&format!("g{i}.sock"))).collect();
        let attached = !args.attach.is_empty();
        ensure!(
            !attached || args.attach.len() == usize::from(guests),
            "--attach wants {guests} sockets, one for each guest: {} given",
            args.attach.len()
        );
        let daemon = match attached {
            true => None,
            false => {
                let daemon = Daemon::start(args.daemon.as_deref(), &config(&own, args)?, dir.path())?;
                daemon.worker().into_iter().for_each(|worker| pin(worker, args.cpus.1));
                Some(daemon)
            }
        };
        pin(0, args.cpus.0);
        let sockets = if attached { &args.attach } else { &own };
        let connect = |(i, socket): (usize, &PathBuf)| {
            let options = GuestOptions {
                memory: vec![(HUGE_PAGE, OWN_MEMORY), (1 << 32, buffers.max(1).next_multiple_of(HUGE_PAGE))],
                channel_size: ENTRIES,
                host: i as u8 + 1,
                ..GuestOptions::default()
            };
            let guest = Guest::connect(socket, options).with_context(|| socket.display().to_string())?;
            refused(guest.add_gid(0, guest.gid()), "the address 10.0.0.x (the guest wants any-gid=true)")?;
            Ok(guest)
        };
        let guests = sockets.iter().enumerate().map(connect).collect::<Result<_>>()?;
        Ok(Host { guests, _daemon: daemon, _dir: dir })
    }
}

/// What the device refused, in words.
///
/// # Errors
/// It did refuse.
pub fn refused<T>(answer: Result<T, Status>, what: &str) -> Result<T> {
    answer.map_err(|status| anyhow!("the device refuses {what}: {status:?}"))
}

fn config(sockets: &[PathBuf], args: &DaemonArgs) -> Result<Config> {
    let guest = |(i, socket): (usize, &PathBuf)| -> Result<GuestConfig> {
        let socket = socket.display();
        format!("name=g{i},socket={socket},mac=52:54:00:00:00:{:02x},any-gid=true", i + 1).parse()
    };
    let guests = sockets.iter().enumerate().map(guest).collect::<Result<_>>()?;
    // All that one guest sends goes through one channel; one more is its kernel's, one for what it receives.
    Ok(Config { guests, channels: 8, poll_us: args.poll_us, ..Config::default() })
}
