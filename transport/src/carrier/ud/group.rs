//! Datagrams to multicast groups: a packet to the wire, and a copy for each member on this host
//! (IBTA 10.5.2).
//!
//! There may be many members, so a step serves some of them, and the request is the first of its
//! queue until all have theirs. Each member checks for itself whether it takes the datagram. One
//! without a receive does not hold up the sender: its copy waits as a frame, as one from the wire
//! would.

use crate::agenda::look::MAX_HELD;
use crate::agenda::schedule::{Cost, OPERATION};
use crate::base::memory::Region;
use crate::base::place::Place;
use crate::carrier::ud::packet::Datagram;
use crate::carrier::ud::requester::{Sent, copy_datagram, datagram_failed, datagram_sent, pieces};
use crate::carrier::ud::responder::{admit, datagram_arrived};
use crate::message::core::Core;
use crate::message::outlet::{PacketOutlet, write_frame};
use crate::message::step::Step;
use crate::message::transfer::Side;
use crate::verbs::completion::{Sink, WcStatus};
use crate::verbs::reason::Reason;
use crate::verbs::request::Payload;
use crate::verbs::work::Work;
use vrdma_wire::num::{Qpn, VlanId};
use vrdma_wire::roce::Packet;

/// What the copies of one step cost at most, if it is more than one.
const STEP_COST: Cost = 16 << 10;

/// A step of the first request of the QP at `place`, which is `datagram`, to a group.
pub(crate) fn send_to_group<R: Region>(
    core: &mut Core<R>,
    place: Place,
    work: &Work<'_>,
    datagram: &Datagram,
    payload: Payload<'_>,
    outlet: &mut impl PacketOutlet<R>,
    sink: &mut impl Sink,
) -> Sent {
    let packet = &datagram.packet;
    let (device, qp) = core.devices.known(place);
    let mut served = qp.served.get().filter(|_| qp.requester.started);
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
    let most = (STEP_COST / (Cost::from(work.length) + OPERATION)).max(1) as u32;
    // All members of a group are behind one number, and behind no other is any.
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
    let mut borrowed = core.known(place, sink);
    if copies == 0 && served.is_none() {
        borrowed.counters.dropped(Reason::NoRoute);
    }
    datagram_sent(&mut borrowed, work);
    Sent { step: Step::Ended, datagrams: copies.max(1) }
}

/// The member of a packet's group that comes after another.
fn next_served<R: Region>(core: &Core<R>, packet: &Packet, served: Option<Place>) -> Option<Place> {
    core.devices.next_member(packet.path.dst, VlanId::of(packet.path.vlan), served)
}

/// Gives a copy to a member, which may be the sender. `Ended` if the request has ended thereby; an
/// error is the request's.
fn copy_to_member<R: Region>(
    core: &mut Core<R>,
    from: Place,
    to: Place,
    work: &Work<'_>,
    datagram: &Datagram,
    payload: Payload<'_>,
    sink: &mut impl Sink,
) -> Result<Step, WcStatus> {
    let Datagram { ref packet, deth, imm } = *datagram;
    let (device, qp) = core.devices.known(to);
    if qp.held > 0 {
        // What it does not take needs no copy and no place among those that wait.
        if let Err(reason) = admit(device, to.qpn, deth) {
            core.devices.count_drop(to.device, reason);
            return Ok(Step::More);
        }
        // Behind those that came before, in order.
        return hold_copy(core, from, to, work, datagram, payload);
    }
    match copy_datagram(core, from, to, work, datagram, payload) {
        Ok(Ok(())) => datagram_arrived(&mut core.known(to, sink), packet, (deth.src, imm), work.length),
        Ok(Err(error)) if error.side == Side::Source => return Err(WcStatus::LocProt),
        Ok(Err(_)) if to == from => {
            // In this order: what it has posted is flushed then.
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

/// Keeps a copy for a member until the caller has looked for its receives.
#[cold]
fn hold_copy<R: Region>(
    core: &mut Core<R>,
    from: Place,
    to: Place,
    work: &Work<'_>,
    datagram: &Datagram,
    payload: Payload<'_>,
) -> Result<Step, WcStatus> {
    // The other places are for packets from the wire.
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
