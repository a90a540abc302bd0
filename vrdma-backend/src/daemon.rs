//! The daemon as a whole: workers, a session for each guest, and the admin socket.

use crate::admin::{Admin, Rights, Service};
use crate::capture::{Captures, Registry};
use crate::config::{Config, MeetingPlace, look_up_no_more_names};
use crate::guests::{CurrentConfig, GuestSockets, Manager, Roster, guest_sockets, listener};
use crate::jail::{Jail, Plan};
use crate::memory;
use crate::port::{self, Capture, CaptureFile, Eal, Faults, Port};
use crate::socket::{Inherited, Listener, SocketAccess, SocketWatch};
use crate::stats::{Observer, VERSION};
use crate::worker::{Stopped, Workers};
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};
use vrdma_admin::{ADMIN, OBSERVE};

pub use crate::device::latency::Histogram;
pub use crate::guests::{Change, ChangeAnswer, Changed, Loader, Refusal};
pub use crate::stats::{Connected, GuestStats, Link, Reachable, Stats, WorkerStats};

/// A running daemon. It stops when dropped.
#[derive(Debug)]
pub struct Daemon {
    /// It ends before the sockets do: dropping a socket deletes its file, which must not be bound
    /// again.
    watch: Option<SocketWatch>,
    // Admin thread and guests end before the workers, because they talk to them.
    admin: Option<Admin>,
    /// They stop before the admin thread does, which tells its clients of the ends, and are gone
    /// after it.
    captures: Option<Captures>,
    guests: Option<Manager>,
    observer: Observer,
    /// They end with this.
    _workers: Workers,
    /// The uplink of the configuration.
    uplink: Option<String>,
    ready: String,
}

/// What is known before the daemon runs, beside its configuration.
#[derive(Default)]
struct Surroundings {
    /// The jail that it is in.
    fence: Option<Plan>,
    /// Reads the configuration again.
    loader: Option<Loader>,
}

impl Daemon {
    /// Starts everything. After that, front-ends can connect.
    ///
    /// # Errors
    /// A socket or the uplink is not available, or the system is out of a resource. Nothing is left
    /// behind then.
    pub fn start(config: Config) -> Result<Daemon> {
        Daemon::start_in(config, None)
    }

    /// Starts everything, and enters the jail on the way: after sockets and uplink are there, and
    /// before anything of a guest is read.
    ///
    /// # Errors
    /// The errors of [`Daemon::start`] and of [`Jail::enter`].
    pub fn start_in(config: Config, jail: Option<Jail>) -> Result<Daemon> {
        config.check()?;
        // Sockets first. Another daemon that has them most likely uses the same uplink, and must
        // not notice this one.
        let sockets = Sockets::claim(&config)?;
        Daemon::with_uplink(&config, sockets, jail, None)
    }

    /// Starts everything as [`Daemon::start_in`] does. Admin sockets that the configuration does
    /// not name are at their usual places, if they can be there.
    ///
    /// `loader` reads the configuration file again, when that is asked for.
    ///
    /// # Errors
    /// The errors of [`Daemon::start_in`].
    pub fn start_program(config: &Config, jail: Jail, loader: Option<Loader>) -> Result<Daemon> {
        config.check()?;
        let mut sockets = Sockets::claim(config)?;
        sockets.claim_usual(config, jail.later_user());
        Daemon::with_uplink(config, sockets, Some(jail), loader)
    }

    fn with_uplink(
        config: &Config,
        sockets: Sockets,
        jail: Option<Jail>,
        loader: Option<Loader>,
    ) -> Result<Daemon> {
        let uplink = open_uplink(config).context("uplink")?;
        let mut fence = None;
        if let Some(jail) = jail {
            // Where it shows directories depends on the current one, which it may change.
            fence = Some(config.jail());
            jail.enter().context("jail")?;
            look_up_no_more_names();
        }
        Daemon::run(config, sockets, uplink, Surroundings { fence, loader })
    }

