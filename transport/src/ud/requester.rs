//! The sending half of a datagram QP.

use crate::completion::{Sink, WcStatus};
use crate::device::{Device, PostTarget};
use crate::engine::Engine;
use crate::engine::borrowed::BorrowedQp;
use crate::engine::step::Step;
use crate::gid::GidEntry;
use crate::id::{DeviceId, OwnerId};
use crate::memory::Region;
use crate::message::reason::Reason;
use crate::message::transfer::{Elements, Side, Span, TransferError};
use crate::near::NearPart;
use crate::outlet::{NoOutlet, Outlet, Pieces};
use crate::outstanding::Scratch;
use crate::place::Place;
use crate::qp::Qp;
use crate::qp::attr::QpState;
use crate::qp::requester::Wait;
use crate::request::{Destination, Payload, PostError, Queue, SendRequest};
use crate::schedule::{Cost, OPERATION, WITHIN_POSTS};
use crate::time::Instant;
use crate::ud::packet::{Datagram, datagram, grh_of};
use crate::ud::responder::{DatagramPayload, accept};
use crate::work::Work;
use vrdma_wire::num::{Imm, Qpn, VlanId};
use vrdma_wire::roce::Packet;

/// What became of the first request, and what that cost.
pub(crate) struct Sent {
    pub(crate) step: Step,
    /// How many packets and copies were made of it.
    pub(crate) datagrams: u32,
}

impl Sent {
    pub(crate) const WAITS: Sent = Sent { step: Step::Waits, datagrams: 0 };
    /// As one datagram.
    pub(crate) const ENDED: Sent = Sent { step: Step::Ended, datagrams: 1 };

    /// What it cost, of a request of `length` bytes.
    pub(crate) fn cost(&self, length: u32) -> Cost {
        Cost::from(self.datagrams) * (Cost::from(length) + OPERATION)
    }
}

/// Where a datagram goes.
enum DatagramRoute {
    /// To a QP of this device of the engine.
    Local(u32),
    /// To the wire.
    Wire,
    /// To the members of a multicast group, here and beyond the wire.
    Group,
    /// Nowhere.
    Unreachable,
}

impl<R: Region> Engine<R> {
    /// Whether sends of a QP are posted by [`Engine::post_datagram`].
    #[inline]
    pub fn is_datagram(&self, device: DeviceId, qpn: Qpn) -> bool {
        let qp = self.devices.get(device.0).and_then(|device| device.qp(qpn));
        qp.is_some_and(|qp| qp.service().is_datagram())
    }

    /// Posts to the send queue of a datagram QP, as [`Engine::post_send`] does to that of a connection. An address handle of another PD,
    /// an operation other than SEND, and an own GID that is out of range or not in the VLAN named end as `LocQpOp`, a message longer than the [active MTU](crate::Engine::set_active_mtu)
    /// as `LocLen`; the QP goes to SQE then.
    #[expect(clippy::too_many_arguments, reason = "the same as of the other posts")]
    pub fn post_datagram(
        &mut self,
        now: Instant,
        device: DeviceId,
        owner: OwnerId,
        qpn: Qpn,
        request: &SendRequest<'_>,
        to: &Destination,
        sink: &mut impl Sink,
    ) -> Result<(), PostError> {
        let place = Place { device: device.0, qpn };
        let enough_left = self.schedule.local.may_carry(device.0, WITHIN_POSTS);
        let PostTarget { qp, suspended, .. } = self.posted(place, owner)?;
        if !qp.service().is_datagram() {
            return self.post_invalid(now, device, owner, qpn, request.id, Queue::Send, sink);
        }
        let work = Work::new(request, &qp.caps);
        let idle = qp.state == QpState::Rts && qp.requester.queue.is_empty() && qp.caps.send_wr > 0;
        // What goes to many takes its turns.
        if idle && enough_left && !suspended && !to.dgid.is_multicast() {
            let sent = self.send_datagram(place, &work, Some(to), request.payload, &mut NoOutlet, sink);
            let moved = if sent.step == Step::Ended { work.length } else { 0 };
            self.schedule.local.carry(device.0, moved);
            if sent.step == Step::Ended {
                return Ok(());
            }
        }
        self.enqueue_send(place, &work, Some(to), request.payload, sink)
    }

