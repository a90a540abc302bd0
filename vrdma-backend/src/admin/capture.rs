//! Captures of clients: begins them, tells how far they are, and ends them with the client.

use super::parameters::parse;
use super::service::{Service, stopped};
use crate::allowed::AllowedGid;
use crate::capture::{
    CaptureCounts, CaptureEnd, CaptureId, CaptureQueue, CapturedGuest, CapturesHandle, Filter, JoinedGroups,
    MOST, NotBegun, SentDescriptor,
};
use crate::config::GuestConfig;
use crate::worker::WorkerHandle;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vrdma_admin::capture::{CaptureEnd as Told, CaptureProgress, StartCapture};
use vrdma_admin::{Call, Fault, Reply};
use vrdma_wire::num::{Gid, Qpn};

/// How often to look whether a capture has ended.
pub const LOOK: Duration = Duration::from_millis(50);
/// How often a client is told how far its capture is.
const INTERVAL: Duration = Duration::from_secs(1);
/// Fewest bytes of a packet that may be asked for: an Ethernet header.
const LEAST_SNAP: u32 = 14;

/// A capture of a client. It ends when this is dropped.
#[derive(Debug)]
pub struct ClientCapture {
    id: CaptureId,
    queue: Arc<CaptureQueue>,
    captures: CapturesHandle,
    workers: Vec<WorkerHandle>,
    /// When the client is told next.
    due: Instant,
}

/// Begins the capture that a call asks for, to a descriptor of the client.
///
/// # Errors
/// The parameters are wrong, there is no descriptor, or as many captures run as may run.
pub fn begin(
    service: &Service,
    call: &Call,
    descriptor: Option<SentDescriptor>,
) -> Result<ClientCapture, Fault> {
    let wanted: StartCapture = parse(call.parameters.clone())?;
    if !call.more || call.oneway {
        return Err(Fault::ExpectedMore {});
    }
    let (tapped, queue) = {
        // The guest does not leave in between, so that its leaving ends the capture.
        let _held = service.observer.hold();
        let filter = filter(service, &wanted)?;
        let descriptor = descriptor.ok_or_else(|| {
            let reason = "no file came with the call: send a descriptor with it (SCM_RIGHTS)".into();
            Fault::CaptureNoFile { reason }
        })?;
        service.captures.begin(filter, descriptor, (wanted.snap, wanted.count)).map_err(refusal)?
    };
    let capture = ClientCapture {
        id: tapped.id(),
        queue,
        captures: service.captures.clone(),
        workers: service.observer.workers.clone(),
        due: Instant::now() + INTERVAL,
    };
    for worker in &capture.workers {
        let tapped = tapped.clone();
        // A stuck worker does so when it goes on.
        worker.tell(move |worker| worker.begin_capture(tapped));
    }
    for worker in &capture.workers {
        worker.call_unless_stuck(|_| ()).map_err(stopped)?;
    }
    log::warn!("an administrator captures {}", shown(&wanted));
    Ok(capture)
}

fn refusal(error: NotBegun) -> Fault {
    match error {
        NotBegun::TooMany => Fault::CaptureTooMany { most: MOST as u64, reason: error.to_string() },
        NotBegun::Stopping => Fault::Stopping {},
    }
}

impl ClientCapture {
    /// Returns what the client is told now, if it is told anything, and whether that is the last.
    pub fn next_reply(&mut self, now: Instant) -> Option<(Reply, bool)> {
        self.captures.give_up();
        let is_last = self.queue.ended().is_some();
        if !is_last && now < self.due {
            return None;
        }
        self.due = now + INTERVAL;
        Some((Reply::of(&progress(&self.queue)), is_last))
    }

    /// Returns what the client is told first.
    pub fn first_reply(&self) -> Reply {
        Reply::of(&progress(&self.queue))
    }

    /// Ends the capture. What came so far is written yet.
    pub fn stop(&mut self) {
        self.queue.stop(CaptureEnd::Asked);
    }
}

impl Drop for ClientCapture {
    fn drop(&mut self) {
        self.stop();
        let id = self.id;
        // A stuck worker does so when it goes on. One that has stopped captures nothing.
        self.workers.iter().for_each(|worker| worker.tell(move |worker| worker.end_capture(id)));
    }
}

