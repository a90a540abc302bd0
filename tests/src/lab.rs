//! A daemon with some guests.

use crate::daemon::{Daemon, Stats, guest_config};
use crate::guest::{Guest, GuestOptions, GuestTcp};
use crate::wait;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use vrdma_abi::config::transport;
use vrdma_backend::config::{Config, GuestConfig, GuestLimits, HostAddress, Tcp, Transport};
use vrdma_backend::port::{self, Cable, Driver, Faults, FaultsConfig, Port, UplinkDevice};
use vrdma_guest::cm::host_address;

/// How a lab is made.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// Channels of each guest, the kernel's included.
    pub channels: u16,
    /// Completion vectors of each guest.
    pub comp_vectors: u16,
    /// Microseconds without work after which the worker sleeps.
    pub poll_us: u64,
    /// Whether the worker never sleeps.
    pub busy_poll: bool,
    /// Workers of each daemon. Guest i is on worker i modulo their number.
    ///
    /// The default comes from the environment variable `VRDMA_TEST_WORKERS`.
    pub workers: u16,
    /// Limits of each guest.
    pub limits: GuestLimits,
    /// Idle seconds after which an iWARP peer is probed.
    pub tcp_keepalive: u16,
    /// Whether iWARP between guests of one daemon goes over TCP.
    pub tcp_between_guests: bool,
    /// Options that all guests have in common.
    pub guest: GuestOptions,
    /// Whether the daemon of the guests with even numbers has an admin socket ([`Lab::admin`]).
    pub admin: bool,
    /// Path of the daemon's program, if the daemon is to be a process of its own.
    pub program: Option<PathBuf>,
    /// A cable between two daemons, if there are to be two. Guests with odd numbers are on the
    /// remote one.
    pub cable: Option<CableOptions>,
    /// DPDK devices between two daemons in place of a cable.
    ///
    /// The first device is the local daemon's and is opened first. The second is the remote
    /// daemon's.
    pub uplinks: Option<[UplinkDevice; 2]>,
    /// Returns the last byte of guest `index`'s address, and its VLAN.
    pub address: fn(u8) -> (u8, Option<u16>),
    /// Changes the configuration of guest `index`, starting from that of [`guest_config`].
    ///
    /// It is not supported if the daemon is a process of its own.
    pub host_says: fn(u8, GuestConfig) -> GuestConfig,
}

/// The location of two guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// On one worker.
    OneWorker,
    /// On one host, on different workers.
    TwoWorkers,
    /// On two hosts, with a cable between them.
    TwoHosts,
}

impl Setting {
    /// All settings.
    pub const ALL: [Setting; 3] = [Setting::OneWorker, Setting::TwoWorkers, Setting::TwoHosts];

    /// Returns the options of a lab with this setting.
    pub fn options(self) -> LabOptions {
        let cable = (self == Setting::TwoHosts).then(CableOptions::default);
        let options = LabOptions { cable, ..LabOptions::default() };
        match self {
            // The third worker has no guest.
            Setting::TwoWorkers => LabOptions { workers: 3, ..options },
            Setting::OneWorker | Setting::TwoHosts => options,
        }
    }
}

/// The path between two daemons.
#[derive(Clone, Debug)]
pub struct CableOptions {
    /// Longest IP packet in bytes.
    pub mtu: u16,
    /// Most frames in flight in each direction.
    pub depth: usize,
    /// Faults injected at the local daemon's end.
    pub faults: Option<FaultsConfig>,
    /// Whether the test itself is at the remote end ([`Lab::outside`]), without a remote daemon.
    pub held: bool,
}

impl Default for CableOptions {
    fn default() -> Self {
        CableOptions { mtu: 9000, depth: port::DEPTH, faults: None, held: false }
    }
}

impl Default for LabOptions {
    fn default() -> Self {
        LabOptions {
            channels: 13,
            comp_vectors: 2,
            poll_us: 200,
            busy_poll: false,
            workers: std::env::var("VRDMA_TEST_WORKERS").map_or(1, |text| text.parse().expect("a number")),
            limits: GuestLimits::default(),
            tcp_keepalive: Config::default().tcp_keepalive,
            tcp_between_guests: true,
            guest: GuestOptions::default(),
            admin: false,
            program: None,
            cable: None,
            uplinks: None,
            address: |index| (index + 1, None),
            host_says: |_, guest| guest,
        }
    }
}

