//! Answers calls: finds the method, checks the client's rights, and has the method answered.

use super::capture::{self, ClientCapture};
use super::objects;
use super::overview;
use super::parameters::parse;
use super::service::{Rights, Service, stuck};
use crate::capture::SentDescriptor;
use crate::guests::{Change, ChangeAnswer, Changed, Refusal};
use crossbeam_channel::TryRecvError;
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vrdma_admin::service::{Description, GetDescription, GetService, ServiceInfo};
use vrdma_admin::{
    Call, Fault, INTERFACES, Method, Reply, daemon, guest, interface, log, mr, port, qp, worker,
};

/// An answer to a call.
#[derive(Debug)]
pub enum Answer {
    /// The only reply, or the last one of several.
    Once(Reply),
    /// A reply of several, and the time from one to the next. A client that does not take several
    /// gets this one.
    Each(Reply, Duration),
    /// The reply comes when this is done.
    Later(ReplyToCome),
    /// A capture, which has several replies. It ends with the client.
    Capture(Box<ClientCapture>),
}

/// A change of the guests that is being carried out, for a call.
#[derive(Debug)]
pub struct ReplyToCome {
    answer: ChangeAnswer,
    reply: ReplyMaker,
}

/// Makes the reply to a call of what became of its change.
type ReplyMaker = fn(Result<Changed, Refusal>) -> Result<Reply, Fault>;

impl ReplyToCome {
    /// Returns the reply, if the change is done.
    pub fn reply(&self) -> Option<Reply> {
        let result = match self.answer.try_recv() {
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err(Refusal::Stopping),
            Ok(result) => result,
        };
        Some((self.reply)(result).unwrap_or_else(|fault| Reply::fault(&fault)))
    }
}

/// How often to look whether guests are busy.
const LOOK: Duration = Duration::from_millis(100);

/// Methods that those may call who look. All others change something.
const LOOKING: [&str; 14] = [
    GetService::NAME,
    GetDescription::NAME,
    daemon::GetDaemon::NAME,
    daemon::GetStats::NAME,
    daemon::SaveConfig::NAME,
    guest::ListGuests::NAME,
    guest::ShowGuest::NAME,
    log::GetLog::NAME,
    mr::ListMrs::NAME,
    port::ListPorts::NAME,
    port::ShowPort::NAME,
    qp::ListQps::NAME,
    qp::ShowQp::NAME,
    worker::ListWorkers::NAME,
];

/// Which reply to a call is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The first one, or the only one.
    First,
    /// One more of several.
    Next,
}

