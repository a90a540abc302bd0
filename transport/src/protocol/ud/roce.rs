//! Unreliable datagrams on RoCEv2 packets.

use crate::agenda::drains::{Fate, PostedReceives};
use crate::agenda::schedule::{Cost, TURN_PACKETS};
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::message::core::Core;
use crate::message::outlet::PacketOutlet;
use crate::message::step::Step;
use crate::protocol::ud::packet::GRH;
use crate::protocol::ud::responder::{DatagramPayload, accept, admits_datagram, datagram_arrived};
use crate::protocol::ud::send::send_first_datagram;
use crate::verbs::completion::Sink;
use crate::verbs::reason::Reason;
use core::mem;
use vrdma_wire::num::Imm;
use vrdma_wire::roce::{Deth, Packet};

/// Handles a datagram packet that came for the QP at `place`, which exists.
///
/// `grh` returns what its receive has before the payload.
pub(crate) fn receive_ud<R: Region>(
    core: &mut Core<R>,
    place: QpRef,
    (packet, payload): (&Packet, &[u8]),
    (deth, imm): (Deth, Option<Imm>),
    grh: impl FnOnce() -> [u8; GRH],
    posted: PostedReceives,
    sink: &mut impl Sink,
) -> Fate {
    let (device, _) = core.devices.known(place);
    let length = payload.len() as u32;
    let accepted = accept(device, place.qpn, deth, length);
    // One that has found no receive was admitted before.
    let may_be_limited = device.limited && accepted.is_ok() && posted == PostedReceives::MayComeYet;
    if may_be_limited && !admits_datagram(&mut core.schedule.rates, place) {
        return Fate::Done;
    }
    let filled = accepted
        .map(|acceptance| acceptance.fill(&grh(), DatagramPayload::Bytes(payload), &mut core.recv_scratch));
    match filled {
        Ok(Ok(())) => datagram_arrived(&mut core.known(place, sink), packet, (deth.src, imm), length),
        Ok(Err(_)) => core.known(place, sink).receive_failed(),
        Err(Reason::NoReceive) if posted == PostedReceives::MayComeYet => return Fate::NeedsDrain,
        Err(reason) => core.devices.count_drop(place.device, reason),
    }
    Fate::Done
}

/// Gives a QP its turn: sends datagrams while `outlet` has room.
///
/// They are at most `budget`, and cost about `credit` at most. Returns how many packets were sent,
/// and the cost of all datagrams. Datagrams to QPs of this engine go without packets. They wait
/// here only behind others.
pub(crate) fn transmit_ud<R: Region>(
    core: &mut Core<R>,
    place: QpRef,
    budget: usize,
    credit: Cost,
    outlet: &mut impl PacketOutlet<R>,
    sink: &mut impl Sink,
) -> (usize, Cost) {
    let before = core.packets_out(place.device);
    let mut cost = 0;
    let mut scratch = mem::take(&mut core.send_scratch);
    for _ in 0..budget.min(TURN_PACKETS) {
        let (device, qp) = core.devices.known(place);
        let first = device.requests.first_send(&qp.requester.queue);
        let length = first.map_or(0, |first| first.work().length);
        if cost >= credit {
            break;
        }
        let sent = send_first_datagram(core, place, &mut scratch, outlet, sink);
        if sent.step == Step::Waits {
            break;
        }
        cost += sent.cost(length);
    }
    core.send_scratch = scratch;
    core.known(place, sink).make_ready();
    ((core.packets_out(place.device) - before) as usize, cost)
}