    /// Sends the first request of a datagram QP. `Waits` if it needs an outlet with room. (It need not be in the queue yet, if
    /// that is empty.)
    pub(crate) fn send_datagram(
        &mut self,
        place: Place,
        work: &Work<'_>,
        to: Option<&Destination>,
        payload: Payload<'_>,
        outlet: &mut impl Outlet<R>,
        sink: &mut impl Sink,
    ) -> Sent {
        let (device, qp) = self.devices.known(place);
        let (to, source, imm) = match check(device, qp, work, to, payload) {
            Ok(checked) => checked,
            Err(status) => return self.datagram_failed(place, work, status, sink),
        };
        let datagram = datagram(device, qp, source, to, imm, work.flags.solicited());
        match self.datagram_route(&datagram.packet) {
            DatagramRoute::Unreachable => {
                let mut borrowed = self.known(place, sink);
                borrowed.counters.dropped(Reason::NoRoute);
                borrowed.datagram_sent(work);
            }
            DatagramRoute::Local(index) => {
                return self.deliver_local(place, index, work, &datagram, payload, sink);
            }
            DatagramRoute::Group => {
                return self.send_to_group(place, work, &datagram, payload, outlet, sink);
            }
            DatagramRoute::Wire => {
                if !outlet.has_room() {
                    return Sent::WAITS;
                }
                let pieces = pieces(device, qp, work, payload);
                let packet = &datagram.packet;
                // It is copied, and lost where its way has no room: others that this QP sends to do not wait for that.
                let is_near = outlet.way_to(packet.path.dst_mac).is_near;
                let part = NearPart { psns: 1, path_mtu: device.active_mtu, may_loan: false };
                let part = is_near.then_some(part);
                if pieces.is_none_or(|pieces| outlet.pass(place.id(), packet, part, &pieces).is_err()) {
                    return self.datagram_failed(place, work, WcStatus::LocProt, sink);
                }
                let mut borrowed = self.known(place, sink);
                borrowed.counters.packets_out += 1;
                borrowed.datagram_sent(work);
            }
        }
        Sent::ENDED
    }

    /// Which way a packet goes.
    fn datagram_route(&self, packet: &Packet) -> DatagramRoute {
        let (src, dst) = (packet.path.src, packet.path.dst);
        // Without an own address, and from one kind of address to the other, nothing can be sent.
        if src.is_zero() || src.ipv4().is_some() != dst.ipv4().is_some() {
            return DatagramRoute::Unreachable;
        }
        if dst.is_multicast() {
            return DatagramRoute::Group;
        }
        match self.devices.gids.owner(GidEntry { gid: dst, vlan: VlanId::of(packet.path.vlan) }) {
            Some(index) => DatagramRoute::Local(index),
            None if self.port.exists() => DatagramRoute::Wire,
            None => DatagramRoute::Unreachable,
        }
    }

    /// Copies a datagram into a receive of the QP at `peer`, if that takes it.
    pub(super) fn copy_datagram(
        &mut self,
        place: Place,
        peer: Place,
        work: &Work<'_>,
        datagram: &Datagram,
        payload: Payload<'_>,
    ) -> Result<Result<(), TransferError>, Reason> {
        let (device, qp) = self.devices.known(place);
        let target = self.devices.get(peer.device).expect("only a device has a GID");
        accept(target, peer.qpn, datagram.deth, work.length).map(|acceptance| {
            let data = match payload {
                Payload::Inline(data) => DatagramPayload::Bytes(data),
                Payload::Sges(sges) => {
                    let elements = local_elements(device, qp, work);
                    DatagramPayload::Memory(Span::of(elements, sges, 0, work.length), work.length)
                }
            };
            let grh = grh_of(&datagram.packet, work.length as usize);
            acceptance.fill(&grh, data, &mut self.recv_scratch)
        })
    }

