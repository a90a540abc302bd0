//! A queue pair: what it is, and its two halves.

pub(crate) mod attr;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod save;
pub(crate) mod state;

use crate::carrier::{Carrier, Service};
use crate::flush::Flush;
use crate::gid::GidEntry;
use crate::id::{CqId, OwnerId, PdId};
use crate::memory::Access;
use crate::qp::attr::{QpAttr, QpInit, QpState, QpType};
use crate::qp::requester::Requester;
use crate::qp::responder::Responder;
use crate::table::{Numbered, Numbering, Table};
use crate::time::Instant;
use core::mem::offset_of;
use vrdma_wire::entropy::connection_source_port;
use vrdma_wire::num::{FlowLabel, Gid, Mac, Mtu, Qpn, VlanId, VlanTag};
use vrdma_wire::roce::Path;

/// What all queue pairs have in common. What each message looks at are its first two cache lines, which hold copies of some attributes.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) qpn: Qpn,
    pub(crate) state: QpState,
    pub(crate) path_mtu: Mtu,
    /// What the peer may do: an [`Access`].
    access: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    /// Changed by [`Service::set_carrier`] alone.
    pub(crate) carrier: Carrier,
    marker: Marker,
    pub(crate) dest_qpn: Qpn,
    /// The device on which the peer was found last: a hint, proven by comparing addresses each time.
    route: u16,
    /// The VLAN in which `sgid` is an own GID, and so the VLAN of the connection.
    pub(crate) vlan: VlanId,
    /// Own GID: that of `attr.sgid_index`, updated with the GID table; zero if there is none.
    pub(crate) sgid: Gid,
    /// The peer's.
    pub(crate) dgid: Gid,
    pub(crate) pd: PdId,
    pub(crate) owner: OwnerId,
    pub(crate) send_cq: CqId,

    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    pub(crate) recv_cq: CqId,
    pub(crate) caps: Caps,

    /// Attributes; `state`, `cur_state`, `sq_psn` and `rq_psn` in it do not count. Changed by [`Qp::set`] alone.
    attr: QpAttr,
    pub(crate) init: QpInit,
    /// The PD of the shared queue that it takes receives from, if it does.
    shared_pd: PdId,
    /// Its entry among the timers, or [`NEVER`].
    pub(crate) timer: Instant,
    /// It is in the list of those with packets to send.
    pub(crate) turn_due: bool,
    /// It is in the list of those that owe their peer an answer.
    pub(crate) answer_due: bool,
    /// Frames that wait until receives have been looked for.
    pub(crate) held: u16,
    /// Number of the last question that its first request asked.
    pub(crate) question: u32,
    /// What is still to be flushed, and not in its queues any more: in ERR, or of sends in SQE.
    pub(crate) flush: Option<Box<Flush>>,
}

/// A queue pair in its device's table: with what its service adds.
#[repr(C, align(64))]
pub(crate) struct QpEntry {
    pub(crate) qp: Qp,
    pub(crate) service: Service,
}

impl QpEntry {
    pub(crate) fn new(qpn: Qpn, init: QpInit, shared_pd: PdId) -> QpEntry {
        QpEntry { qp: Qp::new(qpn, init, shared_pd), service: Service::new(init.qp_type) }
    }

    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut Qp, &mut Service) {
        (&mut self.qp, &mut self.service)
    }

    /// As if just created. (It is still in the schedule, if it was, and frames still wait.)
    pub(crate) fn reset(&mut self) {
        let Qp { timer, turn_due, answer_due, held, question, qpn, init, shared_pd, .. } = self.qp;
        let ready = self.qp.requester.ready;
        *self = QpEntry::new(qpn, init, shared_pd);
        let qp = &mut self.qp;
        (qp.timer, qp.turn_due, qp.answer_due, qp.held, qp.question) =
            (timer, turn_due, answer_due, held, question);
        qp.requester.ready = ready;
    }
}

/// The peer was not found yet. (No engine has so many devices; if one had, its QPs would be searched for each time.)
const NOWHERE: u16 = u16::MAX;

/// No deadline at all.
pub(crate) const NEVER: Instant = Instant(u64::MAX);

/// Has more unused values than any other field, so `Option<QpEntry>` stores `None` in it: a look-up in [`Qps`] reads the first
/// cache line alone.
#[derive(Copy, Clone, Debug)]
#[repr(u16)]
enum Marker {
    Here = 0x5150,
}

/// What its queues and requests may hold.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Caps {
    pub(crate) send_wr: u16,
    pub(crate) recv_wr: u16,
    pub(crate) inline: u16,
    pub(crate) send_sge: u8,
    pub(crate) recv_sge: u8,
}

impl Caps {
    /// All are within [`Limits`](crate::Limits), which fit.
    pub(crate) fn new(init: &QpInit) -> Caps {
        let word = |value: u32| value.min(u32::from(u16::MAX)) as u16;
        let byte = |value: u32| value.min(u32::from(u8::MAX)) as u8;
        Caps {
            send_wr: word(init.max_send_wr),
            recv_wr: word(init.max_recv_wr),
            inline: word(init.max_inline),
            send_sge: byte(init.max_send_sge),
            recv_sge: byte(init.max_recv_sge),
        }
    }
}

/// Room of a cache line.
const LINE: usize = 64;
const _: () = assert!(
    offset_of!(QpEntry, qp) == 0 && offset_of!(Qp, requester) == LINE && offset_of!(Qp, attr) == 2 * LINE
);

