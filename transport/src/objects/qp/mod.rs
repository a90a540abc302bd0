//! A queue pair and its two halves.

pub(crate) mod entry;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod rest;
pub(crate) mod save;
pub(crate) mod state;

use crate::base::gid::GidEntry;
use crate::base::id::{CqId, OwnerId, PdId, SrqId, XrcdId};
use crate::base::marks::Marks;
use crate::base::memory::Access;
use crate::base::qp_ref::{OptQpRef, QpRef};
use crate::base::time::{Instant, NEVER};
use crate::base::transport_kind::TransportKind;
use crate::collections::flush::Flush;
use crate::objects::mr::Holder;
use crate::objects::qp::requester::Requester;
use crate::objects::qp::responder::Responder;
use crate::objects::qp::rest::RestOfAttr;
use crate::objects::srq::life::SrqRef;
use crate::verbs::attr::{QpAttr, QpInit, QpState, QpType, Receives};
use crate::verbs::caps::Caps;
use crate::verbs::window::QpLife;
use vrdma_wire::entropy::connection_source_port;
use vrdma_wire::num::{FlowLabel, Gid, Mac, Mtu, Qpn, VlanId, VlanTag};
use vrdma_wire::roce::Path;

/// Purpose of a QP's turn.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Direction {
    /// Answers that it owes its peer: responses, acknowledges, NAKs.
    Answers,
    /// Requests of its send queue.
    Requests,
}

/// The part of a queue pair that does not depend on its service.
///
/// Each message accesses only the first two cache lines, which hold copies of some attributes.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) qpn: Qpn,
    pub(crate) state: QpState,
    pub(crate) path_mtu: Mtu,
    /// Rights of the peer: an [`Access`], [`pack`]ed.
    access: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    /// The transport kind. Only
    /// [`Service::set_transport`](crate::objects::service::Service::set_transport) and `set_stream`
    /// change it.
    pub(crate) transport: TransportKind,
    marker: Marker,
    pub(crate) dest_qpn: Qpn,
    /// The device on which the peer was found last. This is a hint: each use compares the
    /// addresses.
    route: u16,
    /// The VLAN in which `sgid` is an own GID, and so the VLAN of the connection.
    pub(crate) vlan: VlanId,
    /// The own GID at `attr.sgid_index`, updated with the GID table; zero if there is none.
    pub(crate) sgid: Gid,
    /// The peer's GID.
    pub(crate) dgid: Gid,
    pub(crate) pd: PdId,
    pub(crate) owner: OwnerId,
    pub(crate) send_cq: CqId,

    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    pub(crate) recv_cq: CqId,
    pub(crate) caps: Caps,

    /// The other attributes. Only [`Qp::set`] changes them.
    attr: RestOfAttr,
    /// The CQ of its receives when it was made. An XRC target has the CQ of its last message in
    /// `recv_cq`.
    made_with_cq: CqId,
    /// Its XRC domain, if it is an XRC target.
    xrcd: XrcdId,
    /// The PD of the shared queue that it takes receives from, if it has one.
    shared_pd: PdId,
    /// Its shared queue. For an XRC target it is the queue of the last message, which may have been
    /// destroyed.
    pub(crate) srq: Option<SrqRef>,
    /// The time of its entry among the timers, or [`NEVER`].
    pub(crate) timer: Instant,
    /// Whether nothing is waited for until the time of `timer`. The entry is removed then, or
    /// before the caller sleeps.
    pub(crate) timer_is_idle: bool,
    /// Whether it is in the queue of QPs with packets to send.
    pub(crate) turn_due: bool,
    /// Whether it is in the queue of QPs that owe their peer an answer.
    pub(crate) answer_due: bool,
    /// Number of frames that wait until posts are drained.
    pub(crate) held: u16,
    /// Number of the last question that its first request asked.
    pub(crate) question: u32,
    /// The last member on this host that has been served.
    ///
    /// Only valid if the first request is started, and is a datagram to a multicast group.
    pub(crate) served: OptQpRef,
    /// The life of the windows of type 2B that it has bound since it was made or reset.
    pub(crate) life: QpLife,
    /// Requests that are still to be flushed, and have left its queues. Used in ERR, and for sends
    /// in SQE.
    pub(crate) flush: Option<Box<Flush>>,
}

