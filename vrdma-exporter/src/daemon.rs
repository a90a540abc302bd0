//! Asks the daemon.

use crate::snapshot::{Replies, Snapshot};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};
use vrdma_admin::daemon::{GetDaemon, GetStats};
use vrdma_admin::guest::ListGuests;
use vrdma_admin::worker::ListWorkers;
use vrdma_admin::{Call, Client, ClientError, Fault, Method};

/// How long the daemon takes at most for an answer, unless a worker is stuck.
const USUAL: Duration = Duration::from_secs(1);

/// Asks the daemon for all that is shown. No call begins, and none waits for a part of its answer,
/// after `patience`.
///
/// # Errors
/// The daemon cannot be reached, does not answer in time, or refuses.
pub fn ask(socket: &Path, patience: Duration) -> Result<Snapshot, ClientError> {
    let began = Instant::now();
    let left = || patience.saturating_sub(began.elapsed());
    let mut client = Client::connect_within(socket, left())?;
    let mut replies = Replies { workers: call(&mut client, &ListWorkers {}, left())?, ..Replies::default() };
    if !is_kept(&replies, began.elapsed()) {
        replies.info = call(&mut client, &GetDaemon {}, left())?;
        replies.stats = call(&mut client, &GetStats::default(), left())?;
        replies.guests = call(&mut client, &ListGuests {}, left())?;
    }
    Ok(Snapshot::of(replies, began.elapsed()))
}

/// Whether a stuck worker keeps each answer of the daemon for seconds.
///
/// A single worker that no other thread watches does so. What is known then comes in time only if
/// nothing else is asked. The daemon watches several workers.
fn is_kept(replies: &Replies, took: Duration) -> bool {
    let workers = replies.workers.as_ref().and_then(|reply| reply.get("workers")?.as_array());
    let is_alone = |workers: &Vec<Value>| workers.len() == 1 && workers[0]["stuck"] == true;
    took > USUAL && workers.is_some_and(is_alone)
}

/// Calls a method, and waits no longer than this for each part of its reply.
///
/// Returns its result as it came, so that newer daemons may tell more.
/// `None`: the daemon does not have the method.
fn call(client: &mut Client, method: &impl Method, time: Duration) -> Result<Option<Value>, ClientError> {
    if time.is_zero() {
        return Err(ClientError::Late(time));
    }
    client.set_timeout(Some(time))?;
    client.send(&Call::of(method)?, &[])?;
    match client.receive()?.result::<Value>()? {
        Ok(result) => Ok(Some(result)),
        Err(
            Fault::InterfaceNotFound { .. }
            | Fault::MethodNotFound { .. }
            | Fault::MethodNotImplemented { .. },
        ) => Ok(None),
        Err(fault) => Err(fault.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_stuck_worker_that_keeps_the_daemon_is_seen_in_time() {
        let of = |stuck: &[bool]| {
            let workers: Vec<Value> = stuck.iter().map(|stuck| json!({"stuck": stuck})).collect();
            Replies { workers: Some(json!({"workers": workers})), ..Replies::default() }
        };
        assert!(is_kept(&of(&[true]), Duration::from_secs(5)));
        assert!(!is_kept(&of(&[true]), Duration::from_millis(3)), "others can be asked");
        assert!(!is_kept(&of(&[false]), Duration::from_secs(5)), "the machine is busy");
        assert!(!is_kept(&of(&[true, false]), Duration::from_secs(5)), "another thread watches them");
        assert!(!is_kept(&of(&[]), Duration::from_secs(5)));
        assert!(!is_kept(&Replies::default(), Duration::from_secs(5)));
    }
}
