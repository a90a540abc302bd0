//! The guests that are served, and how they come, change and leave.

use super::change::{Change, Changed, Refusal};
use super::current::CurrentConfig;
use super::difference::Difference;
use super::fence;
use super::sockets::{GuestSockets, guest_sockets};
use crate::capture::Registry;
use crate::config::{Config, GuestConfig, MeetingPlace, Qos, QosChange};
use crate::functions::{EthernetFunction, RdmaFunction};
use crate::jail::Plan;
use crate::logger::{self, LogLevel};
use crate::port::Dma;
use crate::service;
use crate::session::{Presence, Session};
use crate::socket::{Inherited, Listener, SocketSide, WatchedSockets};
use crate::stats::{Observed, Observer};
use crate::worker::{GuestPlacement, Members, Stopped};
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use vrdma_wire::num::Mtu;

/// Reads the configuration again.
pub type Loader = Box<dyn Fn() -> Result<Config> + Send>;

/// How long the last user of a socket may take to let go of it.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often to look whether it has.
const LOOK: Duration = Duration::from_millis(1);

/// The guests that are served, with their sessions. Dropping this ends the sessions.
pub struct Roster {
    /// Adds guests to workers.
    pub members: Members,
    /// What others see of the guests.
    pub observer: Observer,
    /// The configuration as it is.
    pub config: CurrentConfig,
    /// Whether there is an uplink.
    pub has_uplink: bool,
    /// The largest path MTU of RDMA functions.
    pub max_mtu: Mtu,
    /// The uplink's device, which has to know guests' memory.
    pub dma: Option<Dma>,
    /// The sockets that are made again when their files are deleted.
    pub watched: Option<WatchedSockets>,
    /// The jail that the daemon is in, if any.
    pub fence: Option<Plan>,
    /// Whether the daemon takes no new front-ends.
    pub is_draining: Arc<AtomicBool>,
    /// Reads the configuration again; and how it was read last.
    pub readings: Option<(Loader, Config)>,
    /// The captures of administrators. Those of a guest end with it.
    pub captures: Registry,
    /// The sessions of each guest, by its name in the configuration.
    pub sessions: HashMap<String, Vec<Session>>,
}

impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roster").field("sessions", &self.sessions.keys()).finish_non_exhaustive()
    }
}

impl From<Stopped> for Refusal {
    fn from(_: Stopped) -> Refusal {
        Refusal::Stopping
    }
}

impl Roster {
    /// Carries out a change.
    ///
    /// # Errors
    /// It is refused. Nothing is changed then, unless the refusal says so.
    pub fn carry_out(&mut self, change: &Change) -> Result<Changed, Refusal> {
        if let Some(worker) = self.members.handles().iter().position(|worker| worker.is_stuck()) {
            return Err(Refusal::Stuck(worker));
        }
        let done = match change {
            Change::Add { keys } => self.add_by_keys(keys),
            Change::Remove { name, is_forced } => self.remove(name, *is_forced),
            Change::Set { name, keys } => self.set_by_keys(name, keys),
            Change::Reload => self.reload(),
        }?;
        service::functions(self.observer.functions());
        Ok(done)
    }

    fn add_by_keys(&mut self, keys: &str) -> Result<Changed, Refusal> {
        let guest: GuestConfig = keys.parse().map_err(|error| Refusal::mistaken(&error))?;
        let mut after = Config::clone(&self.config.get());
        after.guests.push(guest.clone());
        self.check(&after, std::slice::from_ref(&guest))?;
        let sockets = self.claim(&after, &guest)?;
        let name = guest.name.clone();
        self.add(after, &guest, sockets)?;
        log::info!(guest:% = name; "guest {name} is added, as an administrator says");
        Ok(Changed { added: vec![name], ..Changed::default() })
    }

    /// Checks a configuration that is to be that of the running daemon. These guests are new.
    fn check(&self, config: &Config, new: &[GuestConfig]) -> Result<(), Refusal> {
        config.check_running(self.has_uplink).map_err(|error| Refusal::mistaken(&error))?;
        if let Some(fence) = &self.fence {
            fence::check(fence, config).map_err(Refusal::Impossible)?;
        }
        for guest in new {
            ensure_no_descriptor(guest)?;
            // Only here is it known that the jail allows it.
            guest.check_host_addresses().map_err(|error| Refusal::mistaken(&error))?;
        }
        Ok(())
    }