/// The value of `route` if the peer was not found yet.
///
/// (No engine has that many devices. If one had, the peers of its last QPs would be searched for
/// each time.)
const NOWHERE: u16 = u16::MAX;

/// A field in which `Option<QpEntry>` stores `None`.
///
/// It has more unused values than any other field, so the compiler chooses it. A look-up in
/// [`Qps`](entry::Qps) therefore reads only the first cache line.
#[derive(Copy, Clone, Debug)]
#[repr(u16)]
enum Marker {
    Here = 0x5150,
}

/// Packs rights of a QP into a byte. The FLUSH rights are moved next to the others.
fn pack(Access(rights): Access) -> u8 {
    (rights & Access::ALL.0 | (rights & Access::FLUSH.0) >> FLUSH_SHIFT) as u8
}

#[inline]
fn unpack(packed: u8) -> Access {
    let rights = u32::from(packed);
    Access(rights & Access::ALL.0 | (rights & !Access::ALL.0) << FLUSH_SHIFT)
}

const FLUSH_SHIFT: u32 = 4;

impl Qp {
    /// Makes a QP in RESET.
    ///
    /// `shared` is the queue that it takes its receives from as long as it lives, with the queue's
    /// PD.
    pub(crate) fn new(qpn: Qpn, init: QpInit, shared: Option<(SrqRef, PdId)>) -> Qp {
        // QP1 always has its port.
        let port = u8::from(init.qp_type == QpType::Gsi);
        let attr = QpAttr { port, ..QpAttr::default() };
        Qp {
            qpn,
            state: QpState::Reset,
            path_mtu: attr.path_mtu,
            access: 0,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            transport: TransportKind::Local,
            marker: Marker::Here,
            dest_qpn: attr.dest_qpn,
            route: NOWHERE,
            vlan: VlanId::UNTAGGED,
            sgid: Gid::ZERO,
            dgid: Gid::ZERO,
            pd: init.pd.unwrap_or(PdId::NOWHERE),
            owner: init.owner,
            send_cq: init.send_cq,
            requester: Requester::new(),
            responder: Responder::new(init.qp_type),
            recv_cq: init.recv_cq,
            caps: Caps::new(&init),
            attr: RestOfAttr::new(&attr),
            made_with_cq: init.recv_cq,
            xrcd: match init.receives {
                Receives::Xrc(xrcd) => xrcd,
                Receives::Own | Receives::Shared(_) => XrcdId(0),
            },
            shared_pd: shared.map_or(PdId::NOWHERE, |(_, pd)| pd),
            srq: shared.map(|(srq, _)| srq),
            timer: NEVER,
            timer_is_idle: false,
            turn_due: false,
            answer_due: false,
            held: 0,
            question: 0,
            served: OptQpRef::NONE,
            life: QpLife::NONE,
            flush: None,
        }
    }

    /// Returns the parameters with which the QP was made.
    pub(crate) fn init(&self) -> QpInit {
        let Caps { send_wr, recv_wr, inline, send_sge, recv_sge } = self.caps;
        QpInit {
            owner: self.owner,
            pd: Some(self.pd).filter(|_| self.service() != QpType::XrcRecv),
            qp_type: self.service(),
            send_cq: self.send_cq,
            recv_cq: self.made_with_cq,
            receives: self.receives(),
            max_send_wr: send_wr.into(),
            max_recv_wr: recv_wr.into(),
            max_send_sge: send_sge.into(),
            max_recv_sge: recv_sge.into(),
            max_inline: inline.into(),
        }
    }

    /// Returns where the QP takes its receives from.
    #[inline]
    pub(crate) fn receives(&self) -> Receives {
        match (self.service(), self.srq) {
            (QpType::XrcRecv, _) => Receives::Xrc(self.xrcd),
            (_, Some(srq)) => Receives::Shared(srq.id()),
            (_, None) => Receives::Own,
        }
    }

