//! Datagrams to multicast groups: a packet to the wire, and a copy for each member on this host
//! (IBTA 10.5.2).
//!
//! There may be many members. A step therefore serves some of them, and the request stays the first
//! of its queue until all are served. Each member checks for itself whether it takes the datagram.
//! A member without a receive does not delay the sender: its copy is queued as a frame, like one
//! from the wire.

use crate::agenda::drains::MAX_HELD;
use crate::agenda::schedule::{Cost, OPERATION, SentIn};
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::message::core::Core;
use crate::message::outlet::{PacketOutlet, write_frame};
use crate::message::step::Step;
use crate::message::transfer::Side;
use crate::protocol::ud::packet::Datagram;
use crate::protocol::ud::requester::{
    Sent, copy_datagram, datagram_failed, datagram_sent, pieces, show_datagram,
};
use crate::protocol::ud::responder::{admit, admits_datagram, datagram_arrived};
use crate::verbs::completion::{Sink, WcStatus};
use crate::verbs::reason::Reason;
use crate::verbs::request::Payload;
use crate::verbs::work::Work;
use vrdma_wire::num::{Qpn, VlanId};
use vrdma_wire::roce::Packet;

/// Most cost of the copies of one step, if it is more than one copy.
const STEP_COST: Cost = 16 << 10;

/// Executes a step of the first request of the QP at `place`, which sends `datagram` to a group.
pub(crate) fn send_to_group<R: Region>(
    core: &mut Core<R>,
    place: QpRef,
    work: &Work<'_>,
    datagram: &Datagram,
    payload: Payload<'_>,
    outlet: &mut impl PacketOutlet<R>,
    sink: &mut impl Sink,
) -> Sent {
    let packet = &datagram.packet;
    let (device, qp) = core.devices.known(place);
    let mut served = qp.served.get().filter(|_| qp.requester.started);
    let has_begun = qp.requester.started;
    let mut copies = 0;
    if !qp.requester.started && core.port.exists() {
        if !outlet.has_room() {
            return Sent::WAITS;
        }
        if pieces(device, qp, work, payload).is_none_or(|pieces| outlet.send(packet, &pieces).is_err()) {
            return datagram_failed(core, place, work, WcStatus::LocProt, sink);
        }
        core.known(place, sink).counters.packets_out += 1;
        copies = 1;
    }
    if !has_begun
        && !core.port.exists()
        && let Some(mirror) = sink.mirror()
    {
        // A group has one packet, however many members there are. With a port, that one was sent.
        show_datagram(core, (place, None), work, datagram, payload, mirror);
    }
    let most = (STEP_COST / (Cost::from(work.length) + OPERATION)).max(1) as u32;
    // All members of a group have this QPN, and no other QPN reaches them.
    let is_for_members = packet.bth.dest == Qpn::MULTICAST;
    while let Some(to) = next_served(core, packet, served).filter(|_| is_for_members) {
        if copies >= most {
            let (qp, _) = core.devices.known_mut(place);
            (qp.served, qp.requester.started) = (served.into(), true);
            return Sent { step: Step::More, datagrams: copies };
        }
        served = Some(to);
        copies += 1;
        match copy_to_member(core, place, to, work, datagram, payload, sink) {
            Ok(Step::More) => {}
            Ok(_) => return Sent { step: Step::Ended, datagrams: copies },
            Err(status) => return datagram_failed(core, place, work, status, sink),
        }
    }
    if core.is_limited(place.device) && !core.port.exists() {
        core.schedule.sent(place.device, SentIn::Local, work.length.into(), 1);
        core.schedule.rates.charge_qp(place, work.length.into(), 1);
    }
    let mut borrowed = core.known(place, sink);
    if copies == 0 && served.is_none() {
        borrowed.counters.dropped(Reason::NoRoute);
    }
    datagram_sent(&mut borrowed, work);
    Sent { step: Step::Ended, datagrams: copies.max(1) }
}

/// Returns the member of a packet's group that comes after `served`, or the first one.
fn next_served<R: Region>(core: &Core<R>, packet: &Packet, served: Option<QpRef>) -> Option<QpRef> {
    core.devices.next_member(packet.path.dst, VlanId::of(packet.path.vlan), served)
}

/// Gives a copy to a member, which may be the sender.
///
/// Returns `Ended` if this has ended the request. An error is the status with which the request
/// ends.
fn copy_to_member<R: Region>(
    core: &mut Core<R>,
    from: QpRef,
    to: QpRef,
    work: &Work<'_>,
    datagram: &Datagram,
    payload: Payload<'_>,
    sink: &mut impl Sink,
) -> Result<Step, WcStatus> {
    let Datagram { ref packet, deth, imm } = *datagram;
    let (device, qp) = core.devices.known(to);
    if device.limited && admit(device, to.qpn, deth).is_ok() && !admits_datagram(&mut core.schedule.rates, to)
    {
        return Ok(Step::More);
    }
    if qp.held > 0 {
        // A datagram that the member does not take needs no copy and no place in the queue.
        if let Err(reason) = admit(device, to.qpn, deth) {
            core.devices.count_drop(to.device, reason);
            return Ok(Step::More);
        }
        // Packets keep their order, so this one is queued behind earlier ones.
        return hold_copy(core, from, to, work, datagram, payload);
    }
    match copy_datagram(core, from, to, work, datagram, payload) {
        Ok(Ok(())) => datagram_arrived(&mut core.known(to, sink), packet, (deth.src, imm), work.length),
        Ok(Err(error)) if error.side == Side::Source => return Err(WcStatus::LocProt),
        Ok(Err(_)) if to == from => {
            // The order matters: entering ERR flushes what the QP has posted.
            datagram_sent(&mut core.known(from, sink), work);
            core.known(to, sink).receive_failed();
            return Ok(Step::Ended);
        }
        Ok(Err(_)) => core.known(to, sink).receive_failed(),
        Err(Reason::NoReceive) => return hold_copy(core, from, to, work, datagram, payload),
        Err(reason) => core.devices.count_drop(to.device, reason),
    }
    Ok(Step::More)
}

/// Queues a copy for a member until the caller has drained posts of its receives.
#[cold]
fn hold_copy<R: Region>(
    core: &mut Core<R>,
    from: QpRef,
    to: QpRef,
    work: &Work<'_>,
    datagram: &Datagram,
    payload: Payload<'_>,
) -> Result<Step, WcStatus> {
    // The other half of the places is for packets from the wire.
    if core.devices.known_device(to.device).held >= MAX_HELD / 2 {
        core.devices.known_device(to.device).counters.drop_held += 1;
        return Ok(Step::More);
    }
    let (device, qp) = core.devices.known(from);
    let pieces = pieces(device, qp, work, payload).ok_or(WcStatus::LocProt)?;
    let mut frame = vec![0; datagram.packet.frame_len(pieces.len())];
    write_frame(&datagram.packet, &pieces, &mut frame).map_err(|_| WcStatus::LocProt)?;
    core.hold(to, &frame);
    Ok(Step::More)
}