/// A daemon with guests whose GIDs are set.
#[derive(Debug)]
pub struct Lab {
    /// The guests. Guest i is 10.0.0.(i+1) unless [`LabOptions::address`] says otherwise.
    pub guests: Vec<Arc<Guest>>,
    /// The daemon.
    pub daemon: Daemon,
    /// The daemon at the other end of the cable, if there is one.
    pub remote: Option<Daemon>,
    /// The remote end of the cable, if the test holds it.
    pub outside: Option<Port>,
    /// The cable, if there is one.
    pub cable: Option<Cable>,
    options: LabOptions,
    dir: TempDir,
}

impl Lab {
    /// Starts a daemon with `guests` guests and default options.
    pub fn new(guests: u8) -> Lab {
        Lab::with(guests, LabOptions::default())
    }

    /// Starts a daemon with `guests` guests and other options.
    pub fn with(guests: u8, options: LabOptions) -> Lab {
        let mut lab = Lab::without_guests(guests, options);
        lab.guests = (0..guests).map(|index| lab.connect(index)).collect();
        lab
    }

    /// Starts two guests with iWARP functions over the kernel's TCP, on one host or two.
    pub fn of_iwarp(hosts: u8) -> Lab {
        let cable = (hosts == 2).then(CableOptions::default);
        Lab::with(2, LabOptions { cable, host_says: over_tcp, ..LabOptions::default() })
    }

    /// Starts two guests with iWARP functions over this TCP, on one host or two.
    ///
    /// The daemon's own TCP needs an uplink, even if nobody is at its remote end.
    pub fn of_tcp(tcp: GuestTcp, hosts: u8) -> Lab {
        Lab::of_tcp_with(tcp, hosts, LabOptions::default())
    }

    /// Starts two guests with iWARP functions over this TCP, on one host or two, with other
    /// options.
    pub fn of_tcp_with(tcp: GuestTcp, hosts: u8, options: LabOptions) -> Lab {
        let held = hosts == 1;
        let needs_cable = tcp == GuestTcp::Own || !held;
        let cable = options.cable.or_else(|| needs_cable.then(CableOptions::default));
        let cable = cable.map(|cable| CableOptions { held: cable.held || held, ..cable });
        let host_says = if tcp == GuestTcp::Own { over_own_tcp } else { over_tcp };
        let guest = GuestOptions { tcp, ..options.guest };
        Lab::with(2, LabOptions { cable, host_says, guest, ..options })
    }

    /// Starts two guests of one host with iWARP functions that connect without TCP.
    pub fn of_local_way() -> Lab {
        Lab::of_tcp_with(GuestTcp::Own, 1, LabOptions { tcp_between_guests: false, ..LabOptions::default() })
    }