    /// Returns the attributes that messages rarely need.
    #[inline]
    pub(crate) fn attr(&self) -> &RestOfAttr {
        &self.attr
    }

    /// Returns all attributes as they were set, except `state`, `cur_state` and `sq_draining`.
    pub(crate) fn all_attrs(&self) -> QpAttr {
        let attr = &self.attr;
        QpAttr {
            en_sqd_async_notify: attr.en_sqd_async_notify,
            access: attr.access,
            pkey_index: attr.pkey_index,
            port: attr.port,
            path_mtu: self.path_mtu,
            qkey: attr.qkey,
            rq_psn: attr.rq_psn,
            sq_psn: attr.sq_psn,
            dest_qpn: self.dest_qpn,
            max_rd_atomic: self.max_rd_atomic,
            max_dest_rd_atomic: self.max_dest_rd_atomic,
            min_rnr_timer: attr.min_rnr_timer,
            timeout: attr.timeout,
            retry_cnt: self.requester.retry_cnt,
            rnr_retry: self.requester.rnr_retry,
            sl: attr.sl,
            sgid_index: attr.sgid_index,
            dgid: self.dgid,
            dmac: attr.dmac,
            hop_limit: attr.hop_limit,
            traffic_class: attr.traffic_class,
            flow_label: attr.flow_label,
            udp_sport: attr.udp_sport,
            vlan: attr.vlan,
            ..QpAttr::default()
        }
    }

    /// Sets all attributes and their copies.
    pub(crate) fn set(&mut self, attr: &QpAttr) {
        self.path_mtu = attr.path_mtu;
        self.access = pack(attr.access);
        self.max_rd_atomic = attr.max_rd_atomic;
        self.max_dest_rd_atomic = attr.max_dest_rd_atomic;
        self.dest_qpn = attr.dest_qpn;
        self.dgid = attr.dgid;
        self.requester.set_retries(attr.retry_cnt, attr.rnr_retry);
        self.attr = RestOfAttr::new(attr);
    }

    /// Sets the QP's own address and its VLAN.
    pub(crate) fn set_source(&mut self, source: GidEntry) {
        (self.sgid, self.vlan, self.route) = (source.gid, source.vlan, NOWHERE);
    }

    /// Returns the device on which the peer was found last.
    #[inline]
    pub(crate) fn route(&self) -> u32 {
        self.route.into()
    }

    /// Returns a reference to the peer, if it is still where it was found last.
    #[inline]
    pub(crate) fn peer_hint(&self) -> QpRef {
        QpRef { device: self.route(), qpn: self.dest_qpn }
    }

    /// Records the device of the peer.
    #[inline]
    pub(crate) fn set_route(&mut self, device: u32) {
        self.route = u16::try_from(device).unwrap_or(NOWHERE);
    }

    /// Whether a packet came from the peer's address to the QP's own, in its VLAN.
    #[inline]
    pub(crate) fn is_path_of_peer(&self, path: &Path) -> bool {
        self.dgid == path.src && self.sgid == path.dst && self.vlan == VlanId::of(path.vlan)
    }

    /// Returns the service, which is stored where each message finds it.
    #[inline]
    pub(crate) fn service(&self) -> QpType {
        self.responder.service
    }

    /// Whether the QP takes its receives from a shared queue. It then has no receive queue of its
    /// own.
    #[inline]
    pub(crate) fn uses_shared_queue(&self) -> bool {
        self.caps.recv_wr == 0 && self.receives() != Receives::Own
    }

    /// Whether the receive queue has room for this many more receives of one element each.
    #[inline]
    pub(crate) fn takes_receives(&self, count: u32) -> bool {
        !self.uses_shared_queue()
            && self.service() != QpType::XrcSend
            && !matches!(self.state, QpState::Reset | QpState::Err)
            && self.caps.recv_sge > 0
            && u32::from(self.caps.recv_wr).saturating_sub(self.responder.queue.len()) >= count
    }

