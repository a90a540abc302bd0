//! Answers about the daemon as a whole: guests, workers, ports, counters and the log.

use super::service::{Service, stopped, stuck};
use crate::config::{Config, MeetingPlace, Transport};
use crate::logger::{self, LogLevel};
use crate::nearest::no_such;
use crate::session::Presence;
use crate::stats::{Observed, VERSION};
use crate::worker::{Worker, WorkerAccount};
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::atomic::Ordering;
use std::time::Duration;
use vrdma_admin::Fault;
use vrdma_admin::daemon::{AllCounters, ConfigText, DaemonInfo, GetStats, LinkState};
use vrdma_admin::guest::{FunctionKind, Guest, GuestDetails, GuestFunction, Guests, Meeting, ShowGuest};
use vrdma_admin::log::{Level, LogBefore, LogState, SetLog};
use vrdma_admin::port::{OnePort, Port, PortKind, Ports, ShowPort, UPLINK};
use vrdma_admin::worker::WorkerList;

/// The shortest time between two replies with counters.
const SHORTEST: Duration = Duration::from_millis(100);
/// That time if the client names none.
const USUAL: Duration = Duration::from_secs(1);

/// Describes the daemon.
pub fn daemon(service: &Service) -> Result<DaemonInfo, Fault> {
    let Service { observer, config, is_draining, .. } = service;
    let config = config.get();
    Ok(DaemonInfo {
        version: VERSION.to_owned(),
        pid: std::process::id(),
        uptime: observer.started.elapsed().as_secs(),
        uplink: config.uplink.as_ref().map(|device| device.to_string()),
        link: link(service)?,
        workers: observer.workers.len() as u64,
        guests: observer.guests().len() as u64,
        queues: config.num_queues(),
        config: config.file.as_ref().map(|file| file.display().to_string()),
        draining: is_draining.load(Ordering::Relaxed),
    })
}

/// Returns all counters, and the time until they are to be sent again.
pub fn stats(service: &Service, get: GetStats) -> Result<(AllCounters, Duration), Fault> {
    let interval = get.interval.map_or(USUAL, Duration::from_millis);
    if interval < SHORTEST {
        let reason =
            format!("interval: {} is too short: give milliseconds, 100 or more", interval.as_millis());
        return Err(Fault::InvalidParameter { parameter: "interval".into(), reason });
    }
    let stats = object(&service.observer.stats().map_err(stopped)?);
    Ok((AllCounters { stats }, interval))
}

/// Returns the configuration as a file, with the level of the log as it is.
pub fn save(service: &Service) -> Result<ConfigText, Fault> {
    let start = service.config.get();
    let level = logger::level().filter(|_| start.log.is_some() || !logger::is_usual());
    let config = Config { log: level.or(start.log), ..Config::clone(&start) };
    let toml = config.to_toml();
    // A path that is not UTF-8 can be on the command line only, and not in a file.
    toml.map(|toml| ConfigText { toml }).map_err(|error| Fault::CannotSave { reason: format!("{error:#}") })
}

/// Has the daemon take nothing new, or take it again.
pub fn set_draining(service: &Service, is_draining: bool) {
    let before = service.is_draining.swap(is_draining, Ordering::SeqCst);
    if before != is_draining {
        let guests = service.observer.guests();
        let begins =
            if is_draining { "no new front-ends, queue pairs and connections" } else { "all is taken" };
        ::log::warn!("{begins} from here on, as an administrator says");
        for worker in &service.observer.workers {
            worker.tell(move |worker| worker.is_draining = is_draining);
        }
        guests.iter().flat_map(|guest| &guest.admissions).for_each(|each| each.set_draining(is_draining));
    }
}

/// Returns the guests that have sends that have not ended.
///
/// # Errors
/// A worker is stuck: whether its guests are busy is not known.
pub fn busy(service: &Service) -> Result<Vec<String>, Fault> {
    let guests = service.observer.guests();
    let is_busy =
        |worker: &mut Worker, guest: &Observed| worker.engine.counts(guest.place.device).pending_sends != 0;
    let mut busy = Vec::new();
    for (guest, is_busy) in guests.iter().zip(service.ask_all(&guests, is_busy)?) {
        if is_busy.ok_or_else(|| stuck(guest.place.number))? {
            busy.push(guest.name.clone());
        }
    }
    Ok(busy)
}

/// Lists the guests.
pub fn guests(service: &Service) -> Result<Guests, Fault> {
    let guests = service.observer.guests();
    let counts = service.ask_all(&guests, |worker, guest| worker.counts(guest.place.device))?;
    let counts = counts.into_iter().map(|counts| counts.map(|counts| object(&counts)));
    Ok(Guests { guests: guests.iter().zip(counts).map(|(guest, counts)| summary(guest, counts)).collect() })
}

/// Returns everything about a guest.
pub fn guest(service: &Service, show: &ShowGuest) -> Result<GuestDetails, Fault> {
    let guest = service.find_guest(&show.name)?;
    let stats = service.observer.of_guest(&guest).map_err(stopped)?;
    let mut counters = stats.map(|stats| object(&stats)).unwrap_or_default();
    // These are in `guest`.
    let objects = counters.remove("objects");
    counters.remove("name");
    counters.remove("connected");
    let objects = objects.and_then(|objects| objects.as_object().cloned());
    Ok(GuestDetails { guest: summary(&guest, objects), keys: object(&*guest.config), counters })
}