    /// Starts a daemon for `guests` guests that connect later.
    pub fn without_guests(guests: u8, options: LabOptions) -> Lab {
        let _ = env_logger::Builder::from_env("RUST_LOG").is_test(true).try_init();
        crate::fatal::tell_of_signals();
        let temporary = TempDir::new().expect("a temporary directory");
        let dir = temporary.path();
        let guest_of = |i| {
            let guest = guest_config(&format!("g{i}"), &socket(dir, i), i + 1);
            (options.host_says)(i, GuestConfig { net: Some(net_socket(dir, i)), ..guest })
        };
        let has_streams = (0..guests).any(|i| guest_of(i).transport != Transport::Roce);
        let config = |which: &dyn Fn(u8) -> bool| Config {
            tcp: (has_streams && options.guest.tcp == GuestTcp::Kernel).then_some(Tcp::Kernel),
            tcp_keepalive: options.tcp_keepalive,
            tcp_between_guests: options.tcp_between_guests,
            admin: (options.admin || options.program.is_some()).then(|| dir.join("admin")),
            comp_vectors: options.comp_vectors,
            channels: options.channels,
            poll_us: options.poll_us,
            busy_poll: options.busy_poll,
            workers: options.workers,
            limits: options.limits.clone(),
            guests: (0..guests).filter(|&i| which(i)).map(guest_of).collect(),
            ..Config::default()
        };
        let (mut remote, mut outside, mut cable) = (None, None, None);
        let daemon = match (&options.program, options.cable.clone()) {
            (None, None) if let Some(uplinks) = &options.uplinks => {
                let at = |end: usize, odd| Config {
                    uplink: Some(uplinks[end].clone()),
                    ..config(&|i| (i % 2 != 0) == odd)
                };
                let near = Daemon::start(at(0, false));
                remote = near.is_ok().then(|| Daemon::start(at(1, true)).expect("the remote daemon starts"));
                near
            }
            (None, None) => Daemon::start(config(&|_| true)),
            (None, Some(CableOptions { mtu, depth, faults, held })) => {
                let (local_end, remote_end, between) = port::pair_of_depth(mtu, depth).expect("a cable");
                let mut driver: Box<dyn Driver> = Box::new(local_end);
                if let Some(faults) = faults {
                    driver = Box::new(Faults::new(driver, faults));
                }
                let remote_end = Port::new(Box::new(remote_end));
                cable = Some(between);
                if held {
                    outside = Some(remote_end);
                    Daemon::start_with(config(&|_| true), Port::new(driver))
                } else {
                    // The admin socket is the local daemon's.
                    let other = Config { admin: None, ..config(&|i| i % 2 != 0) };
                    let other = Daemon::start_with(other, remote_end);
                    remote = Some(other.expect("the remote daemon starts"));
                    Daemon::start_with(config(&|i| i % 2 == 0), Port::new(driver))
                }
            }
            (Some(program), _) => Daemon::spawn(program, &config(&|_| true)),
        };
        let daemon = daemon.expect("the daemon starts");
        Lab { guests: Vec::new(), daemon, remote, outside, cable, options, dir: temporary }
    }

    /// Connects guest `index` and sets its GID.
    pub fn connect(&self, index: u8) -> Arc<Guest> {
        self.connect_to(index, &self.socket(index))
    }

    /// Connects to the second function of guest `index`, which [`with_both`] configured.
    pub fn connect_iwarp(&self, index: u8) -> Arc<Guest> {
        self.connect_to(index, &self.socket(index).with_extension(SECOND))
    }

    fn connect_to(&self, index: u8, socket: &Path) -> Arc<Guest> {
        let (host, vlan) = (self.options.address)(index);
        let options = GuestOptions { host, vlan, ..self.options.guest.clone() };
        let guest = Guest::connect(socket, options).expect("the daemon accepts the guest");
        if guest.config.transport == transport::ROCE {
            guest.set_gid();
        }
        guest
    }

    /// Returns whether two guests of a daemon are on different workers.
    pub fn are_apart(&self, one: u8, other: u8) -> bool {
        let worker = |guest| u16::from(guest) % self.options.workers;
        worker(one) != worker(other)
    }

    /// Returns what a guest receives of a frame that another guest sends.
    ///
    /// Between workers a frame is padded to 60 bytes, as on a wire.
    pub fn arrives(&self, from: u8, to: u8, frame: &[u8]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        if self.are_apart(from, to) && frame.len() < 60 {
            frame.resize(60, 0);
        }
        frame
    }

    /// Returns the number of workers of each daemon.
    pub fn workers(&self) -> u16 {
        self.options.workers
    }