    /// Opens the sockets of a guest that is to come, once for each of its RDMA functions.
    fn claim(&self, config: &Config, guest: &GuestConfig) -> Result<Vec<GuestSockets>, Refusal> {
        let functions = config.resolved(guest, self.worker_for(guest));
        let open = |function: &GuestConfig| guest_sockets(config, function, &mut Inherited::nothing());
        let opened: Result<_> = functions.iter().map(open).collect();
        opened.map_err(|error| Refusal::impossible(&error))
    }

    /// Returns the worker of a guest that is to come: the one that it names, else one with few
    /// guests.
    fn worker_for(&self, guest: &GuestConfig) -> u16 {
        let guests = self.observer.guests();
        let count = |worker: usize| {
            guests.iter().filter(|guest| guest.place.number == worker && !guest.is_beside).count()
        };
        let least = (0..self.members.handles().len()).min_by_key(|worker| count(*worker));
        guest.worker.unwrap_or_else(|| least.unwrap_or_default() as u16)
    }

    /// Adds a guest whose configuration is checked and whose sockets are open. `after` is the
    /// configuration with it.
    fn add(&mut self, after: Config, guest: &GuestConfig, sockets: Vec<GuestSockets>) -> Result<(), Refusal> {
        let functions = after.resolved(guest, self.worker_for(guest));
        let mut all = self.all_functions();
        all.extend(functions.iter().cloned());
        let places = self.members.admit(&after, &functions, &all)?;
        let opened = self.open(&after, &functions, &places, sockets);
        if let Err(error) = opened {
            // What was started ends again.
            self.sessions.remove(&guest.name);
            self.dismiss(&guest.name, &functions, &places)?;
            return Err(Refusal::impossible(&error));
        }
        self.config.set(after);
        Ok(())
    }

    /// Opens a guest to front-ends: starts the sessions of all its functions.
    ///
    /// # Errors
    /// The system is out of a resource. Some of the sessions may run.
    pub fn open(
        &mut self,
        config: &Config,
        functions: &[GuestConfig],
        places: &[GuestPlacement],
        sockets: Vec<GuestSockets>,
    ) -> Result<()> {
        for ((guest, place), [rdma, net]) in functions.iter().zip(places).zip(sockets) {
            let listeners = [&rdma, &net].map(|side| side.as_ref()?.listener().map(Arc::downgrade));
            let admissions: Vec<_> =
                [&rdma, &net].into_iter().flatten().map(|side| side.admission().clone()).collect();
            if let Some(watched) = &self.watched {
                let sides = [&rdma, &net].into_iter().flatten();
                sides.filter_map(SocketSide::listener).for_each(|listener| watched.add(listener));
            }
            // Before a front-end can come.
            let drains = self.is_draining.load(Ordering::SeqCst);
            admissions.iter().for_each(|admission| admission.set_draining(drains));
            let sessions = self.start_sessions(config, guest, place, [rdma, net]);
            let [rdma, net] = sessions.with_context(|| format!("guest {}", guest.name))?;
            let presence = [&rdma, &net].map(|session| session.as_ref().map(Session::presence));
            let sessions = self.sessions.entry(guest.configured_name().to_owned()).or_default();
            sessions.extend([rdma, net].into_iter().flatten());
            let (name, is_beside) = (guest.name.clone(), guest.is_beside);
            let (config, place) = (Arc::new(guest.clone()), place.clone());
            let gates = admissions.clone();
            self.observer.add(Observed { name, config, place, presence, listeners, admissions, is_beside });
            // After that: an administrator who begins a drain finds the guest in the list, or else
            // this finds the drain.
            let drains = self.is_draining.load(Ordering::SeqCst);
            gates.iter().filter(|_| drains).for_each(|gate| gate.set_draining(true));
        }
        Ok(())
    }

    fn start_sessions(
        &self,
        config: &Config,
        guest: &GuestConfig,
        place: &GuestPlacement,
        [rdma, net]: GuestSockets,
    ) -> Result<[Option<Session>; 2]> {
        // Only the worker of the uplink pins guest memory for it.
        let dma = self.dma.as_ref().filter(|_| place.number == 0).map(Dma::of_another);
        let rdma = rdma.map(|socket| {
            let function = RdmaFunction::new(place.worker.clone(), place.device, config, guest, self.max_mtu);
            Session::start(guest, socket, function.with_dma(dma))
        });
        let net = net.map(|socket| {
            let memory_max = config.limits_of(guest).memory_bytes();
            let function = EthernetFunction::new(place.worker.clone(), place.port, memory_max);
            Session::start(guest, socket, function)
        });
        Ok([rdma.transpose()?, net.transpose()?])
    }