fn summary(guest: &Observed, objects: Option<Map<String, Value>>) -> Guest {
    let config = &*guest.config;
    let kind = if config.transport == Transport::Iwarp { FunctionKind::Iwarp } else { FunctionKind::Roce };
    let places = [(kind, config.rdma_place()), (FunctionKind::Ethernet, config.net_place())];
    let functions = places
        .into_iter()
        .zip(&guest.presence)
        .filter_map(|((kind, place), presence)| Some(function(kind, place?, presence.as_ref()?)));
    Guest {
        name: guest.name.clone(),
        mac: config.mac.to_string(),
        worker: guest.place.number as u64,
        functions: functions.collect(),
        objects,
    }
}

fn function(kind: FunctionKind, place: MeetingPlace<'_>, presence: &Presence) -> GuestFunction {
    let (pid, uid) = presence.peer().unzip();
    let (meets, socket) = match place {
        MeetingPlace::Socket(path) => (Meeting::Socket, Some(path)),
        MeetingPlace::Descriptor(_) => (Meeting::Fd, None),
        MeetingPlace::Connect(path) => (Meeting::Connect, Some(path)),
    };
    let socket = socket.map(|path| path.display().to_string());
    GuestFunction { kind, meets, socket, connected: presence.is_connected(), pid, uid }
}

/// Lists the workers.
pub fn workers(service: &Service) -> Result<WorkerList, Fault> {
    let guests = service.observer.guests();
    let workers = service.observer.workers.iter().enumerate().map(|(number, handle)| {
        let account = handle.call_unless_stuck(|worker: &mut Worker| worker.account()).map_err(stopped)?;
        let own = guests.iter().filter(|guest| guest.place.number == number);
        Ok(worker(number, own.map(|guest| guest.name.clone()).collect(), account))
    });
    Ok(WorkerList { workers: workers.collect::<Result<_, Fault>>()? })
}

fn worker(number: usize, guests: Vec<String>, account: Option<WorkerAccount>) -> vrdma_admin::worker::Worker {
    let of = |value: fn(&WorkerAccount) -> u64| account.as_ref().map(value);
    vrdma_admin::worker::Worker {
        number: number as u64,
        guests,
        stuck: account.is_none(),
        processor: of(|account| account.processor as u64),
        processor_time: of(|account| account.processor_time.as_micros() as u64),
        busy: of(|account| account.busy.as_micros() as u64),
        idle: of(|account| account.idle.as_micros() as u64),
        asleep: of(|account| account.asleep.as_micros() as u64),
        longest_turn: of(|account| account.longest_turn.as_micros() as u64),
        sleeps: of(|account| account.sleeps),
        busy_turns: of(|account| account.busy_turns),
        idle_turns: of(|account| account.idle_turns),
        requests: of(|account| account.requests),
    }
}

/// Lists the ports.
pub fn ports(service: &Service) -> Result<Ports, Fault> {
    let mut ports: Vec<Port> = uplink(service)?.into_iter().collect();
    let guests = service.observer.guests();
    let counters = service.ask_all(&guests, |worker, guest| worker.net.counters(guest.place.port))?;
    for (guest, counters) in guests.iter().zip(counters) {
        let counters = counters.map(|counters| object(&counters));
        // A guest without an Ethernet function has no port.
        let [_, Some(presence)] = &guest.presence else { continue };
        ports.push(Port {
            name: guest.name.clone(),
            kind: PortKind::Guest,
            up: presence.is_connected(),
            mtu: None,
            counters,
        });
    }
    Ok(Ports { ports })
}

/// Returns a port.
pub fn port(service: &Service, show: &ShowPort) -> Result<OnePort, Fault> {
    let ports = ports(service)?.ports;
    let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let not_found = || {
        let reason = no_such("port", &show.name, &names);
        Fault::PortNotFound { name: show.name.clone(), reason }
    };
    let port = ports.iter().find(|port| port.name == show.name).ok_or_else(not_found)?;
    Ok(OnePort { port: port.clone() })
}

fn link(service: &Service) -> Result<Option<LinkState>, Fault> {
    // Only the first worker watches the link.
    let link = service.observer.workers[0].call_unless_stuck(|worker| worker.link()).map_err(stopped)?;
    Ok(link.flatten().map(|(up, mtu)| LinkState { up, mtu }))
}

fn uplink(service: &Service) -> Result<Option<Port>, Fault> {
    let Some(LinkState { up, mtu }) = link(service)? else { return Ok(None) };
    let stats = service.observer.stats().map_err(stopped)?;
    let port = Port {
        name: UPLINK.to_owned(),
        kind: PortKind::Uplink,
        up,
        mtu: Some(mtu.into()),
        counters: Some(object(&stats.uplink)),
    };
    Ok(Some(port))
}

/// Returns what is logged.
pub fn log_state() -> LogState {
    LogState { level: logger::level().map(outer) }
}

/// Sets what is logged.
pub fn set_log(set: SetLog) -> Result<LogBefore, Fault> {
    let before = logger::set(inner(set.level));
    let before = before.map_err(|fixed| Fault::LogFixed { reason: fixed.to_string() })?;
    let level = format!("{:?}", set.level).to_lowercase();
    ::log::warn!("the log has level {level} from here on, as an administrator says");
    Ok(LogBefore { before: before.map(outer) })
}

fn outer(level: LogLevel) -> Level {
    match level {
        LogLevel::Error => Level::Error,
        LogLevel::Warn => Level::Warn,
        LogLevel::Info => Level::Info,
        LogLevel::Debug => Level::Debug,
        LogLevel::Trace => Level::Trace,
    }
}

fn inner(level: Level) -> LogLevel {
    match level {
        Level::Error => LogLevel::Error,
        Level::Warn => LogLevel::Warn,
        Level::Info => LogLevel::Info,
        Level::Debug => LogLevel::Debug,
        Level::Trace => LogLevel::Trace,
    }
}

/// Returns a structure as JSON. It is empty if one of its paths is not UTF-8.
fn object(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}
