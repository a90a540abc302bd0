//! Answers about the objects of a guest's driver: queue pairs and memory regions.

use super::service::{Rights, Service};
use crate::device::failures::QpFailure;
use crate::stats::Observed;
use std::time::Duration;
use vrdma_admin::Fault;
use vrdma_admin::mr::{ListMrs, Mr, MrPage};
use vrdma_admin::qp::{
    Failure, ListQps, Qp, QpDetails, QpPage, QpService, QpState, QpTransport, QpWait, ShowQp, WholeQp,
};
use vrdma_transport::{self as transport, Access, QpView, Receives, RegionView, TransportKind, WaitsFor};
use vrdma_wire::num::{Gid, Qpn, VlanId};

/// Lists some queue pairs of a guest.
pub fn qps(service: &Service, list: &ListQps) -> Result<QpPage, Fault> {
    let guest = service.find_guest(&list.guest)?;
    let (id, from) = (guest.place.device, index(list.from));
    let (found, next) = service.ask(&guest, move |worker| worker.qp_page(id, from))?;
    let qps = found.iter().map(|view| qp_of(&guest, view)).collect();
    Ok(QpPage { qps, next: next.map(|next| next as u64) })
}

/// Returns everything about a queue pair.
pub fn qp(service: &Service, show: &ShowQp, rights: Rights) -> Result<WholeQp, Fault> {
    let guest = service.find_guest(&show.guest)?;
    let not_found = || Fault::QpNotFound { guest: show.guest.clone(), qpn: show.qpn };
    let qpn = Qpn::new(show.qpn).ok_or_else(not_found)?;
    let id = guest.place.device;
    let found = service.ask(&guest, move |worker| worker.whole_qp(id, qpn))?;
    let (view, failures) = found.map_err(|_| not_found())?;
    let failures = failures.into_iter().map(|(failure, ago)| failure_of(&failure, ago)).collect();
    Ok(WholeQp { qp: qp_of(&guest, &view), details: details(&view, rights), failures })
}

/// Lists some memory regions of a guest.
pub fn mrs(service: &Service, list: &ListMrs, rights: Rights) -> Result<MrPage, Fault> {
    let guest = service.find_guest(&list.guest)?;
    let (id, from) = (guest.place.device, index(list.from));
    let (found, next) = service.ask(&guest, move |worker| worker.region_page(id, from))?;
    let mrs = found.iter().map(|view| mr_of(&guest, view, rights)).collect();
    Ok(MrPage { mrs, next: next.map(|next| next as u64) })
}

/// Returns where a list goes on.
fn index(from: Option<u64>) -> usize {
    usize::try_from(from.unwrap_or_default()).unwrap_or(usize::MAX)
}

fn qp_of(guest: &Observed, view: &QpView) -> Qp {
    // A stream ends at the peer's stream. The peer's number and address are not in the attributes.
    let has_address = view.transport.is_some_and(|kind| kind != TransportKind::Tcp);
    Qp {
        guest: guest.name.clone(),
        qpn: view.qpn.number(),
        service: service_of(view.init.qp_type),
        state: state_of(view.attr.state),
        context: view.init.owner.0,
        transport: view.transport.map(|kind| match kind {
            TransportKind::Local => QpTransport::Copy,
            TransportKind::Roce => QpTransport::Roce,
            TransportKind::Tcp => QpTransport::Iwarp,
        }),
        peer_qpn: has_address.then(|| view.attr.dest_qpn.number()),
        peer_gid: has_address.then(|| view.attr.dgid.to_string()),
        sends: view.sends,
        receives: view.receives,
    }
}

/// Describes a queue pair.
///
/// Who knows its PSNs could forge its packets, so those who look are not told.
fn details(view: &QpView, rights: Rights) -> QpDetails {
    let is_told = rights == Rights::Administer;
    let QpView { init, attr, source, .. } = view;
    QpDetails {
        pd: init.pd.map(|pd| pd.0),
        send_cq: init.send_cq.0,
        recv_cq: init.recv_cq.0,
        srq: match init.receives {
            Receives::Shared(srq) => Some(srq.0),
            Receives::Own | Receives::Xrc(_) => None,
        },
        max_sends: init.max_send_wr,
        max_receives: init.max_recv_wr,
        path_mtu: attr.path_mtu.bytes(),
        gid: if source.gid == Gid::ZERO { String::new() } else { source.gid.to_string() },
        vlan: (source.vlan != VlanId::UNTAGGED).then(|| source.vlan.number()),
        sq_psn: is_told.then(|| attr.sq_psn.number()),
        rq_psn: is_told.then(|| attr.rq_psn.number()),
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        min_rnr_timer: attr.min_rnr_timer,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        is_flushing: view.is_flushing,
        rate: view.rate,
        waits_for: view.waits_for.map(|wait| match wait {
            WaitsFor::Receive => QpWait::Receive,
            WaitsFor::Answer => QpWait::Answer,
            WaitsFor::Posts => QpWait::Posts,
        }),
        srtt_ns: view.srtt.map(|srtt| srtt.as_nanos() as u64),
        peer_holds: view.peer_holds,
        held_bytes: view.held_bytes,
    }
}

fn failure_of(failure: &QpFailure, ago: Duration) -> Failure {
    Failure { ago: ago.as_millis() as u64, what: failure.what.to_owned(), times: failure.times }
}

fn service_of(service: transport::QpType) -> QpService {
    match service {
        transport::QpType::Rc => QpService::Rc,
        transport::QpType::Uc => QpService::Uc,
        transport::QpType::Ud => QpService::Ud,
        transport::QpType::Gsi => QpService::Gsi,
        transport::QpType::XrcSend => QpService::XrcSend,
        transport::QpType::XrcRecv => QpService::XrcRecv,
    }
}

fn state_of(state: transport::QpState) -> QpState {
    match state {
        transport::QpState::Reset => QpState::Reset,
        transport::QpState::Init => QpState::Init,
        transport::QpState::Rtr => QpState::Rtr,
        transport::QpState::Rts => QpState::Rts,
        transport::QpState::Sqd => QpState::Sqd,
        transport::QpState::Sqe => QpState::Sqe,
        transport::QpState::Err => QpState::Err,
    }
}

/// Rights of regions, by the names of rdma-core.
const RIGHTS: [(Access, &str); 8] = [
    (Access::LOCAL_WRITE, "local_write"),
    (Access::REMOTE_WRITE, "remote_write"),
    (Access::REMOTE_READ, "remote_read"),
    (Access::REMOTE_ATOMIC, "remote_atomic"),
    (Access::MW_BIND, "mw_bind"),
    (Access::ZERO_BASED, "zero_based"),
    (Access::FLUSH_GLOBAL, "flush_global"),
    (Access::FLUSH_PERSISTENT, "flush_persistent"),
];

/// Describes a memory region. A key opens it, so those who look are not told.
fn mr_of(guest: &Observed, view: &RegionView, rights: Rights) -> Mr {
    let is_told = rights == Rights::Administer;
    let rights = RIGHTS.iter().filter(|(right, _)| view.access.contains(*right));
    Mr {
        guest: guest.name.clone(),
        key: is_told.then_some(view.key),
        pd: view.pd.0,
        context: view.owner.0,
        address: format!("{:#x}", view.iova),
        length: (view.length != u64::MAX).then_some(view.length),
        access: rights.map(|(_, name)| (*name).to_owned()).collect(),
        is_fast: view.is_fast,
    }
}