    fn remove(&mut self, name: &str, is_forced: bool) -> Result<Changed, Refusal> {
        let own = self.functions_of(name)?;
        if !is_forced {
            Self::ensure_unused(name, &own)?;
        }
        let mut after = Config::clone(&self.config.get());
        after.guests.retain(|guest| guest.name != name);
        self.end(name, &own)?;
        self.config.set(after);
        log::info!(guest:% = name; "guest {name} is removed, as an administrator says");
        Ok(Changed { removed: vec![name.to_owned()], ..Changed::default() })
    }

    /// Fails if a front-end of a guest is connected. If none is, none is let in any more.
    fn ensure_unused(name: &str, functions: &[Observed]) -> Result<(), Refusal> {
        let presences: Vec<_> = functions.iter().flat_map(|each| each.presence.iter().flatten()).collect();
        let is_connected = || presences.iter().any(|presence| presence.is_connected());
        // No front-end is turned away for a removal that is refused.
        if !is_connected() {
            set_leaving(functions, true);
            if !is_connected() {
                return Ok(());
            }
            set_leaving(functions, false);
        }
        let mut pids: Vec<u32> = presences.iter().filter_map(|presence| Some(presence.peer()?.0)).collect();
        pids.sort_unstable();
        pids.dedup();
        let of = match &pids[..] {
            [] => String::new(),
            [pid] => format!(" (process {pid})"),
            several => {
                format!(" (processes {})", several.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))
            }
        };
        let reason = format!(
            "guest {name}: its front-end is connected{of}: stop that VM, or remove the guest by force: it then loses its devices, and goes on without them"
        );
        Err(Refusal::InUse { name: name.to_owned(), pids, reason })
    }

    /// Ends a guest, whether a front-end is connected or not.
    fn end(&mut self, name: &str, own: &[Observed]) -> Result<(), Refusal> {
        set_leaving(own, true);
        for function in own {
            if function.presence[0].as_ref().is_some_and(Presence::is_connected) {
                let device = function.place.device;
                function.place.worker.call(move |worker| worker.announce_loss(device))?;
            }
        }
        // Their threads end here, and with them the sockets.
        self.sessions.remove(name);
        let listeners = own.iter().flat_map(|function| function.listeners.iter().flatten());
        listeners.for_each(wait_for_last);
        let functions: Vec<GuestConfig> = own.iter().map(|function| (*function.config).clone()).collect();
        let places: Vec<GuestPlacement> = own.iter().map(|function| function.place.clone()).collect();
        Ok(self.dismiss(name, &functions, &places)?)
    }

    /// Has the workers forget a guest whose sessions have ended.
    fn dismiss(
        &self,
        name: &str,
        functions: &[GuestConfig],
        places: &[GuestPlacement],
    ) -> Result<(), Stopped> {
        {
            // Who asked a worker about the guest has its answer, and nobody asks later. A worker
            // that is stuck keeps nobody here.
            let _alone = self.observer.membership.write().expect("no thread panics with it");
            self.observer.remove(name);
        }
        // After that none begins. The guest's addresses may be those of another one later.
        self.captures.guest_left(name);
        self.members.dismiss(functions, places, &self.all_functions())
    }

    fn all_functions(&self) -> Vec<GuestConfig> {
        self.observer.guests().iter().map(|guest| (*guest.config).clone()).collect()
    }

    /// Returns the functions of a guest.
    fn functions_of(&self, name: &str) -> Result<Vec<Observed>, Refusal> {
        let mut guests = self.observer.guests();
        guests.retain(|guest| guest.config.configured_name() == name);
        if guests.is_empty() {
            let config = self.config.get();
            let known: Vec<&str> = config.guests.iter().map(|guest| guest.name.as_str()).collect();
            return Err(Refusal::no_guest(name, &known));
        }
        Ok(guests)
    }

    fn set_by_keys(&mut self, name: &str, keys: &str) -> Result<Changed, Refusal> {
        let own = self.functions_of(name)?;
        let change: QosChange = keys.parse().map_err(|error| Refusal::mistaken(&error))?;
        let qos = change.over(&own[0].config.qos());
        let mut after = Config::clone(&self.config.get());
        for guest in after.guests.iter_mut().filter(|guest| guest.name == name) {
            guest.set_qos(&qos);
        }
        self.check(&after, &[])?;
        self.set(&own, &qos)?;
        self.config.set(after);
        log::info!(guest:% = name; "guest {name} is changed, as an administrator says: {keys}");
        Ok(Changed { changed: vec![name.to_owned()], ..Changed::default() })
    }

    fn set(&self, own: &[Observed], qos: &Qos) -> Result<(), Refusal> {
        for function in own {
            self.members.set_qos(&function.place, *qos)?;
            self.observer.set_qos(&function.name, qos);
        }
        Ok(())
    }

    fn reload(&mut self) -> Result<Changed, Refusal> {
        let Some((load, last)) = &self.readings else {
            return Err(Refusal::NothingToRead);
        };
        let now = self.config.get();
        if let Some(fence) = &self.fence {
            fence::check_file(fence, &now).map_err(Refusal::Impossible)?;
        }
        let new = load().map_err(|error| Refusal::mistaken(&error))?;
        if new.guests.is_empty() && !last.guests.is_empty() {
            return Err(Refusal::Mistaken(
                "the configuration has no guest: is its file whole? `vrdma-ctl guest remove` removes the last guests"
                    .to_owned(),
            ));
        }
        let found = Difference::of(last, &new, &now).map_err(|error| Refusal::mistaken(&error))?;
        let after = found.applied(&now);
        self.check(&after, &found.add)?;
        if found.log.is_some() && logger::is_fixed() {
            return Err(Refusal::Impossible(
                "log: RUST_LOG says what is logged, until the daemon's end".to_owned(),
            ));
        }
        let leaving = self.leaving(&found)?;
        for (name, functions) in &leaving {
            if let Err(refusal) = Self::ensure_unused(name, functions) {
                let_in_again(&leaving);
                return Err(refusal);
            }
        }
        // Sockets of new guests before anything ends, but those at places that are in use until
        // then.
        let mut claimed = HashMap::new();
        let left: Vec<&Path> = leaving
            .iter()
            .flat_map(|(_, functions)| functions)
            .flat_map(|each| paths_of(&each.config))
            .collect();
        let is_free = |guest: &&GuestConfig| !paths_of(guest).any(|path| left.contains(&path));
        for guest in found.add.iter().filter(is_free) {
            match self.claim(&after, guest) {
                Ok(sockets) => _ = claimed.insert(guest.name.clone(), sockets),
                Err(refusal) => {
                    let_in_again(&leaving);
                    return Err(refusal);
                }
            }
        }
        if let Err(refusal) = self.apply(&found, &leaving, claimed) {
            return Err(self.undo(&now, refusal));
        }
        if let Some((_, last)) = &mut self.readings {
            *last = new;
        }
        let done = names_of(&found);
        let told = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        log::info!(
            "the configuration was read again: guests added: {}; removed: {}; changed: {}",
            told(&done.added),
            told(&done.removed),
            told(&done.changed)
        );
        Ok(done)
    }

    /// Returns the guests that a difference takes away, with their functions.
    fn leaving<'a>(&self, found: &'a Difference) -> Result<Vec<(&'a String, Vec<Observed>)>, Refusal> {
        found.remove.iter().map(|name| Ok((name, self.functions_of(name)?))).collect()
    }

    /// Makes the guests what they were, after a change of them has failed half way.
    ///
    /// Returns the refusal, with what could not be undone.
    fn undo(&mut self, before: &Config, refusal: Refusal) -> Refusal {
        let now = self.config.get();
        let back = match Difference::of(&now, before, &now) {
            Ok(back) => back,
            Err(error) => return Refusal::Impossible(format!("{refusal}; it is not undone: {error:#}")),
        };
        // Each guest by itself, so that one that cannot be had keeps no other away.
        let steps =
            back.remove.iter().map(|name| Difference { remove: vec![name.clone()], ..Difference::default() });
        let set = back.set.iter().map(|set| Difference { set: vec![set.clone()], ..Difference::default() });
        let add =
            back.add.iter().map(|guest| Difference { add: vec![guest.clone()], ..Difference::default() });
        let undo = |step: Difference| {
            let leaving = self.leaving(&step)?;
            self.apply(&step, &leaving, HashMap::new())
        };
        let errors: Vec<String> = steps
            .chain(set)
            .chain(add)
            .map(undo)
            .filter_map(Result::err)
            .map(|error| error.to_string())
            .collect();
        if errors.is_empty() {
            return refusal;
        }
        Refusal::Impossible(format!(
            "{refusal}; some guests are not as they were ({}): `vrdma-ctl list` shows those that there are",
            errors.join("; ")
        ))
    }

    /// Does what a new reading of the configuration asks for.
    ///
    /// # Errors
    /// The host refuses something. A part of it may be done.
    fn apply(
        &mut self,
        found: &Difference,
        leaving: &[(&String, Vec<Observed>)],
        mut claimed: HashMap<String, Vec<GuestSockets>>,
    ) -> Result<(), Refusal> {
        let mut config = Config::clone(&self.config.get());
        for (name, functions) in leaving {
            self.end(name, functions)?;
            config.guests.retain(|guest| guest.name != **name);
            self.config.set(config.clone());
        }
        for (name, qos) in &found.set {
            self.set(&self.functions_of(name)?, qos)?;
            config.guests.iter_mut().filter(|guest| guest.name == *name).for_each(|guest| guest.set_qos(qos));
            self.config.set(config.clone());
        }
        for guest in &found.add {
            config.guests.push(guest.clone());
            let sockets = match claimed.remove(&guest.name) {
                Some(sockets) => sockets,
                None => self.claim(&config, guest)?,
            };
            self.add(config.clone(), guest, sockets)?;
        }
        if let Some(level) = found.log {
            config.log = level;
            self.config.set(config);
            if let Err(error) = logger::set(level.unwrap_or(LogLevel::Info)) {
                log::warn!("log: {error}");
            }
        }
        Ok(())
    }
}

