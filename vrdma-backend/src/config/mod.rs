//! The configuration: a file, flags, or both. Flags override the file, and guests of both add up.
//!
//! A new key needs
//!
//! * a field here (or in [`GuestLimits`], [`GuestConfig`]) with its default,
//! * a line of `check` if not every value makes sense,
//! * a field of [`Keys`] if it is worth a flag.
//!
//! See CONTRIBUTING.md, "Recipes".

mod access;
mod args;
mod check;
mod congestion;
mod fields;
mod file;
mod guest;
mod jail;
mod limits;
mod load;
mod own_limits;
mod place;
mod plain;
mod qos;
mod qos_change;
mod tcp;
mod words;

pub use access::{Group, Mode, User, look_up_no_more_names};
pub use args::{Args, Keys};
pub use congestion::{Congestion, CongestionMode};
pub use fields::fields;
pub use guest::{GuestConfig, Transport};
pub use limits::GuestLimits;
pub use own_limits::OwnLimits;
pub use place::{Descriptor, MeetingPlace};
pub use plain::{plain, unknown};
pub use qos::{Qos, Weight};
pub use qos_change::QosChange;
pub use tcp::Tcp;
pub use words::HostAddress;
#[cfg(test)]
pub(crate) use words::Word;

use crate::jail::{Sandbox, Seccomp};
use crate::logger::LogLevel;
use crate::port::{FaultsConfig, UplinkDevice};
use anyhow::Result;
use place::{PlaceKey, place_of};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use words::numbers;

/// The whole configuration: the keys of the configuration file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The log level. Without it `RUST_LOG` decides. Without both it is info.
    pub log: Option<LogLevel>,
    /// User that the daemon becomes. Without it `vrdma`, if there is such a user.
    pub user: Option<User>,
    /// How the daemon is separated from the host. Without it, as far as possible.
    pub sandbox: Option<Sandbox>,
    /// What happens to a thread that makes a forbidden system call. Without it, the process ends.
    pub seccomp: Option<Seccomp>,
    /// Socket of those who administer the daemon ([`Config::NO_SOCKET`]: none). Without it,
    /// [`vrdma_admin::ADMIN`] if that can be.
    pub admin: Option<PathBuf>,
    /// Socket of those who look at the daemon ([`Config::NO_SOCKET`]: none). Without it,
    /// [`vrdma_admin::OBSERVE`] if that can be.
    pub observe: Option<PathBuf>,
    /// Instead of `admin`: a descriptor that the daemon inherits.
    pub admin_fd: Option<Descriptor>,
    /// Instead of `observe`: a descriptor that the daemon inherits.
    pub observe_fd: Option<Descriptor>,
    /// Mode of guests' sockets.
    pub socket_mode: Option<Mode>,
    /// User of guests' sockets.
    pub socket_owner: Option<User>,
    /// Group of guests' sockets.
    pub socket_group: Option<Group>,
    /// Completion vectors of each guest.
    pub comp_vectors: u16,
    /// Channels of each guest, including the kernel's.
    pub channels: u16,
    /// Most bytes of an IP packet in a guest's Ethernet frames.
    pub mtu: u32,
    /// Microseconds without work after which the worker sleeps.
    pub poll_us: u64,
    /// Never sleep.
    pub busy_poll: bool,
    /// Threads that serve guests. Each guest is served by one of them.
    pub workers: u16,
    /// Processors of the threads, one each; anywhere if empty.
    #[serde(deserialize_with = "numbers")]
    pub cpus: Vec<u16>,
    /// NIC to other hosts.
    pub uplink: Option<UplinkDevice>,
    /// Arguments for DPDK's EAL.
    pub eal: Option<String>,
    /// MTU of the uplink. Without it, that of its interface, else 1500.
    pub uplink_mtu: Option<u32>,
    /// Copy payload to packets, even if the uplink could read it from guests' memory.
    pub no_zero_copy: bool,
    /// File for all frames that the uplink sends and receives.
    pub capture: Option<PathBuf>,
    /// Faults injected on the uplink.
    pub faults: Option<FaultsConfig>,
    /// The TCP that iWARP uses, for guests that do not choose one.
    pub tcp: Option<Tcp>,
    /// Seconds without a word after which an iWARP peer is probed; 0: never.
    ///
    /// If the peer does not answer for as long again, its connection ends.
    pub tcp_keepalive: u16,
    /// Whether iWARP between guests of one worker uses their own TCP, too.
    pub tcp_between_guests: bool,
    /// Congestion control of RoCE connections.
    pub congestion: Congestion,
    /// Limits of each guest.
    pub limits: GuestLimits,
    /// The guests.
    #[serde(rename = "guest", deserialize_with = "guest::guests")]
    pub guests: Vec<GuestConfig>,
    /// The file from which it was read.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

