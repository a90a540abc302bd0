//! A queue pair: what it is, and its two halves.

pub(crate) mod entry;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod rest;
pub(crate) mod save;
pub(crate) mod state;

use crate::base::carrier::Carrier;
use crate::base::gid::GidEntry;
use crate::base::id::{CqId, OwnerId, PdId, SrqId, XrcdId};
use crate::base::memory::Access;
use crate::base::place::{MaybePlace, Place};
use crate::base::time::{Instant, NEVER};
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

/// What a QP's turn is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// What it owes its peer: responses, acknowledges, refusals.
    Answers,
    /// What its send queue has.
    Requests,
}

/// What all queue pairs have in common. What each message looks at are its first two cache lines,
/// which hold copies of some attributes.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) qpn: Qpn,
    pub(crate) state: QpState,
    pub(crate) path_mtu: Mtu,
    /// What the peer may do: an [`Access`], [`pack`]ed.
    access: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    /// Changed by [`Service::set_carrier`](crate::objects::service::Service::set_carrier) alone.
    pub(crate) carrier: Carrier,
    marker: Marker,
    pub(crate) dest_qpn: Qpn,
    /// The device on which the peer was found last: a hint, proven by comparing addresses each
    /// time.
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

    /// The other attributes. Changed by [`Qp::set`] alone.
    attr: RestOfAttr,
    /// The CQ of its receives when it was made: an XRC target has that of its last message in
    /// `recv_cq`.
    made_with_cq: CqId,
    /// Its domain, if it is an XRC target.
    xrcd: XrcdId,
    /// The PD of the shared queue that it takes receives from, if it does.
    shared_pd: PdId,
    /// That queue; of an XRC target that of the last message, which may have been destroyed.
    pub(crate) srq: Option<SrqRef>,
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
    /// Its first request, if that is started and a datagram, goes to a multicast group, and members
    /// on this host up to this one have had theirs.
    pub(crate) served: MaybePlace,
    /// That of the windows of type 2B that it bound since it was made or reset.
    pub(crate) life: QpLife,
    /// What is still to be flushed, and not in its queues any more: in ERR, or of sends in SQE.
    pub(crate) flush: Option<Box<Flush>>,
}

/// The peer was not found yet. (No engine has so many devices; if one had, its QPs would be
/// searched for each time.)
const NOWHERE: u16 = u16::MAX;

/// Has more unused values than any other field, so `Option<QpEntry>` stores `None` in it: a look-up
/// in [`Qps`](entry::Qps) reads the first cache line alone.
#[derive(Copy, Clone, Debug)]
#[repr(u16)]
enum Marker {
    Here = 0x5150,
}

/// Rights of a QP in a byte: those to FLUSH lie beside the others.
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
    /// In RESET; `shared`: the queue that it takes its receives from as long as it lives, and that
    /// one's PD.
    pub(crate) fn new(qpn: Qpn, init: QpInit, shared: Option<(SrqRef, PdId)>) -> Qp {
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
            turn_due: false,
            answer_due: false,
            held: 0,
            question: 0,
            served: MaybePlace::NONE,
            life: QpLife::NONE,
            flush: None,
        }
    }

    /// What it was made with.
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

    /// Where it takes its receives from.
    #[inline]
    pub(crate) fn receives(&self) -> Receives {
        match (self.service(), self.srq) {
            (QpType::XrcRecv, _) => Receives::Xrc(self.xrcd),
            (_, Some(srq)) => Receives::Shared(srq.id()),
            (_, None) => Receives::Own,
        }
    }

    /// The attributes that no message looks at each time.
    #[inline]
    pub(crate) fn attr(&self) -> &RestOfAttr {
        &self.attr
    }

    /// All attributes, as they were set: `state`, `cur_state` and `sq_draining` are not among them.
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

    /// Sets all attributes, and the copies of them.
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

    /// Sets its own address, and the VLAN in which it is one.
    pub(crate) fn set_source(&mut self, source: GidEntry) {
        (self.sgid, self.vlan, self.route) = (source.gid, source.vlan, NOWHERE);
    }

    /// The device on which its peer was found last.
    #[inline]
    pub(crate) fn route(&self) -> u32 {
        self.route.into()
    }

    /// Where its peer was found last, if it is still there.
    #[inline]
    pub(crate) fn peer_hint(&self) -> Place {
        Place { device: self.route(), qpn: self.dest_qpn }
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

    /// Whether it takes its receives from a shared queue: it has none of its own then.
    #[inline]
    pub(crate) fn uses_shared_queue(&self) -> bool {
        self.caps.recv_wr == 0 && self.receives() != Receives::Own
    }

    /// Whether its receive queue takes so many more receives of one element each now.
    #[inline]
    pub(crate) fn takes_receives(&self, count: u32) -> bool {
        !self.uses_shared_queue()
            && self.service() != QpType::XrcSend
            && !matches!(self.state, QpState::Reset | QpState::Err)
            && self.caps.recv_sge > 0
            && u32::from(self.caps.recv_wr).saturating_sub(self.responder.queue.len()) >= count
    }

    /// The shared queue that it has as long as it lives, and that one's PD.
    pub(crate) fn shared(&self) -> Option<(SrqRef, PdId)> {
        self.srq.filter(|_| self.service() != QpType::XrcRecv).map(|srq| (srq, self.shared_pd))
    }

    /// As an XRC target it has that shared queue now, of that PD, whose receives complete at that
    /// CQ.
    pub(crate) fn have_queue(&mut self, srq: SrqRef, pd: PdId, cq: CqId) {
        (self.srq, self.pd, self.shared_pd, self.recv_cq) = (Some(srq), pd, pd, cq);
    }

    /// The shared queue of its receives, if it is an XRC target.
    #[inline]
    pub(crate) fn xrc_queue(&self) -> Option<SrqId> {
        match self.service() {
            QpType::XrcRecv => self.srq.map(SrqRef::id),
            _ => None,
        }
    }

    /// Receives that it has taken from its shared queue, if it uses one, and that have not ended.
    pub(crate) fn num_taken(&self) -> u32 {
        self.responder.queue.len() + self.flush.as_ref().map_or(0, |flush| flush.receives.len())
    }

    /// The PD whose memory its receives name: that of the queue that they were posted to.
    #[inline]
    pub(crate) fn pd_of_receives(&self) -> PdId {
        // One that uses a shared queue has no receives of its own.
        if self.caps.recv_wr == 0 { self.shared_pd } else { self.pd }
    }

    /// It as the one whose peer names a key.
    #[inline]
    pub(crate) fn holder(&self) -> Holder<'_> {
        Holder { pd: self.pd, life: &self.life }
    }

    /// What the peer may do.
    #[inline]
    pub(crate) fn access(&self) -> Access {
        unpack(self.access)
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
            ..self.all_attrs()
        }
    }
}

/// The hop limit of an address vector, or one for those that name none.
pub(crate) fn hop_limit(named: u8) -> u8 {
    if named == 0 { 64 } else { named }
}
