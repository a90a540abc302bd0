//! What a person tells the daemon: a file, flags, or both (flags win, guests add up).
//!
//! A new key is a field here (or in [`GuestLimits`], [`GuestConfig`]) with its default, a line of
//! `check` if not every value makes sense, and, if it is worth a flag, a field of [`Keys`]: see
//! CONTRIBUTING.md, "Recipes".

mod access;
mod args;
mod check;
mod file;
mod guest;
mod limits;
mod plain;
mod tcp;
mod words;

pub use access::{Group, Mode, User};
pub use args::{Args, Keys};
pub use guest::{GuestConfig, Transport};
pub use limits::GuestLimits;
pub use tcp::Tcp;
pub use words::HostAddress;
#[cfg(test)]
pub(crate) use words::Word;

use crate::logger::LogLevel;
use crate::port::{FaultsConfig, UplinkDevice};
use anyhow::Result;
use file::File;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use words::numbers;

/// Everything the daemon needs to know: the keys of the configuration file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What is logged; what RUST_LOG says if not given, and else messages of level info.
    pub log: Option<LogLevel>,
    /// Socket that answers `stats`.
    pub admin: Option<PathBuf>,
    /// Mode of guests' sockets.
    pub socket_mode: Option<Mode>,
    /// User of guests' sockets.
    pub socket_owner: Option<User>,
    /// Group of guests' sockets.
    pub socket_group: Option<Group>,
    /// Completion vectors of each guest.
    pub comp_vectors: u16,
    /// Channels of each guest, the kernel's included.
    pub channels: u16,
    /// Most bytes of an IP packet in a guest's Ethernet frames.
    pub mtu: u32,
    /// Microseconds without work after which the worker sleeps.
    pub poll_us: u64,
    /// Never sleep.
    pub busy_poll: bool,
    /// Threads that serve guests, each its own.
    pub workers: u16,
    /// The processors on which they run, one each; anywhere if empty.
    #[serde(deserialize_with = "numbers")]
    pub cpus: Vec<u16>,
    /// NIC to the outside.
    pub uplink: Option<UplinkDevice>,
    /// Arguments for DPDK's EAL.
    pub eal: Option<String>,
    /// MTU of the uplink; its interface's, else 1500, if not given.
    pub uplink_mtu: Option<u32>,
    /// Payload is copied to packets, also where the uplink could take it from guests' memory.
    pub no_zero_copy: bool,
    /// File for everything that the uplink sends and receives.
    pub capture: Option<PathBuf>,
    /// Faults on the uplink.
    pub faults: Option<FaultsConfig>,
    /// Whose TCP iWARP goes over, of guests that do not say it themselves.
    pub tcp: Option<Tcp>,
    /// Seconds without a word after which a peer of iWARP is asked whether it is still there; one
    /// that does not answer for as long again has its connection ended. 0: never.
    pub tcp_keepalive: u16,
    /// iWARP between guests of one worker goes over their own TCP, too.
    pub tcp_between_guests: bool,
    /// What one guest may have.
    pub limits: GuestLimits,
    /// The guests.
    #[serde(rename = "guest", deserialize_with = "guest::guests")]
    pub guests: Vec<GuestConfig>,
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
            log: None,
            admin: None,
            socket_mode: None,
            socket_owner: None,
            socket_group: None,
            comp_vectors: 2,
            channels: 60,
            mtu: 9000,
            poll_us: 200,
            busy_poll: false,
            workers: 1,
            cpus: Vec::new(),
            uplink: None,
            eal: None,
            uplink_mtu: None,
            no_zero_copy: false,
            capture: None,
            faults: None,
            tcp: None,
            tcp_keepalive: 60,
            tcp_between_guests: false,
            limits: GuestLimits::default(),
            guests: Vec::new(),
        }
    }
}

impl Config {
    /// Most virtqueues of a guest: `vhost-user` can name 256, and QEMU's generic device has as
    /// many.
    pub const MAX_QUEUES: u32 = 256;
    /// Most workers.
    pub const MAX_WORKERS: u16 = 32;
    /// Longest `tcp_keepalive`: the kernel takes no more.
    pub const MAX_KEEPALIVE: u16 = i16::MAX as u16;
    /// Most entries of a virtqueue.
    pub const MAX_QUEUE_SIZE: u16 = 1024;

    /// From flags, and the file that they name.
    ///
    /// # Errors
    /// A file that cannot be read, or a configuration that makes no sense; the message says which
    /// part.
    pub fn load(args: &Args) -> Result<Config> {
        let file = args.config.as_deref().map(File::read).transpose()?;
        let said = file.as_ref().map(File::keys::<Config>).transpose()?.unwrap_or_default();
        let mut flags = toml::Table::try_from(&args.keys)?;
        if let Some(level) = args.verbose_level() {
            flags.insert("log".into(), toml::Value::try_from(level)?);
        }
        // Flags are keys of the file: they are put over what it says.
        let mut keys = toml::Table::try_from(&said)?;
        keys.extend(flags.clone());
        let mut config: Config = keys.try_into()?;
        config.guests.extend(args.guest.iter().cloned());
        config.check().map_err(|error| match &file {
            Some(file) => file.locate(error, &flags),
            None => error,
        })?;
        Ok(config)
    }

    /// As a configuration file.
    ///
    /// # Errors
    /// A path is no text.
    pub fn to_toml(&self) -> Result<String> {
        Ok(toml::to_string(self)?)
    }

    /// Whose TCP a guest's iWARP goes over.
    pub fn tcp_of(&self, guest: &GuestConfig) -> Tcp {
        guest.tcp.or(self.tcp).unwrap_or_default()
    }

    /// The guests, each with what holds for all that it does not say itself, and with its worker.
    pub fn resolved_guests(&self) -> Vec<GuestConfig> {
        let workers = self.workers_of();
        let resolve = |(guest, worker): (&GuestConfig, u16)| {
            let tcp = Some(self.tcp_of(guest));
            GuestConfig { tcp, worker: Some(worker), ..guest.clone() }.functions()
        };
        self.guests.iter().zip(workers).flat_map(resolve).collect()
    }

    /// The worker of each guest: that which it names, else one that has the fewest guests.
    fn workers_of(&self) -> Vec<u16> {
        let mut guests = vec![0u32; self.workers.into()];
        let named = self.guests.iter().filter_map(|guest| guest.worker);
        named.for_each(|worker| guests[usize::from(worker)] += 1);
        let mut least = || {
            let (at, count) =
                guests.iter_mut().enumerate().min_by_key(|(_, count)| **count).expect("one worker or more");
            *count += 1;
            at as u16
        };
        self.guests.iter().map(|guest| guest.worker.unwrap_or_else(&mut least)).collect()
    }

    /// Virtqueues of a guest.
    pub fn num_queues(&self) -> u32 {
        2 + u32::from(self.comp_vectors) + u32::from(self.channels)
    }

    /// How long the worker polls without work before it sleeps.
    pub fn poll(&self) -> Poll {
        if self.busy_poll { Poll::Always } else { Poll::For(Duration::from_micros(self.poll_us)) }
    }
}

#[cfg(test)]
mod tests;
