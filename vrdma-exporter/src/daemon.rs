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

/// Asks the daemon for all that is shown. Each part of an answer may take as long as `patience`.
///
/// # Errors
/// The daemon cannot be reached, does not answer, or refuses.
pub fn ask(socket: &Path, patience: Duration) -> Result<Snapshot, ClientError> {
    let began = Instant::now();
    let mut client = Client::connect(socket)?;
    client.set_timeout(Some(patience))?;
    let mut replies = Replies { workers: call(&mut client, &ListWorkers {})?, ..Replies::default() };
    if !is_kept(&replies, began.elapsed()) {
        replies.info = call(&mut client, &GetDaemon {})?;
        replies.stats = call(&mut client, &GetStats::default())?;
        replies.guests = call(&mut client, &ListGuests {})?;
    }
    Ok(Snapshot::of(replies, began.elapsed()))
}

/// Whether a stuck worker keeps each answer of the daemon for seconds.
///
/// A single worker that no other thread watches does so. What is known then comes in time only if
/// nothing else is asked.
fn is_kept(replies: &Replies, took: Duration) -> bool {
    let workers = replies.workers.as_ref().and_then(|reply| reply.get("workers")?.as_array());
    took > USUAL && workers.is_some_and(|workers| workers.iter().any(|worker| worker["stuck"] == true))
}

/// Calls a method. Returns its result as it came, so that newer daemons may tell more.
///
/// `None`: the daemon does not have the method.
fn call(client: &mut Client, method: &impl Method) -> Result<Option<Value>, ClientError> {
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
        let of =
            |stuck| Replies { workers: Some(json!({"workers": [{"stuck": stuck}]})), ..Replies::default() };
        assert!(is_kept(&of(true), Duration::from_secs(5)));
        assert!(!is_kept(&of(true), Duration::from_millis(3)), "others can be asked");
        assert!(!is_kept(&of(false), Duration::from_secs(5)), "the machine is busy");
        assert!(!is_kept(&Replies::default(), Duration::from_secs(5)));
    }
}