    /// Starts a daemon on a port that is open already, and ignores the configuration's uplink.
    ///
    /// # Errors
    /// The errors of [`Daemon::start`], except those of opening the uplink.
    pub fn start_with(config: Config, uplink: Option<Port>) -> Result<Daemon> {
        config.check_with(uplink.is_some())?;
        let sockets = Sockets::claim(&config)?;
        Daemon::run(&config, sockets, uplink, Surroundings::default())
    }

    fn run(
        config: &Config,
        sockets: Sockets,
        uplink: Option<Port>,
        surroundings: Surroundings,
    ) -> Result<Daemon> {
        let mtu = link_mtu(config, uplink.as_ref())?;
        // In the jail, no session may start a thread.
        memory::prepare_reaper();
        let (has_uplink, dma) = (uplink.is_some(), uplink.as_ref().and_then(Port::dma));
        let workers = Workers::start(config, mtu, uplink)?;
        let observer = Observer::new(workers.handles().to_vec());
        let (watch, ready) = (sockets.watch(), ready(config, &sockets));
        let uplink = config.uplink.as_ref().map(ToString::to_string);
        let max_mtu = workers.path_mtu()?;
        let members = workers.members();
        let watched = watch.as_ref().map(|watch| watch.sockets().clone());
        let mut daemon = Daemon {
            watch,
            admin: None,
            captures: None,
            guests: None,
            observer,
            _workers: workers,
            uplink,
            ready,
        };
        let Surroundings { fence, loader } = surroundings;
        let registry = Registry::default();
        // After the daemon, so that an error here ends its sessions before the workers.
        let mut roster = Roster {
            members,
            observer: daemon.observer.clone(),
            config: CurrentConfig::new(config.clone()),
            has_uplink,
            max_mtu,
            dma,
            watched,
            fence,
            is_draining: Arc::default(),
            readings: loader.map(|loader| (loader, config.clone())),
            captures: registry.clone(),
            sessions: HashMap::new(),
        };
        // The workers know all guests before any can connect, so that no guest takes an address
        // that another one lists.
        let guests = config.resolved_guests();
        let places = roster.members.place(config, &guests)?;
        roster.open(config, &guests, &places, sockets.guests)?;
        let (config, is_draining) = (roster.config.clone(), roster.is_draining.clone());
        let manager = Manager::start(roster).context("a thread for the guests")?;
        if !sockets.admin.is_empty() {
            let (observer, guests) = (daemon.observer.clone(), manager.guests_handle().clone());
            let captures = daemon.captures.insert(Captures::start(registry)?).handle().clone();
            let service = Service { observer, config, guests, captures, is_draining };
            daemon.admin = Some(Admin::start(sockets.admin, service).context("admin socket")?);
        }
        daemon.guests = Some(manager);
        Ok(daemon)
    }

    /// Changes the guests. The answer arrives when it is done.
    pub fn change(&self, change: Change) -> ChangeAnswer {
        let guests = self.guests.as_ref().expect("the daemon has started, and is not being dropped");
        guests.guests_handle().ask(change)
    }

    /// Returns the number of functions of all guests. Each may have a front-end.
    pub fn functions(&self) -> usize {
        self.observer.functions()
    }

    /// Returns the uplink of the configuration, as DPDK names it.
    pub fn uplink(&self) -> Option<&str> {
        self.uplink.as_deref()
    }

    /// Returns the counters for the operator.
    ///
    /// # Errors
    /// The worker has stopped.
    pub fn stats(&self) -> Result<Stats, Stopped> {
        let _held = self.observer.hold();
        self.observer.stats()
    }

    /// Returns a line that says what the daemon serves: version, sockets, uplink and size.
    pub fn ready(&self) -> &str {
        &self.ready
    }
}