    /// To a QP of this engine, without a packet: one copy.
    fn deliver_local(
        &mut self,
        place: Place,
        index: u32,
        work: &Work<'_>,
        datagram: &Datagram,
        payload: Payload<'_>,
        sink: &mut impl Sink,
    ) -> Sent {
        let Datagram { ref packet, deth, imm } = *datagram;
        let peer = Place { device: index, qpn: packet.bth.dest };
        match self.copy_datagram(place, peer, work, datagram, payload) {
            Ok(Ok(())) => {
                self.known(peer, sink).datagram_arrived(packet, (deth.src, imm), work.length);
                self.known(place, sink).datagram_sent(work);
            }
            Ok(Err(error)) if error.side == Side::Source => {
                return self.datagram_failed(place, work, WcStatus::LocProt, sink);
            }
            Ok(Err(_)) => {
                // In this order: it may be the same QP.
                self.known(place, sink).datagram_sent(work);
                self.known(peer, sink).receive_failed();
            }
            Err(Reason::NoReceive) if !self.has_looked(place) => {
                self.ask(place, peer);
                return Sent::WAITS;
            }
            Err(reason) => {
                self.devices.count_drop(index, reason);
                self.known(place, sink).datagram_sent(work);
            }
        }
        Sent::ENDED
    }

    fn has_looked(&self, place: Place) -> bool {
        self.devices.known(place).1.requester.wait == Wait::Looked
    }

    #[cold]
    pub(super) fn datagram_failed(
        &mut self,
        place: Place,
        work: &Work<'_>,
        status: WcStatus,
        sink: &mut impl Sink,
    ) -> Sent {
        self.known(place, sink).fail(work, status);
        Sent::ENDED
    }

    /// Sends the first request that is in a datagram QP's queue, if there is one that may be sent.
    pub(crate) fn send_first_datagram(
        &mut self,
        place: Place,
        scratch: &mut Scratch,
        outlet: &mut impl Outlet<R>,
        sink: &mut impl Sink,
    ) -> Sent {
        let (device, qp) = self.devices.known(place);
        if device.suspended || !qp.can_send() {
            return Sent::WAITS;
        }
        let to = device.requests.front_to(&qp.requester.queue);
        let Some((send, payload)) = device.requests.front_send(&qp.requester.queue, scratch) else {
            return Sent::WAITS;
        };
        self.send_datagram(place, &send.work(), to.as_ref(), payload, outlet, sink)
    }
}

impl<R: Region, S: Sink> BorrowedQp<'_, R, S> {
    /// A datagram has left: its request has ended.
    pub(super) fn datagram_sent(&mut self, work: &Work<'_>) {
        let requester = &mut self.qp.requester;
        requester.psn = requester.psn.add(1);
        requester.ended();
        self.counters.sends += 1;
        self.counters.bytes_out += u64::from(work.length);
        self.end_send(work, WcStatus::Success);
        self.tell_if_drained();
    }
}

/// What a request carries, or `None` if a part of it may not be used.
pub(super) fn pieces<'a, R>(
    device: &'a Device<R>,
    qp: &Qp,
    work: &Work<'_>,
    payload: Payload<'a>,
) -> Option<Pieces<'a, R>> {
    match payload {
        Payload::Inline(data) => Some(Pieces::bytes(data)),
        Payload::Sges(sges) => {
            Pieces::memory(Span::list(local_elements(device, qp, work), sges, 0), work.length)
        }
    }
}

/// The sender's memory.
fn local_elements<'a, R>(device: &'a Device<R>, qp: &Qp, work: &Work<'_>) -> Elements<'a, R> {
    Elements { mrs: &device.mrs, pd: qp.pd, rights: work.row.local }
}

/// Where a request goes, from which own address and with which immediate data; or how it ends here.
fn check<'a, R>(
    device: &Device<R>,
    qp: &Qp,
    work: &Work<'_>,
    to: Option<&'a Destination>,
    payload: Payload<'_>,
) -> Result<(&'a Destination, GidEntry, Option<Imm>), WcStatus> {
    if let Some(status) = work.error {
        return Err(status);
    }
    let (true, Some(to)) = (work.row.is_of(qp.service()), to) else { return Err(WcStatus::LocQpOp) };
    let source = device.gids.get(usize::from(to.sgid_index)).copied();
    let (Some(source), true) = (source, to.pd == qp.pd) else { return Err(WcStatus::LocQpOp) };
    // From no address nothing is sent, in whatever VLAN.
    if source != GidEntry::EMPTY && !source.is_in(to.vlan) {
        return Err(WcStatus::LocQpOp);
    }
    if work.length > device.active_mtu.bytes() {
        return Err(WcStatus::LocLen);
    }
    match payload {
        Payload::Sges(sges) if !local_elements(device, qp, work).check(sges) => Err(WcStatus::LocProt),
        _ => Ok((to, source, work.op.imm())),
    }
}
