//! Unreliable datagrams on packets of RoCEv2.

use crate::completion::Sink;
use crate::engine::Engine;
use crate::engine::step::Step;
use crate::look::Fate;
use crate::memory::Region;
use crate::message::reason::Reason;
use crate::outlet::Outlet;
use crate::place::Place;
use crate::schedule::{Cost, TURN_PACKETS};
use crate::ud::packet::GRH;
use crate::ud::responder::{DatagramPayload, accept};
use core::mem;
use vrdma_wire::num::Imm;
use vrdma_wire::roce::{Deth, Packet};

impl<R: Region> Engine<R> {
    /// A packet of this service came for the QP at `place`, which exists. `grh` says what its receive has before the payload.
    pub(crate) fn receive_ud(
        &mut self,
        place: Place,
        (packet, payload): (&Packet, &[u8]),
        (deth, imm): (Deth, Option<Imm>),
        grh: impl FnOnce() -> [u8; GRH],
        looked: bool,
        sink: &mut impl Sink,
    ) -> Fate {
        let (device, _) = self.devices.known(place);
        let length = payload.len() as u32;
        let filled = accept(device, place.qpn, deth, length).map(|acceptance| {
            acceptance.fill(&grh(), DatagramPayload::Bytes(payload), &mut self.recv_scratch)
        });
        match filled {
            Ok(Ok(())) => self.known(place, sink).datagram_arrived(packet, (deth.src, imm), length),
            Ok(Err(_)) => self.known(place, sink).receive_failed(),
            Err(Reason::NoReceive) if !looked => return Fate::Look,
            Err(reason) => self.devices.count_drop(place.device, reason),
        }
        Fate::Done
    }

    /// A QP's turn: sends datagrams that cost at most about `credit`, and no more than `budget`, as long as `outlet` has room. How many packets that were, and
    /// what all cost: datagrams to QPs of this engine, which wait here only behind others, go without packets.
    pub(crate) fn transmit_ud(
        &mut self,
        place: Place,
        budget: usize,
        credit: Cost,
        outlet: &mut impl Outlet<R>,
        sink: &mut impl Sink,
    ) -> (usize, Cost) {
        let before = self.packets_out(place.device);
        let mut cost = 0;
        let mut scratch = mem::take(&mut self.send_scratch);
        for _ in 0..budget.min(TURN_PACKETS) {
            let (device, qp) = self.devices.known(place);
            let first = device.requests.first_send(&qp.requester.queue);
            let length = first.map_or(0, |first| first.work().length);
            if cost >= credit {
                break;
            }
            let sent = self.send_first_datagram(place, &mut scratch, outlet, sink);
            if sent.step == Step::Waits {
                break;
            }
            cost += sent.cost(length);
        }
        self.send_scratch = scratch;
        self.known(place, sink).make_ready();
        ((self.packets_out(place.device) - before) as usize, cost)
    }
}