impl Qp {
    pub(crate) fn new(qpn: Qpn, init: QpInit, shared_pd: PdId) -> Qp {
        // QP1 has its port from its birth.
        let port = u8::from(init.qp_type == QpType::Gsi);
        let attr = QpAttr { port, ..QpAttr::default() };
        Qp {
            qpn,
            state: QpState::Reset,
            path_mtu: attr.path_mtu,
            access: 0,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            carrier: Carrier::Local,
            marker: Marker::Here,
            dest_qpn: attr.dest_qpn,
            route: NOWHERE,
            vlan: VlanId::UNTAGGED,
            sgid: Gid::ZERO,
            dgid: Gid::ZERO,
            pd: init.pd,
            owner: init.owner,
            send_cq: init.send_cq,
            requester: Requester::new(),
            responder: Responder::new(init.qp_type),
            recv_cq: init.recv_cq,
            caps: Caps::new(&init),
            attr,
            init,
            shared_pd,
            timer: NEVER,
            turn_due: false,
            answer_due: false,
            held: 0,
            question: 0,
            flush: None,
        }
    }

    /// Attributes.
    pub(crate) fn attr(&self) -> &QpAttr {
        &self.attr
    }

    /// Sets all attributes, and the copies of them.
    pub(crate) fn set(&mut self, attr: QpAttr) {
        self.path_mtu = attr.path_mtu;
        self.access = attr.access.0 as u8;
        self.max_rd_atomic = attr.max_rd_atomic;
        self.max_dest_rd_atomic = attr.max_dest_rd_atomic;
        self.dest_qpn = attr.dest_qpn;
        self.dgid = attr.dgid;
        self.requester.retry_cnt = attr.retry_cnt;
        self.requester.rnr_retry = attr.rnr_retry;
        self.attr = attr;
    }

    /// Sets its own address, and the VLAN in which it is one.
    pub(crate) fn set_source(&mut self, source: GidEntry) {
        (self.sgid, self.vlan, self.route) = (source.gid, source.vlan, NOWHERE);
    }

    /// The device on which its peer was found last.
    #[inline]
    pub(crate) fn route(&self) -> u32 {
        self.route.into()
    }

    /// Its peer is on that device.
    #[inline]
    pub(crate) fn set_route(&mut self, device: u32) {
        self.route = u16::try_from(device).unwrap_or(NOWHERE);
    }

    /// Whether a packet came from its peer's address to its own, in its VLAN.
    #[inline]
    pub(crate) fn is_path_of_peer(&self, path: &Path) -> bool {
        self.dgid == path.src && self.sgid == path.dst && self.vlan == VlanId::of(path.vlan)
    }

    /// Its service, where each message looks at it.
    #[inline]
    pub(crate) fn service(&self) -> QpType {
        self.responder.service
    }

    /// The PD whose memory its receives name: that of the queue that they were posted to.
    #[inline]
    pub(crate) fn pd_of_receives(&self) -> PdId {
        // One that uses a shared queue has no receives of its own.
        if self.caps.recv_wr == 0 { self.shared_pd } else { self.pd }
    }

    /// What the peer may do.
    #[inline]
    pub(crate) fn access(&self) -> Access {
        Access(u32::from(self.access))
    }

    /// Whether it takes messages of its peer.
    #[inline]
    pub(crate) fn is_receiving(&self) -> bool {
        match self.state {
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => true,
            QpState::Reset | QpState::Init | QpState::Err => false,
        }
    }

    /// Whether the first request of the send queue may be worked on.
    #[inline]
    pub(crate) fn can_send(&self) -> bool {
        match self.state {
            QpState::Rts => true,
            QpState::Sqd => self.requester.started,
            _ => false,
        }
    }

    /// How its packets go to its peer, from the MAC address of its device.
    pub(crate) fn path(&self, mac: Mac) -> Path {
        let attr = &self.attr;
        let flow_label = FlowLabel::truncate(attr.flow_label);
        let src_port = match attr.udp_sport {
            0 => connection_source_port(flow_label, self.qpn, self.dest_qpn),
            port => port,
        };
        Path {
            src_mac: mac,
            dst_mac: attr.dmac,
            vlan: VlanTag::in_vlan(self.vlan, attr.sl),
            src: self.sgid,
            dst: self.dgid,
            traffic_class: attr.traffic_class,
            flow_label,
            hop_limit: hop_limit(attr.hop_limit),
            src_port,
        }
    }

    /// What ibv_query_qp(3) tells.
    pub(crate) fn query(&self) -> QpAttr {
        QpAttr {
            state: self.state,
            cur_state: self.state,
            sq_draining: self.state == QpState::Sqd && self.requester.started,
            sq_psn: self.requester.psn,
            rq_psn: self.responder.psn,
            ..self.attr
        }
    }
}

/// The hop limit of an address vector, or one for those that name none.
pub(crate) fn hop_limit(named: u8) -> u8 {
    if named == 0 { 64 } else { named }
}

impl Numbered for QpEntry {
    #[inline]
    fn number(&self) -> u32 {
        self.qp.qpn.number()
    }
}

/// The queue pairs of a device.
pub(crate) type Qps = Table<QpEntry>;

/// QPNs: a generation above an index, so that a QPN modulo `max_qp` (a power of two) is unique among the living.
pub(crate) fn numbering(max_qp: u32) -> Numbering {
    let bits = max_qp.ilog2();
    Numbering { index_shift: 0, index_bits: bits, tag_shift: bits, tag_bits: 24 - bits }
}

/// Indices of QP0 and QP1.
pub(crate) const SPECIAL_QPS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_is_small() {
        assert!(size_of::<Option<QpEntry>>() <= 320, "{}", size_of::<Option<QpEntry>>());
        assert_eq!(size_of::<Option<QpEntry>>(), size_of::<QpEntry>());
    }
}