/// Returns a line that says what a started daemon serves: version, sockets, uplink and size.
fn ready(config: &Config, sockets: &Sockets) -> String {
    let guests = config.guests.iter().map(|guest| {
        let sockets =
            [("RDMA", guest.rdma_place()), ("iWARP", guest.iwarp_place()), ("Ethernet", guest.net_place())];
        let sockets = sockets.into_iter().filter_map(|(name, place)| Some(format!("{name} {}", place?)));
        format!("guest {} ({})", guest.name, sockets.collect::<Vec<_>>().join(", "))
    });
    let uplink = config.uplink.as_ref().map_or("no uplink".to_owned(), |device| format!("uplink {device}"));
    let admin = sockets.admin.iter().map(|(listener, rights)| {
        let name = if *rights == Rights::Observe { "observe" } else { "admin" };
        format!("{name} socket {}", listener.name())
    });
    let admin = admin.reduce(|all, next| format!("{all}, {next}")).unwrap_or("no admin socket".into());
    let workers = match config.workers {
        1 => "1 worker".to_owned(),
        several => format!("{several} workers"),
    };
    format!(
        "ready: version {VERSION}, num_vqs={}, {workers}, {uplink}, {admin}, {}",
        config.num_queues(),
        guests.collect::<Vec<_>>().join(", ")
    )
}

/// Opens the uplink of the configuration, if there is one.
///
/// # Errors
/// EAL, the device, or the capture file is not available. The message says why and what helps.
fn open_uplink(config: &Config) -> Result<Option<Port>> {
    let Some(device) = &config.uplink else { return Ok(None) };
    // The capture file before the device: an error here has changed nothing.
    let capture = config
        .capture
        .as_ref()
        .map(|path| CaptureFile::open(path).with_context(|| format!("capture file {}", path.display())));
    let capture = capture.transpose()?;
    let eal = Eal::start(config.eal.as_deref().unwrap_or_default(), device)?;
    let mtu = config.uplink_mtu.map(u16::try_from).transpose()?;
    // A capture and injected faults need all frames in one order, so one worker handles them all.
    let is_watched = capture.is_some() || config.faults.is_some();
    if is_watched && config.workers > 1 {
        log::info!("uplink {device}: with a capture or faults the first worker sends and receives for all");
    }
    let workers = if is_watched { 1 } else { config.workers };
    let mut driver = port::open(eal, device, mtu, !config.no_zero_copy, workers)?;
    if let Some(file) = capture {
        driver = Box::new(Capture::new(driver, file)?);
    }
    if let Some(faults) = &config.faults {
        driver = Box::new(Faults::new(driver, faults.clone()));
    }
    Ok(Some(Port::new(driver)))
}

/// Returns the longest IP packet between guests and uplink, in bytes.
fn link_mtu(config: &Config, uplink: Option<&Port>) -> Result<u16> {
    let mtu = u16::try_from(config.mtu)?;
    let Some(port) = uplink else { return Ok(mtu) };
    let most = port.capabilities().mtu;
    if most < mtu {
        log::warn!(
            "guests' frames of more than {most} bytes are dropped, although mtu = {mtu}: that is the uplink's MTU; give it a larger one (uplink_mtu), or guests host_mtu={most}"
        );
    }
    Ok(mtu.min(most))
}

/// All sockets of the configuration.
struct Sockets {
    /// The admin sockets, each with what its clients may do.
    admin: Vec<(Arc<Listener>, Rights)>,
    /// For each of [`Config::resolved_guests`]: the sockets of its RDMA and of its Ethernet
    /// function.
    guests: Vec<GuestSockets>,
}

impl Sockets {
    fn claim(config: &Config) -> Result<Sockets> {
        // Before any socket is claimed: one of this process is none that it inherited.
        let mut inherited = Inherited::find()?;
        let mut sockets = Sockets { admin: Vec::new(), guests: Vec::new() };
        for (key, place, rights) in doors(config) {
            if let Some(place) = place {
                let listener = door(config, (key, place, rights), &mut inherited).context(key)?;
                sockets.admin.push((Arc::new(listener), rights));
            }
        }
        for guest in config.resolved_guests() {
            sockets.guests.push(guest_sockets(config, &guest, &mut inherited)?);
        }
        let left = inherited.left();
        if !left.is_empty() {
            log::warn!("descriptors that the service manager passed are used by nobody: {}", left.join(", "));
        }
        Ok(sockets)
    }

