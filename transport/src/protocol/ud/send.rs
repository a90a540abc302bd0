//! Routing and sending of datagrams.

use crate::agenda::schedule::SentIn;
use crate::base::gid::GidEntry;
use crate::base::inter_worker::InterWorkerPart;
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::message::core::Core;
use crate::message::outlet::PacketOutlet;
use crate::message::transfer::Side;
use crate::objects::device::Device;
use crate::objects::outstanding::Scratch;
use crate::objects::qp::requester::Wait;
use crate::objects::qp::{Direction, Qp};
use crate::protocol::ud::group::send_to_group;
use crate::protocol::ud::packet::{Datagram, datagram};
use crate::protocol::ud::requester::{
    Sent, copy_datagram, datagram_failed, datagram_sent, local_elements, pieces, show_datagram,
};
use crate::protocol::ud::responder::{admit, admits_datagram, datagram_arrived};
use crate::verbs::completion::{Sink, WcStatus};
use crate::verbs::reason::Reason;
use crate::verbs::request::{Destination, Payload};
use crate::verbs::work::Work;
use vrdma_wire::num::{Imm, VlanId};
use vrdma_wire::roce::{Deth, Packet};

/// The route of a datagram.
enum DatagramRoute {
    /// To a QP of the device with this index in the engine.
    Local(u32),
    /// To the wire.
    Wire,
    /// To the members of a multicast group, on this host and beyond the wire.
    Group,
    /// No route.
    Unreachable,
}

/// Sends the first request of a datagram QP. Returns `Waits` if it needs an outlet with room, or a
/// receive.
///
/// The request need not be in the queue yet if the queue is empty.
pub(crate) fn send_datagram<R: Region>(
    core: &mut Core<R>,
    place: QpRef,
    work: &Work<'_>,
    to: Option<&Destination>,
    payload: Payload<'_>,
    outlet: &mut impl PacketOutlet<R>,
    sink: &mut impl Sink,
) -> Sent {
    let (device, qp) = core.devices.known(place);
    let (to, source, imm) = match check(device, qp, work, to, payload) {
        Ok(checked) => checked,
        Err(status) => return datagram_failed(core, place, work, status, sink),
    };
    let datagram = datagram(device, qp, source, to, imm, work.flags.solicited());
    match datagram_route(core, &datagram.packet) {
        DatagramRoute::Unreachable => {
            let mut borrowed = core.known(place, sink);
            borrowed.counters.dropped(Reason::NoRoute);
            datagram_sent(&mut borrowed, work);
        }
        DatagramRoute::Local(index) => {
            return deliver_local(core, place, index, work, &datagram, payload, sink);
        }
        DatagramRoute::Group => {
            return send_to_group(core, place, work, &datagram, payload, outlet, sink);
        }
        DatagramRoute::Wire => {
            if !outlet.has_room() {
                return Sent::WAITS;
            }
            let pieces = pieces(device, qp, work, payload);
            let packet = &datagram.packet;
            // The payload is copied. The datagram is lost if its way has no room, so that the QP's
            // datagrams to other destinations do not wait.
            let is_near = outlet.way_to(packet.path.dst_mac).is_near;
            let part = InterWorkerPart { psns: 1, path_mtu: device.active_mtu, may_pin: false };
            let part = is_near.then_some(part);
            if pieces.is_none_or(|pieces| outlet.pass(place.id(), packet, part, &pieces).is_err()) {
                return datagram_failed(core, place, work, WcStatus::LocProt, sink);
            }
            let mut borrowed = core.known(place, sink);
            borrowed.counters.packets_out += 1;
            datagram_sent(&mut borrowed, work);
        }
    }
    Sent::ENDED
}

/// Returns the route of a packet.
fn datagram_route<R: Region>(core: &Core<R>, packet: &Packet) -> DatagramRoute {
    let (src, dst) = (packet.path.src, packet.path.dst);
    // Nothing can be sent without a source address, or between IPv4 and IPv6.
    if src.is_zero() || src.ipv4().is_some() != dst.ipv4().is_some() {
        return DatagramRoute::Unreachable;
    }
    if dst.is_multicast() {
        return DatagramRoute::Group;
    }
    match core.devices.gids.owner(GidEntry { gid: dst, vlan: VlanId::of(packet.path.vlan) }) {
        Some(index) => DatagramRoute::Local(index),
        None if core.port.exists() => DatagramRoute::Wire,
        None => DatagramRoute::Unreachable,
    }
}

