//! Unreliable datagrams on packets of RoCEv2.

use crate::agenda::look::{Fate, PostedReceives};
use crate::agenda::schedule::{Cost, TURN_PACKETS};
use crate::base::memory::Region;
use crate::base::place::Place;
use crate::carrier::ud::packet::GRH;
use crate::carrier::ud::responder::{DatagramPayload, accept, datagram_arrived};
use crate::carrier::ud::send::send_first_datagram;
use crate::message::core::Core;
use crate::message::outlet::PacketOutlet;
use crate::message::step::Step;
use crate::verbs::completion::Sink;
use crate::verbs::reason::Reason;
use core::mem;
use vrdma_wire::num::Imm;
use vrdma_wire::roce::{Deth, Packet};

/// A packet of this service came for the QP at `place`, which exists. `grh` says what its receive
/// has before the payload.
pub(crate) fn receive_ud<R: Region>(
    core: &mut Core<R>,
    place: Place,
    (packet, payload): (&Packet, &[u8]),
    (deth, imm): (Deth, Option<Imm>),
    grh: impl FnOnce() -> [u8; GRH],
    posted: PostedReceives,
    sink: &mut impl Sink,
) -> Fate {
    let (device, _) = core.devices.known(place);
    let length = payload.len() as u32;
    let filled = accept(device, place.qpn, deth, length)
        .map(|acceptance| acceptance.fill(&grh(), DatagramPayload::Bytes(payload), &mut core.recv_scratch));
    match filled {
        Ok(Ok(())) => datagram_arrived(&mut core.known(place, sink), packet, (deth.src, imm), length),
        Ok(Err(_)) => core.known(place, sink).receive_failed(),
        Err(Reason::NoReceive) if posted == PostedReceives::MayComeYet => return Fate::Look,
        Err(reason) => core.devices.count_drop(place.device, reason),
    }
    Fate::Done
}

/// A QP's turn: sends datagrams that cost at most about `credit`, and no more than `budget`, as
/// long as `outlet` has room. How many packets that were, and what all cost: datagrams to QPs of
/// this engine, which wait here only behind others, go without packets.
pub(crate) fn transmit_ud<R: Region>(
    core: &mut Core<R>,
    place: Place,
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
