//! Answers calls: finds the method, checks the client's rights, and has the method answered.

use super::objects;
use super::overview;
use super::parameters::parse;
use super::service::Service;
use serde_json::json;
use std::time::Duration;
use vrdma_admin::service::{Description, GetDescription, GetService, ServiceInfo};
use vrdma_admin::{
    Call, Fault, INTERFACES, Method, Reply, daemon, guest, interface, log, mr, port, qp, worker,
};

/// What the clients of a socket may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Look.
    Observe,
    /// Change things, too.
    Administer,
}

/// An answer to a call.
#[derive(Debug)]
pub enum Answer {
    /// The only reply, or the last one of several.
    Once(Reply),
    /// A reply of several, and the time from one to the next. A client that does not take several
    /// gets this one.
    Each(Reply, Duration),
}

/// How often to look whether guests are busy.
const LOOK: Duration = Duration::from_millis(100);

/// Methods that change something.
const WRITING: [&str; 3] = [log::SetLog::NAME, daemon::Drain::NAME, daemon::Resume::NAME];

/// Answers a request that is a line, of clients that do not speak varlink.
pub fn answer_line(service: &Service, line: &[u8]) -> String {
    let text = match line.trim_ascii() {
        b"stats" => {
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
pub fn answer(service: &Service, call: &Call, rights: Rights) -> Result<Answer, Fault> {
    let method = known(call)?;
    if rights == Rights::Observe && WRITING.contains(&call.method.as_str()) {
        return Err(Fault::PermissionDenied {});
    }
    if call.method == daemon::GetStats::NAME {
        let (stats, interval) = overview::stats(service, parse(call.parameters.clone())?)?;
        return Ok(Answer::Each(Reply::of(&stats), interval));
    }
    if call.method == daemon::Drain::NAME {
        let reply = once(call, |_: daemon::Drain| {
            overview::drain(service, true).map(|busy| daemon::Drained { busy })
        })?;
        let is_idle = reply.parameters.as_ref().is_some_and(|found| found["busy"] == json!([]));
        return Ok(if is_idle { Answer::Once(reply) } else { Answer::Each(reply, LOOK) });
    }
    let reply = match call.method.as_str() {
        GetService::NAME => once(call, |_: GetService| Ok(service_info()))?,
        GetDescription::NAME => once(call, description)?,
        daemon::GetDaemon::NAME => once(call, |_: daemon::GetDaemon| overview::daemon(service))?,
        daemon::SaveConfig::NAME => once(call, |_: daemon::SaveConfig| overview::save(service))?,
        daemon::Resume::NAME => {
            once(call, |_: daemon::Resume| overview::drain(service, false).map(|_| daemon::Resumed {}))?
        }
        guest::ListGuests::NAME => once(call, |_: guest::ListGuests| overview::guests(service))?,
        guest::ShowGuest::NAME => once(call, |show| overview::guest(service, &show))?,
        log::GetLog::NAME => once(call, |_: log::GetLog| Ok(overview::log_state()))?,
        log::SetLog::NAME => once(call, overview::set_log)?,
        mr::ListMrs::NAME => once(call, |list| objects::mrs(service, &list))?,
        port::ListPorts::NAME => once(call, |_: port::ListPorts| overview::ports(service))?,
        port::ShowPort::NAME => once(call, |show| overview::port(service, &show))?,
        qp::ListQps::NAME => once(call, |list| objects::qps(service, &list))?,
        qp::ShowQp::NAME => once(call, |show| objects::qp(service, &show))?,
        worker::ListWorkers::NAME => once(call, |_: worker::ListWorkers| overview::workers(service))?,
        _ => return Err(Fault::MethodNotImplemented { method: method.to_owned() }),
    };
    Ok(Answer::Once(reply))
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

    #[test]
    fn methods_that_change_something_are_methods() {
        for name in WRITING {
            let call = Call { method: name.into(), ..Call::default() };
            assert_eq!(known(&call), Ok(name));
        }
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