    /// Makes the admin sockets that the configuration does not name at their usual places.
    ///
    /// Where that cannot be, for instance because another daemon has them, a warning says so.
    ///
    /// `owner` is the user that the process becomes, with its group. A directory that is made here
    /// is theirs, so that they can remove the sockets.
    fn claim_usual(&mut self, config: &Config, owner: Option<(u32, u32)>) {
        let named = [
            config.admin.is_some() || config.admin_fd.is_some(),
            config.observe.is_some() || config.observe_fd.is_some(),
        ];
        let doors = doors(config).into_iter().zip(named);
        for ((key, _, rights), _) in doors.filter(|(_, is_named)| !is_named) {
            match usual_door(rights, owner) {
                Ok(listener) => self.admin.push((Arc::new(listener), rights)),
                Err(error) => log::warn!(
                    "there is no {key} socket ({error:#}): give --{key} PATH, or --{key} none if it is not wanted"
                ),
            }
        }
    }

    /// Starts the thread that binds sockets again after their files were deleted.
    ///
    /// It has the admin sockets. Those of guests are added with the guests.
    fn watch(&self) -> Option<SocketWatch> {
        let watch = SocketWatch::start()
            .inspect_err(|error| log::warn!("sockets whose files are deleted are not made again: {error:#}"))
            .ok()?;
        self.admin.iter().for_each(|(listener, _)| watch.sockets().add(listener));
        Some(watch)
    }
}

/// Returns the admin sockets: key, place in the configuration, and what clients may do.
fn doors(config: &Config) -> [(&'static str, Option<MeetingPlace<'_>>, Rights); 2] {
    let admin = if config.admin_fd.is_some() { "admin_fd" } else { "admin" };
    let observe = if config.observe_fd.is_some() { "observe_fd" } else { "observe" };
    [(admin, config.admin_place(), Rights::Administer), (observe, config.observe_place(), Rights::Observe)]
}

/// Opens an admin socket: its key in messages, its place, and what clients may do.
fn door(
    config: &Config,
    (key, place, rights): (&str, MeetingPlace<'_>, Rights),
    inherited: &mut Inherited,
) -> Result<Listener> {
    let access = match (rights, place) {
        // Who made an inherited one decides who may look.
        (Rights::Observe, _) => SocketAccess::to_observers(),
        (Rights::Administer, MeetingPlace::Descriptor(_)) => {
            SocketAccess::private_inherited(config.user.as_ref())
        }
        (Rights::Administer, _) => SocketAccess::private(),
    };
    listener(place, key, &access, inherited)
}

/// Makes an admin socket at its usual place, and the directory for this owner if it is missing.
fn usual_door(rights: Rights, owner: Option<(u32, u32)>) -> Result<Listener> {
    let path = Path::new(if rights == Rights::Observe { OBSERVE } else { ADMIN });
    if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
        make_directory(directory, owner).with_context(|| {
            format!("there is no directory {}, and it cannot be made", directory.display())
        })?;
    }
    match rights {
        Rights::Observe => Listener::claim(path, &SocketAccess::to_observers()),
        Rights::Administer => Listener::claim(path, &SocketAccess::private()),
    }
}

/// Makes a directory for sockets.
///
/// Others pass through it to the socket that they may open, and list nothing.
fn make_directory(directory: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    fs::create_dir(directory)?;
    // Whatever the umask is.
    fs::set_permissions(directory, fs::Permissions::from_mode(0o711))?;
    let (user, group) = owner.unzip();
    chown(directory, user, group)
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.watch = None;
        if let Some(captures) = &self.captures {
            captures.stop();
        }
        self.admin = None;
        self.captures = None;
        self.guests = None;
    }
}