/// How long the worker polls without work before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Without limit.
    Always,
    /// For this time, unless other threads want the processor.
    For(Duration),
}

impl Default for Config {
    fn default() -> Self {
        Config {
            log: None,
            user: None,
            sandbox: None,
            seccomp: None,
            admin: None,
            observe: None,
            admin_fd: None,
            observe_fd: None,
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
            congestion: Congestion::default(),
            limits: GuestLimits::default(),
            guests: Vec::new(),
            file: None,
        }
    }
}

impl Config {
    /// Most virtqueues of a guest: vhost-user can address 256, and QEMU's generic device has as
    /// many.
    pub const MAX_QUEUES: u32 = 256;
    /// Most workers.
    pub const MAX_WORKERS: u16 = 32;
    /// Longest `tcp_keepalive` in seconds. The kernel accepts no more.
    pub const MAX_KEEPALIVE: u16 = i16::MAX as u16;
    /// What stands for no socket, in the place of an admin socket's path.
    pub const NO_SOCKET: &str = "none";
    /// The group whose users may look at the daemon.
    pub const OBSERVERS: &str = "vrdma";
    /// Most entries of a virtqueue.
    pub const MAX_QUEUE_SIZE: u16 = 1024;

    /// Returns the configuration as a TOML file.
    ///
    /// # Errors
    /// A path is not UTF-8.
    pub fn to_toml(&self) -> Result<String> {
        Ok(toml::to_string(self)?)
    }

    /// Returns where administrators come in, if the configuration says so.
    pub fn admin_place(&self) -> Option<MeetingPlace<'_>> {
        place_of(self.admin_keys())
    }

    /// Returns where those who only look come in, if the configuration says so.
    pub fn observe_place(&self) -> Option<MeetingPlace<'_>> {
        place_of(self.observe_keys())
    }

    fn admin_keys(&self) -> [PlaceKey<'_>; 2] {
        [("admin", socket_of(&self.admin)), ("admin_fd", MeetingPlace::descriptor(&self.admin_fd))]
    }

    fn observe_keys(&self) -> [PlaceKey<'_>; 2] {
        [("observe", socket_of(&self.observe)), ("observe_fd", MeetingPlace::descriptor(&self.observe_fd))]
    }

    /// Returns the TCP that a guest's iWARP uses.
    pub fn tcp_of(&self, guest: &GuestConfig) -> Tcp {
        guest.tcp.or(self.tcp).unwrap_or_default()
    }

    /// Returns the limits of a guest: its own, and those of `[limits]` where it has none.
    pub fn limits_of(&self, guest: &GuestConfig) -> GuestLimits {
        guest.limits.over(&self.limits)
    }

    /// Returns the guests with defaults filled in and with their workers, one for each RDMA
    /// function.
    pub fn resolved_guests(&self) -> Vec<GuestConfig> {
        let workers = self.workers_of();
        self.guests.iter().zip(workers).flat_map(|(guest, worker)| self.resolved(guest, worker)).collect()
    }

    /// Returns a guest with defaults filled in and with this worker, once for each RDMA function.
    pub fn resolved(&self, guest: &GuestConfig, worker: u16) -> Vec<GuestConfig> {
        let tcp = Some(self.tcp_of(guest));
        GuestConfig { tcp, worker: Some(worker), ..guest.clone() }.functions()
    }

    /// Returns the worker of each guest: the one that it names, else one with the fewest guests.
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

    /// Returns the guest of this name.
    pub fn guest(&self, name: &str) -> Option<&GuestConfig> {
        self.guests.iter().find(|guest| guest.name == name)
    }

    /// Returns the number of virtqueues of a guest.
    pub fn num_queues(&self) -> u32 {
        2 + u32::from(self.comp_vectors) + u32::from(self.channels)
    }

    /// Returns how long the worker polls without work before it sleeps.
    pub fn poll(&self) -> Poll {
        if self.busy_poll { Poll::Always } else { Poll::For(Duration::from_micros(self.poll_us)) }
    }
}

/// Returns the place of an admin socket, unless its path stands for none.
fn socket_of(path: &Option<PathBuf>) -> Option<MeetingPlace<'_>> {
    let path = path.as_deref().filter(|path| path.as_os_str() != Config::NO_SOCKET);
    path.map(MeetingPlace::Socket)
}

#[cfg(test)]
mod tests;