/// Delivers a datagram to a QP of this engine: one copy, without a packet.
fn deliver_local<R: Region>(
    core: &mut Core<R>,
    place: QpRef,
    index: u32,
    work: &Work<'_>,
    datagram: &Datagram,
    payload: Payload<'_>,
    sink: &mut impl Sink,
) -> Sent {
    let Datagram { ref packet, deth, imm } = *datagram;
    let peer = QpRef { device: index, qpn: packet.bth.dest };
    let may_be_limited = core.is_limited(place.device) || core.is_limited(index);
    if may_be_limited && !is_within_rates(core, place, peer, deth, work) {
        datagram_sent(&mut core.known(place, sink), work);
        return Sent::ENDED;
    }
    match copy_datagram(core, place, peer, work, datagram, payload) {
        Ok(Ok(())) => {
            if let Some(mirror) = sink.mirror() {
                show_datagram(core, (place, Some(peer)), work, datagram, payload, mirror);
            }
            datagram_arrived(&mut core.known(peer, sink), packet, (deth.src, imm), work.length);
            datagram_sent(&mut core.known(place, sink), work);
        }
        Ok(Err(error)) if error.side == Side::Source => {
            return datagram_failed(core, place, work, WcStatus::LocProt, sink);
        }
        Ok(Err(_)) => {
            // The order matters, because it may be the same QP.
            datagram_sent(&mut core.known(place, sink), work);
            core.known(peer, sink).receive_failed();
        }
        Err(Reason::NoReceive) if !has_looked(core, place) => {
            core.ask(place, peer);
            return Sent::WAITS;
        }
        Err(reason) => {
            core.devices.count_drop(index, reason);
            datagram_sent(&mut core.known(place, sink), work);
        }
    }
    Sent::ENDED
}

/// Counts a datagram to a QP of this engine as sent. Returns whether the QP's device may get it.
#[cold]
fn is_within_rates<R: Region>(
    core: &mut Core<R>,
    place: QpRef,
    to: QpRef,
    deth: Deth,
    work: &Work<'_>,
) -> bool {
    if has_looked(core, place) {
        // It was counted when it found no receive.
        return true;
    }
    let turn = if core.port.exists() { SentIn::Wire(Direction::Requests) } else { SentIn::Local };
    core.schedule.sent(place.device, turn, work.length.into(), 1);
    core.schedule.rates.charge_qp(place, work.length.into(), 1);
    let is_taken = core.devices.get(to.device).is_some_and(|device| admit(device, to.qpn, deth).is_ok());
    !is_taken || !core.is_limited(to.device) || admits_datagram(&mut core.schedule.rates, to)
}

fn has_looked<R: Region>(core: &Core<R>, place: QpRef) -> bool {
    core.devices.known(place).1.requester.wait == Wait::Drained
}

/// Sends the first request in a datagram QP's queue, if there is one that may be sent.
pub(crate) fn send_first_datagram<R: Region>(
    core: &mut Core<R>,
    place: QpRef,
    scratch: &mut Scratch,
    outlet: &mut impl PacketOutlet<R>,
    sink: &mut impl Sink,
) -> Sent {
    let (device, qp) = core.devices.known(place);
    if device.suspended || !qp.can_send() {
        return Sent::WAITS;
    }
    let to = device.requests.front_to(&qp.requester.queue);
    let Some((send, payload)) = device.requests.front_send(&qp.requester.queue, scratch) else {
        return Sent::WAITS;
    };
    send_datagram(core, place, &send.work(), to.as_ref(), payload, outlet, sink)
}

/// Checks a request. Returns its destination, source address and immediate data, or the status with
/// which it ends.
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
    // Without a source address nothing is sent, in any VLAN.
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