/// Answers a request that is a line, of clients that do not speak varlink.
pub fn answer_line(service: &Service, line: &[u8]) -> String {
    let text = match line.trim_ascii() {
        b"stats" => {
            let _held = service.observer.hold();
            service.observer.stats().map(|stats| serde_json::to_string(&stats).expect("counters are JSON"))
        }
        _ => Ok(r#"{"error":"unknown request; known: stats"}"#.to_owned()),
    };
    text.unwrap_or_else(|error| format!(r#"{{"error":"{error}"}}"#)) + "\n"
}

/// Answers a call of a client with these rights.
///
/// # Errors
/// The call is refused.
pub fn answer(service: &Service, call: &Call, rights: Rights, turn: Turn) -> Result<Answer, Fault> {
    let method = permitted(call, rights)?;
    if call.method == daemon::GetStats::NAME {
        let _held = service.observer.hold();
        let (stats, interval) = overview::stats(service, parse(call.parameters.clone())?)?;
        return Ok(Answer::Each(Reply::of(&stats), interval));
    }
    if let Some(later) = change(service, call)? {
        return Ok(Answer::Later(later));
    }
    // No guest leaves while its worker is asked about it.
    let _held = service.observer.hold();
    if call.method == daemon::Drain::NAME {
        let reply = once(call, |_: daemon::Drain| {
            if turn == Turn::First {
                overview::set_draining(service, true);
            }
            overview::busy(service).map(|busy| daemon::Drained { busy })
        })?;
        let is_idle = reply.parameters.as_ref().is_some_and(|found| found["busy"] == json!([]));
        // Another client may have ended it.
        let is_over = is_idle || !service.is_draining.load(Ordering::Relaxed);
        return Ok(if is_over { Answer::Once(reply) } else { Answer::Each(reply, LOOK) });
    }
    let reply = match call.method.as_str() {
        GetService::NAME => once(call, |_: GetService| Ok(service_info()))?,
        GetDescription::NAME => once(call, description)?,
        daemon::GetDaemon::NAME => once(call, |_: daemon::GetDaemon| overview::daemon(service))?,
        daemon::SaveConfig::NAME => once(call, |_: daemon::SaveConfig| overview::save(service))?,
        daemon::Resume::NAME => {
            overview::set_draining(service, false);
            once(call, |_: daemon::Resume| Ok(daemon::Resumed {}))?
        }
        guest::ListGuests::NAME => once(call, |_: guest::ListGuests| overview::guests(service))?,
        guest::ShowGuest::NAME => once(call, |show| overview::guest(service, &show))?,
        log::GetLog::NAME => once(call, |_: log::GetLog| Ok(overview::log_state()))?,
        log::SetLog::NAME => once(call, overview::set_log)?,
        mr::ListMrs::NAME => once(call, |list| objects::mrs(service, &list, rights))?,
        port::ListPorts::NAME => once(call, |_: port::ListPorts| overview::ports(service))?,
        port::ShowPort::NAME => once(call, |show| overview::port(service, &show))?,
        qp::ListQps::NAME => once(call, |list| objects::qps(service, &list))?,
        qp::ShowQp::NAME => once(call, |show| objects::qp(service, &show, rights))?,
        worker::ListWorkers::NAME => once(call, |_: worker::ListWorkers| overview::workers(service))?,
        _ => return Err(Fault::MethodNotImplemented { method: method.to_owned() }),
    };
    Ok(Answer::Once(reply))
}

/// Begins a capture to a descriptor that came with a call.
///
/// # Errors
/// The call is refused.
pub fn answer_capture(
    service: &Service,
    call: &Call,
    rights: Rights,
    descriptor: Option<SentDescriptor>,
) -> Result<Answer, Fault> {
    permitted(call, rights)?;
    capture::begin(service, call, descriptor).map(|capture| Answer::Capture(Box::new(capture)))
}

/// Returns the name of the method that a call names, if the client may call it.
fn permitted(call: &Call, rights: Rights) -> Result<&str, Fault> {
    let method = known(call)?;
    let is_allowed = rights == Rights::Administer || LOOKING.contains(&method);
    if is_allowed { Ok(method) } else { Err(Fault::PermissionDenied {}) }
}

/// Begins a change of the guests, if the call asks for one.
fn change(service: &Service, call: &Call) -> Result<Option<ReplyToCome>, Fault> {
    let parameters = || call.parameters.clone();
    let (change, reply): (Change, ReplyMaker) = match call.method.as_str() {
        guest::AddGuest::NAME => {
            let guest::AddGuest { guest } = parse(parameters())?;
            let reply = |done| refusal(done, "guest").map(|_| Reply::of(&guest::GuestAdded {}));
            (Change::Add { keys: guest }, reply)
        }
        guest::RemoveGuest::NAME => {
            let guest::RemoveGuest { name, force } = parse(parameters())?;
            let reply = |done| refusal(done, "name").map(|_| Reply::of(&guest::GuestRemoved {}));
            (Change::Remove { name, is_forced: force.unwrap_or_default() }, reply)
        }
        guest::SetGuest::NAME => {
            let guest::SetGuest { name, keys } = parse(parameters())?;
            let reply = |done| refusal(done, "keys").map(|_| Reply::of(&guest::GuestSet {}));
            (Change::Set { name, keys }, reply)
        }
        daemon::Reload::NAME => {
            let daemon::Reload {} = parse(parameters())?;
            (Change::Reload, reloaded)
        }
        _ => return Ok(None),
    };
    Ok(Some(ReplyToCome { answer: service.guests.ask(change), reply }))
}

fn reloaded(done: Result<Changed, Refusal>) -> Result<Reply, Fault> {
    match done {
        Err(Refusal::Stuck(worker)) => Err(stuck(worker)),
        Err(Refusal::Stopping) => Err(Fault::Stopping {}),
        Err(refusal) => Err(Fault::NotReloaded { reason: refusal.to_string() }),
        Ok(Changed { added, removed, changed }) => {
            Ok(Reply::of(&daemon::Reloaded { added, removed, changed }))
        }
    }
}

/// Returns the fault for a refusal. A mistake is in this parameter.
fn refusal(done: Result<Changed, Refusal>, parameter: &str) -> Result<Changed, Fault> {
    done.map_err(|refusal| match refusal {
        Refusal::NoGuest { name, reason } => Fault::GuestNotFound { name, reason },
        Refusal::InUse { name, pids, reason } => Fault::GuestInUse { name, pids, reason },
        Refusal::Mistaken(reason) => Fault::InvalidParameter { parameter: parameter.to_owned(), reason },
        Refusal::Impossible(_) | Refusal::NothingToRead => {
            Fault::GuestRefused { reason: refusal.to_string() }
        }
        Refusal::Stuck(worker) => stuck(worker),
        Refusal::Stopping => Fault::Stopping {},
    })
}

/// Parses the parameters of a call, and answers it.
fn once<M: Method>(call: &Call, answer: impl FnOnce(M) -> Result<M::Output, Fault>) -> Result<Reply, Fault> {
    answer(parse(call.parameters.clone())?).map(|result| Reply::of(&result))
}

/// Returns the name of the method that a call names, if there is one.
fn known(call: &Call) -> Result<&str, Fault> {
    let (of, method) = call.target().unwrap_or(("", call.method.as_str()));
    let interface = interface(of).ok_or_else(|| Fault::InterfaceNotFound { interface: of.to_owned() })?;
    let is_there = interface.methods().any(|known| known == method);
    if is_there { Ok(&call.method) } else { Err(Fault::MethodNotFound { method: call.method.clone() }) }
}

fn service_info() -> ServiceInfo {
    ServiceInfo {
        vendor: "vrdma".into(),
        product: "vrdma-backend".into(),
        version: crate::stats::VERSION.into(),
        url: "https://varlink.org".into(),
        interfaces: INTERFACES.iter().map(|interface| interface.name.to_owned()).collect(),
    }
}

fn description(get: GetDescription) -> Result<Description, Fault> {
    match interface(&get.interface) {
        Some(found) => Ok(Description { description: found.description.to_owned() }),
        None => Err(Fault::InterfaceNotFound { interface: get.interface }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vrdma_admin::capture::StartCapture;

    #[test]
    fn each_method_is_for_those_who_look_or_changes_something() {
        let writing = [
            log::SetLog::NAME,
            StartCapture::NAME,
            daemon::Drain::NAME,
            daemon::Reload::NAME,
            daemon::Resume::NAME,
            guest::AddGuest::NAME,
            guest::RemoveGuest::NAME,
            guest::SetGuest::NAME,
        ];
        let names = |interface: &vrdma_admin::Interface| {
            interface.methods().map(|method| format!("{}.{method}", interface.name)).collect::<Vec<_>>()
        };
        let mut all: Vec<String> = INTERFACES.iter().flat_map(names).collect();
        let mut known: Vec<&str> = LOOKING.into_iter().chain(writing).collect();
        all.sort();
        known.sort_unstable();
        assert_eq!(all, known);
    }

    #[test]
    fn calls_of_what_is_not_there_are_refused() {
        let call = |method: &str| Call { method: method.into(), ..Call::default() };
        for (method, fault) in [
            ("org.vrdma.Gest.List", Fault::InterfaceNotFound { interface: "org.vrdma.Gest".into() }),
            ("List", Fault::InterfaceNotFound { interface: String::new() }),
            ("org.vrdma.Guest.Lst", Fault::MethodNotFound { method: "org.vrdma.Guest.Lst".into() }),
            ("org.vrdma.Guest.", Fault::MethodNotFound { method: "org.vrdma.Guest.".into() }),
        ] {
            assert_eq!(known(&call(method)), Err(fault), "{method}");
        }
    }
}