/// Lets front-ends of guests in that were to leave, and stay.
fn let_in_again(leaving: &[(&String, Vec<Observed>)]) {
    leaving.iter().for_each(|(_, functions)| set_leaving(functions, false));
}

/// Sets whether functions of a guest are about to be removed, and so let no front-end in.
fn set_leaving(functions: &[Observed], leaves: bool) {
    functions.iter().flat_map(|each| &each.admissions).for_each(|admission| admission.set_leaving(leaves));
}

/// Returns the paths of a guest's sockets.
fn paths_of(guest: &GuestConfig) -> impl Iterator<Item = &Path> {
    let places = [guest.rdma_place(), guest.iwarp_place(), guest.net_place()];
    places.into_iter().flatten().filter_map(|place| match place {
        MeetingPlace::Socket(path) => Some(path),
        MeetingPlace::Descriptor(_) | MeetingPlace::Connect(_) => None,
    })
}

/// Returns the names of guests that a difference is about.
fn names_of(found: &Difference) -> Changed {
    let is_anew = |name: &String| found.add.iter().any(|guest| guest.name == *name);
    let (anew, removed): (Vec<String>, Vec<String>) = found.remove.iter().cloned().partition(is_anew);
    let new = found.add.iter().map(|guest| guest.name.clone());
    Changed {
        added: new.filter(|name| !anew.contains(name)).collect(),
        removed,
        changed: found.set.iter().map(|(name, _)| name.clone()).chain(anew.iter().cloned()).collect(),
    }
}

/// Fails if a guest that is to come would inherit a socket.
fn ensure_no_descriptor(guest: &GuestConfig) -> Result<(), Refusal> {
    let places = [guest.rdma_place(), guest.iwarp_place(), guest.net_place()];
    for place in places.into_iter().flatten() {
        if let MeetingPlace::Descriptor(descriptor) = place {
            let name = &guest.name;
            return Err(Refusal::Impossible(format!(
                "guest {name}: descriptor {descriptor}: a daemon inherits descriptors at its start alone; give a path, or restart it"
            )));
        }
    }
    Ok(())
}

/// Waits until a socket has no user. The thread that watches its file may be the last one.
fn wait_for_last(listener: &Weak<Listener>) {
    let until = Instant::now() + PATIENCE;
    while listener.strong_count() != 0 {
        if Instant::now() >= until {
            log::warn!("the socket of a guest that is removed is still in use after {PATIENCE:?}");
            return;
        }
        std::thread::sleep(LOOK);
    }
}
