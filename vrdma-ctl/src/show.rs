//! `show`: one thing with everything that is known of it, or all things of a kind.

use crate::args::What;
use crate::connection::Connection;
use crate::counters::flat;
use crate::latency::lines;
use crate::sheets::word;
use crate::{print, sheets};
use anyhow::{Result, bail};
use serde_json::{Map, Value, json};
use vrdma_admin::guest::{GuestDetails, GuestFunction, Meeting, ShowGuest};
use vrdma_admin::mr::{ListMrs, Mr};
use vrdma_admin::port::{ListPorts, ShowPort};
use vrdma_admin::qp::{ListQps, Qp, ShowQp, WholeQp};
use vrdma_admin::worker::ListWorkers;
use vrdma_admin::{Client, ClientError};

/// Shows something.
///
/// # Errors
/// It is not there, or the daemon does not answer.
pub fn show(connection: &Connection, json: bool, what: &What) -> Result<()> {
    let mut client = connection.to_observe()?;
    match what {
        What::Guest { name } => {
            let found = client.call(&ShowGuest { name: name.clone() })?;
            if json { print::json(&found) } else { guest(&found) }
        }
        What::Qp { guest, qpn: Some(qpn) } => {
            let found = client.call(&ShowQp { guest: guest.clone(), qpn: *qpn })?;
            if json { print::json(&found) } else { qp(&found) }
        }
        What::Qp { guest, qpn: None } => {
            let qps = all_qps(&mut client, guest)?;
            let empty = format!("guest {guest} has no queue pair");
            if json { print::json(&json!({ "qps": qps })) } else { print::table(&sheets::qps(&qps), &empty) }
        }
        What::Mr { guest } => {
            let mrs = all_mrs(&mut client, guest)?;
            let empty = format!("guest {guest} has no memory region");
            if json { print::json(&json!({ "mrs": mrs })) } else { print::table(&sheets::mrs(&mrs), &empty) }
        }
        What::Worker { number } => workers(&mut client, json, *number),
        What::Port { name: Some(name) } => {
            let found = client.call(&ShowPort { name: name.clone() })?;
            if json { print::json(&found) } else { print::pairs(&flat(&serde_json::to_value(&found.port)?)) }
        }
        What::Port { name: None } => {
            let found = client.call(&ListPorts {})?;
            let empty = "there is no port: no uplink, and no guest with an Ethernet function";
            if json { print::json(&found) } else { print::table(&sheets::ports(&found.ports), empty) }
        }
    }
}

/// Returns all queue pairs of a guest.
///
/// # Errors
/// There is no such guest, or the daemon does not answer.
pub fn all_qps(client: &mut Client, guest: &str) -> Result<Vec<Qp>, ClientError> {
    all(|from| {
        let page = client.call(&ListQps { guest: guest.to_owned(), from })?;
        Ok((page.qps, page.next))
    })
}

fn all_mrs(client: &mut Client, guest: &str) -> Result<Vec<Mr>, ClientError> {
    all(|from| {
        let page = client.call(&ListMrs { guest: guest.to_owned(), from })?;
        Ok((page.mrs, page.next))
    })
}

/// Returns all parts of a list, in their order.
fn all<T>(
    mut part: impl FnMut(Option<u64>) -> Result<(Vec<T>, Option<u64>), ClientError>,
) -> Result<Vec<T>, ClientError> {
    let (mut found, mut next) = part(None)?;
    while next.is_some() {
        let (more, after) = part(next)?;
        found.extend(more);
        next = after;
    }
    Ok(found)
}

fn workers(client: &mut Client, json: bool, number: Option<u64>) -> Result<()> {
    let mut found = client.call(&ListWorkers {})?;
    if let Some(number) = number {
        let last = found.workers.len().saturating_sub(1);
        found.workers.retain(|worker| worker.number == number);
        if found.workers.is_empty() {
            match last {
                0 => bail!("there is no worker {number}: there is only 0"),
                last => bail!("there is no worker {number}: there are 0 to {last}"),
            }
        }
    }
    if json {
        print::json(&found)
    } else {
        print::table(&sheets::workers(&found.workers), "there is no worker")
    }
}

fn guest(found: &GuestDetails) -> Result<()> {
    let guest = &found.guest;
    let mut pairs = vec![
        ("name".into(), guest.name.clone()),
        ("mac".into(), guest.mac.clone()),
        ("worker".into(), guest.worker.to_string()),
    ];
    for each in &guest.functions {
        pairs.push((word(each.kind), function(each)));
    }
    let no_objects = Map::new();
    let objects = guest.objects.as_ref().unwrap_or(&no_objects);
    // Numbers of times say little to people.
    let mut counters = found.counters.clone();
    let latency = counters.remove("latency").unwrap_or_default();
    for (name, map) in [("keys", &found.keys), ("objects", objects), ("counters", &counters)] {
        let inner = flat(&Value::Object(map.clone())).into_iter();
        let is_set = |value: &str| !matches!(value, "0" | "null" | "[]" | "");
        pairs.extend(
            inner.filter(|(_, value)| is_set(value)).map(|(key, value)| (format!("{name}.{key}"), value)),
        );
    }
    pairs.extend(lines(&latency).into_iter().map(|(service, said)| (format!("latency.{service}"), said)));
    print::pairs(&pairs)
}

/// Says where a function and its front-end meet, and who that is.
fn function(function: &GuestFunction) -> String {
    let peer = match (function.connected, function.pid, function.uid) {
        (false, ..) => "no front-end".to_owned(),
        (true, Some(pid), Some(uid)) => format!("front-end: process {pid} of user {uid}"),
        (true, ..) => "front-end connected".to_owned(),
    };
    let path = function.socket.as_deref().unwrap_or("a path that is not known");
    match function.meets {
        Meeting::Socket => format!("{path}, {peer}"),
        Meeting::Fd => format!("inherited socket, {peer}"),
        Meeting::Connect => format!("connects to {path}, {peer}"),
    }
}

fn qp(found: &WholeQp) -> Result<()> {
    let mut pairs = flat(&serde_json::to_value(&found.qp)?);
    pairs.extend(flat(&serde_json::to_value(&found.details)?));
    for failure in &found.failures {
        let (ago, times) = (failure.ago as f64 / 1000.0, failure.times);
        let times = if times == 1 { String::new() } else { format!(", {times} times") };
        pairs.push(("failure".into(), format!("{}, {ago:.1} s ago{times}", failure.what)));
    }
    print::pairs(&pairs)
}