    /// Returns the shared queue that the QP has as long as it lives, with the queue's PD.
    pub(crate) fn shared(&self) -> Option<(SrqRef, PdId)> {
        self.srq.filter(|_| self.service() != QpType::XrcRecv).map(|srq| (srq, self.shared_pd))
    }

    /// Sets the shared queue of an XRC target, with the queue's PD and the CQ of its receives.
    pub(crate) fn have_queue(&mut self, srq: SrqRef, pd: PdId, cq: CqId) {
        (self.srq, self.pd, self.shared_pd, self.recv_cq) = (Some(srq), pd, pd, cq);
    }

    /// Returns the shared queue of the receives of an XRC target.
    #[inline]
    pub(crate) fn xrc_queue(&self) -> Option<SrqId> {
        match self.service() {
            QpType::XrcRecv => self.srq.map(SrqRef::id),
            _ => None,
        }
    }

    /// Returns how many receives the QP has taken from its shared queue that have not ended.
    pub(crate) fn num_taken(&self) -> u32 {
        self.responder.queue.len() + self.flush.as_ref().map_or(0, |flush| flush.receives.len())
    }

    /// Returns the PD of the memory that receives name: that of the queue that they were posted to.
    #[inline]
    pub(crate) fn pd_of_receives(&self) -> PdId {
        // A QP with a shared queue has no receive queue of its own.
        if self.caps.recv_wr == 0 { self.shared_pd } else { self.pd }
    }

    /// Returns the QP as the one whose peer names a key.
    #[inline]
    pub(crate) fn holder(&self) -> Holder<'_> {
        Holder { pd: self.pd, life: &self.life }
    }

    /// Returns the rights of the peer.
    #[inline]
    pub(crate) fn access(&self) -> Access {
        unpack(self.access)
    }

    /// Returns the mark that says that the QP is in the queue of a direction.
    #[inline]
    pub(crate) fn due(&mut self, direction: Direction) -> &mut bool {
        match direction {
            Direction::Answers => &mut self.answer_due,
            Direction::Requests => &mut self.turn_due,
        }
    }

    /// Whether the QP accepts messages of its peer.
    #[inline]
    pub(crate) fn is_receiving(&self) -> bool {
        match self.state {
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => true,
            QpState::Reset | QpState::Init | QpState::Err => false,
        }
    }

    /// Whether the first request of the send queue may be processed.
    #[inline]
    pub(crate) fn can_send(&self) -> bool {
        match self.state {
            QpState::Rts => true,
            QpState::Sqd => self.requester.started,
            _ => false,
        }
    }

    /// Returns the path of packets to the peer, from the MAC address of the QP's device and with
    /// its marks.
    pub(crate) fn path(&self, mac: Mac, marks: Marks) -> Path {
        let attr = &self.attr;
        let flow_label = FlowLabel::truncate(attr.flow_label);
        let src_port = match attr.udp_sport {
            0 => connection_source_port(flow_label, self.qpn, self.dest_qpn),
            port => port,
        };
        Path {
            src_mac: mac,
            dst_mac: attr.dmac,
            vlan: VlanTag::in_vlan(self.vlan, marks.priority(attr.sl)),
            src: self.sgid,
            dst: self.dgid,
            traffic_class: marks.traffic_class(attr.traffic_class),
            flow_label,
            hop_limit: hop_limit(attr.hop_limit),
            src_port,
        }
    }

    /// Returns what ibv_query_qp(3) reports.
    pub(crate) fn query(&self) -> QpAttr {
        QpAttr {
            state: self.state,
            cur_state: self.state,
            sq_draining: self.state == QpState::Sqd && self.requester.started,
            sq_psn: self.requester.psn,
            rq_psn: self.responder.psn,
            ..self.all_attrs()
        }
    }
}

/// Returns the hop limit of an address vector, or a default if it has none.
pub(crate) fn hop_limit(named: u8) -> u8 {
    if named == 0 { 64 } else { named }
}