    /// Returns the name of the thread that serves guest 0.
    pub fn first_worker(&self) -> &'static str {
        if self.options.workers == 1 { "worker" } else { "worker 0" }
    }

    /// Returns the path of the daemon's admin socket, if it has one.
    pub fn admin_path(&self) -> PathBuf {
        self.dir.path().join("admin")
    }

    /// Returns a client of the daemon's admin socket.
    pub fn admin(&self) -> vrdma_admin::Client {
        let client = vrdma_admin::Client::connect(&self.admin_path()).expect("the daemon listens");
        client.set_timeout(Some(wait::PATIENCE)).expect("a time that is not zero");
        client
    }

    /// Returns the socket to which the front-end of guest `index` connects.
    pub fn socket(&self, index: u8) -> PathBuf {
        socket(self.dir.path(), index)
    }

    /// Returns the socket to which the front-end of guest `index`'s Ethernet function connects.
    pub fn net_socket(&self, index: u8) -> PathBuf {
        net_socket(self.dir.path(), index)
    }

    /// Returns the remote daemon's counters. Its guests are those with odd numbers.
    pub fn remote_stats(&self) -> Stats {
        let daemon = self.remote.as_ref().expect("a remote daemon");
        when_no_worker_is_stuck(|| daemon.stats().expect("it is alive"))
    }

    /// Returns the daemon's counters, when no worker is stuck.
    ///
    /// If a busy machine keeps a worker from its processor for seconds, the daemon takes it for
    /// stuck. The answer then leaves out its guests, so this function asks again.
    pub fn stats(&self) -> Stats {
        when_no_worker_is_stuck(|| self.stats_at_once())
    }

    /// Returns the daemon's counters at once, even if workers are stuck.
    pub fn stats_at_once(&self) -> Stats {
        self.daemon.stats().expect("the daemon is alive")
    }

    /// Returns a counter between queue pairs of guest `guest`, on either daemon.
    pub fn transport(&self, guest: usize, counter: &str) -> u64 {
        match guest {
            guest if self.remote.is_none() => self.stats().transport(guest, counter),
            near if near % 2 == 0 => self.stats().transport(near / 2, counter),
            remote => self.remote_stats().transport(remote / 2, counter),
        }
    }

    /// Waits until a guest whose front-end has gone has no objects left in the daemon.
    pub fn expect_nothing_left(&self, guest: usize) {
        let left =
            || format!("of guest {guest}, but there are {:?}", self.stats_at_once().all_objects(guest));
        let is_empty = || self.stats().all_objects(guest).is_empty().then_some(());
        wait::until_with("nothing to be left", left, is_empty);
    }
}

fn when_no_worker_is_stuck(stats: impl Fn() -> Stats) -> Stats {
    wait::until("no worker to be stuck", || Some(stats()).filter(|stats| !stats.has_stuck_worker()))
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.guests.clear();
    }
}

/// For [`LabOptions::host_says`]: allows guest `index` 10.0.0.(index+1) and fe80::(index+1) alone.
pub fn listed(index: u8, guest: GuestConfig) -> GuestConfig {
    let host = index + 1;
    let addresses = [format!("10.0.0.{host}"), format!("fe80::{host:x}")];
    let gids = addresses.iter().map(|text| text.parse().expect("an address")).collect();
    GuestConfig { gids, any_gid: false, ..guest }
}

/// For [`LabOptions::host_says`]: gives the guest an iWARP function over the kernel's TCP.
pub fn over_tcp(index: u8, guest: GuestConfig) -> GuestConfig {
    let host_addresses = vec![HostAddress(host_address(index).into())];
    GuestConfig { transport: Transport::Iwarp, host_addresses, ..guest }
}

/// For [`LabOptions::host_says`]: gives the guest an iWARP function over the daemon's own TCP.
pub fn over_own_tcp(index: u8, guest: GuestConfig) -> GuestConfig {
    GuestConfig { transport: Transport::Iwarp, ..listed(index, guest) }
}

/// Gives a guest both functions: RoCE, and iWARP on a second socket.
pub fn with_both(guest: GuestConfig) -> GuestConfig {
    let iwarp = guest.socket.as_ref().map(|socket| socket.with_extension(SECOND));
    GuestConfig { transport: Transport::Both, iwarp, ..guest }
}

/// Extension of the second function's socket.
const SECOND: &str = "iwarp";

fn socket(dir: &Path, guest: u8) -> PathBuf {
    dir.join(format!("g{guest}.sock"))
}

fn net_socket(dir: &Path, guest: u8) -> PathBuf {
    dir.join(format!("g{guest}-net.sock"))
}