fn progress(queue: &CaptureQueue) -> CaptureProgress {
    let (counts, end) = queue.progress();
    let (end, reason) = match end {
        None => (None, None),
        Some(CaptureEnd::Asked) => (Some(Told::Asked), None),
        Some(CaptureEnd::Count) => (Some(Told::Count), None),
        Some(CaptureEnd::Closed) => (Some(Told::Closed), None),
        Some(CaptureEnd::Removed) => (Some(Told::GuestRemoved), None),
        Some(CaptureEnd::Stopping) => (Some(Told::Stopping), None),
        Some(CaptureEnd::Failed(reason)) => (Some(Told::Failed), Some(reason)),
    };
    let CaptureCounts { packets, bytes, missed } = counts;
    CaptureProgress { packets, bytes, missed, end, reason }
}

fn filter(service: &Service, wanted: &StartCapture) -> Result<Filter, Fault> {
    let wrong = |parameter: &str, reason: String| Fault::InvalidParameter {
        parameter: parameter.to_owned(),
        reason: format!("{parameter}: {reason}"),
    };
    let guest = wanted.guest.as_ref().map(|name| {
        let named = service.find_guest(name)?.config;
        let all = service.observer.guests();
        Ok(captured(&named, all.iter().map(|each| &*each.config)))
    });
    let qpn = wanted.qpn.map(|number| {
        let reason = || format!("{number} is none; a queue pair has a number from 1 to 16777214");
        let is_one = (1..0xff_ffff).contains(&number);
        is_one.then(|| Qpn::truncate(number)).ok_or_else(|| wrong("qpn", reason()))
    });
    let peer = wanted.peer.as_ref().map(|text| {
        address(text)
            .ok_or_else(|| wrong("peer", format!("{text} is no address; write one like 10.0.0.2 or fe80::1")))
    });
    if let Some(snap) = wanted.snap.filter(|snap| *snap < LEAST_SNAP) {
        return Err(wrong("snap", format!("{snap} is too little; give {LEAST_SNAP} bytes or more")));
    }
    if wanted.count == Some(0) {
        return Err(wrong("count", "0 packets are no capture; leave it out, or give 1 or more".into()));
    }
    Ok(Filter { guest: guest.transpose()?, qpn: qpn.transpose()?, peer: peer.transpose()? })
}

/// Returns what a filter knows of a guest, of which one function was named. The others count, too.
fn captured<'a>(named: &GuestConfig, all: impl Iterator<Item = &'a GuestConfig> + Clone) -> CapturedGuest {
    let name = named.configured_name();
    let mut functions = all.filter(|each| each.configured_name() == name);
    CapturedGuest {
        name: name.to_owned(),
        macs: named.extra_macs.iter().copied().chain([named.mac]).collect(),
        vlans: named.member_of(),
        has_net: functions.clone().any(|each| each.net_place().is_some()),
        has_rdma: functions.any(|each| each.rdma_place().is_some()),
        joined: JoinedGroups::default(),
    }
}

/// Parses an IP address or a GID, which is written as an IPv6 address.
fn address(text: &str) -> Option<Gid> {
    let allowed: AllowedGid = text.parse().ok()?;
    allowed.vlan.is_none().then(|| allowed.gid())
}

/// Returns what is captured, for the log.
fn shown(wanted: &StartCapture) -> String {
    let parts = [
        wanted.guest.as_ref().map(|name| format!("guest {name}")),
        wanted.qpn.map(|number| format!("queue pair {number}")),
        wanted.peer.as_ref().map(|address| format!("address {address}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "what all guests send and receive".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_all_its_functions_whichever_is_named() {
        let keys = |name: &str, more: &str| -> GuestConfig {
            format!("name={name},socket=/s,mac=52:54:00:00:00:01,any-gid=true{more}").parse().unwrap()
        };
        let both = keys("vm1", ",net=/n,iwarp=/i,transport=both,tcp=own").functions();
        let other = keys("vm2", "");
        let all = || both.iter().chain([&other]);
        assert_eq!(both.len(), 2);
        for named in &both {
            let guest = captured(named, all());
            assert_eq!((guest.name.as_str(), guest.has_net, guest.has_rdma), ("vm1", true, true));
            assert_eq!(guest.macs, [named.mac]);
        }
        assert!(!captured(&other, all()).has_net);
    }

    #[test]
    fn a_peer_is_an_ip_address_or_a_gid() {
        let v4 = Gid::from_ipv4([10, 0, 0, 2]);
        assert_eq!((address("10.0.0.2"), address("::ffff:10.0.0.2")), (Some(v4), Some(v4)));
        assert!(address("fe80::1").is_some());
        for wrong in ["", "10.0.0", "10.0.0.2@5", "host", "10.0.0.2/24"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }
}
