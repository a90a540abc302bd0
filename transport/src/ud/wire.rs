//! Unreliable datagrams on packets.

use crate::completion::Sink;
use crate::engine::{Engine, Step, TURN_PACKETS};
use crate::look::Fate;
use crate::memory::Region;
use crate::message::verdict::Reason;
use crate::outlet::Outlet;
use crate::schedule::Place;
use crate::time::Instant;
use crate::ud::packet::grh;
use crate::ud::responder::{Data, accept};
use core::mem;
use vrdma_wire::roce::{Body, Parsed};

impl<R: Region> Engine<R> {
    /// A packet of this service came for the QP at `place`, which exists.
    pub(crate) fn receive_ud(
        &mut self,
        _now: Instant,
        place: Place,
        parsed: &Parsed<'_>,
        looked: bool,
        sink: &mut impl Sink,
    ) -> Fate {
        let (packet, payload) = (&parsed.packet, parsed.payload);
        let Body::Ud { deth, imm } = packet.body else { return Fate::Done };
        let Some(device) = self.devices.get(place.device) else { return Fate::Done };
        let length = payload.len() as u32;
        let filled = accept(device, place.qpn, deth, length)
            .map(|acceptance| acceptance.fill(&grh(parsed.ip_header()), Data::Bytes(payload), &mut self.far));
        match filled {
            Ok(Ok(())) => self.datagram_arrived(place, packet, (deth.src, imm), length, sink),
            Ok(Err(_)) => self.receive_failed(place, sink),
            Err(Reason::NoReceive) if !looked => return Fate::Look,
            Err(reason) => self.devices.count_drop(place.device, reason),
        }
        Fate::Done
    }

    /// A QP's turn: sends at most `budget` packets, as long as `outlet` has room; how many it sent.
    /// Datagrams to QPs of this engine, which wait here only behind others, go without packets.
    pub(crate) fn transmit_ud(
        &mut self,
        _now: Instant,
        place: Place,
        budget: usize,
        outlet: &mut impl Outlet<R>,
        sink: &mut impl Sink,
    ) -> usize {
        let before = self.packets_out(place.device);
        let mut scratch = mem::take(&mut self.own);
        for _ in 0..budget.min(TURN_PACKETS) {
            if self.send_first_datagram(place, &mut scratch, outlet, sink) == Step::Waits {
                break;
            }
        }
        self.own = scratch;
        self.make_ready(place);
        (self.packets_out(place.device) - before) as usize
    }

    /// A packet to a multicast group. There is no way yet for a QP to join one.
    pub(crate) fn receive_multicast(&mut self, _now: Instant, _parsed: &Parsed<'_>, _sink: &mut impl Sink) {
        self.port.counters.drop_multicast += 1;
    }
}
