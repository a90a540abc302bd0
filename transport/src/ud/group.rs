//! Datagrams to multicast groups: a packet to the wire, and a copy for each member on this host (IBTA 10.5.2).
//!
//! There may be many members, so a step serves some of them, and the request is the first of its queue until all have theirs. Each member checks for itself
//! whether it takes the datagram. One without a receive does not hold up the sender: its copy waits as a frame, as one from the wire would.

use crate::completion::{Sink, WcStatus};
use crate::engine::Engine;
use crate::engine::step::Step;
use crate::look::MAX_HELD;
use crate::memory::Region;
use crate::message::reason::Reason;
use crate::message::transfer::Side;
use crate::outlet::{Outlet, write_frame};
use crate::place::Place;
use crate::request::Payload;
use crate::schedule::{Cost, OPERATION};
use crate::ud::packet::Datagram;
use crate::ud::requester::{Sent, pieces};
use crate::ud::responder::admit;
use crate::work::Work;
use vrdma_wire::num::{Qpn, VlanId};
use vrdma_wire::roce::Packet;

/// What the copies of one step cost at most, if it is more than one.
const STEP_COST: Cost = 16 << 10;

impl<R: Region> Engine<R> {
    /// A step of the first request of the QP at `place`, which is `datagram`, to a group.
    pub(super) fn send_to_group(
        &mut self,
        place: Place,
        work: &Work<'_>,
        datagram: &Datagram,
        payload: Payload<'_>,
        outlet: &mut impl Outlet<R>,
        sink: &mut impl Sink,
    ) -> Sent {
        let packet = &datagram.packet;
        let (device, qp) = self.devices.known(place);
        let mut served = qp.served.get().filter(|_| qp.requester.started);
        let mut copies = 0;
        if !qp.requester.started && self.port.exists() {
            if !outlet.has_room() {
                return Sent::WAITS;
            }
            if pieces(device, qp, work, payload).is_none_or(|pieces| outlet.send(packet, &pieces).is_err()) {
                return self.datagram_failed(place, work, WcStatus::LocProt, sink);
            }
            self.known(place, sink).counters.packets_out += 1;
            copies = 1;
        }
        let most = (STEP_COST / (Cost::from(work.length) + OPERATION)).max(1) as u32;
        // All members of a group are behind one number, and behind no other is any.
        let is_for_members = packet.bth.dest == Qpn::MULTICAST;
        while let Some(to) = self.next_served(packet, served).filter(|_| is_for_members) {
            if copies >= most {
                let (qp, _) = self.devices.known_mut(place);
                (qp.served, qp.requester.started) = (served.into(), true);
                return Sent { step: Step::More, datagrams: copies };
            }
            served = Some(to);
            copies += 1;
            match self.copy_to_member(place, to, work, datagram, payload, sink) {
                Ok(Step::More) => {}
                Ok(_) => return Sent { step: Step::Ended, datagrams: copies },
                Err(status) => return self.datagram_failed(place, work, status, sink),
            }
        }
        let mut borrowed = self.known(place, sink);
        if copies == 0 && served.is_none() {
            borrowed.counters.dropped(Reason::NoRoute);
        }
        borrowed.datagram_sent(work);
        Sent { step: Step::Ended, datagrams: copies.max(1) }
    }

    /// The member of a packet's group that comes after another.
    fn next_served(&self, packet: &Packet, served: Option<Place>) -> Option<Place> {
        self.devices.next_member(packet.path.dst, VlanId::of(packet.path.vlan), served)
    }

    /// Gives a copy to a member, which may be the sender. `Ended` if the request has ended thereby; an error is the request's.
    fn copy_to_member(
        &mut self,
        from: Place,
        to: Place,
        work: &Work<'_>,
        datagram: &Datagram,
        payload: Payload<'_>,
        sink: &mut impl Sink,
    ) -> Result<Step, WcStatus> {
        let Datagram { ref packet, deth, imm } = *datagram;
        let (device, qp) = self.devices.known(to);
        if qp.held > 0 {
            // What it does not take needs no copy and no place among those that wait.
            if let Err(reason) = admit(device, to.qpn, deth) {
                self.devices.count_drop(to.device, reason);
                return Ok(Step::More);
            }
            // Behind those that came before, in order.
            return self.hold_copy(from, to, work, datagram, payload);
        }
        match self.copy_datagram(from, to, work, datagram, payload) {
            Ok(Ok(())) => self.known(to, sink).datagram_arrived(packet, (deth.src, imm), work.length),
            Ok(Err(error)) if error.side == Side::Source => return Err(WcStatus::LocProt),
            Ok(Err(_)) if to == from => {
                // In this order: what it has posted is flushed then.
                self.known(from, sink).datagram_sent(work);
                self.known(to, sink).receive_failed();
                return Ok(Step::Ended);
            }
            Ok(Err(_)) => self.known(to, sink).receive_failed(),
            Err(Reason::NoReceive) => return self.hold_copy(from, to, work, datagram, payload),
            Err(reason) => self.devices.count_drop(to.device, reason),
        }
        Ok(Step::More)
    }

    /// Keeps a copy for a member until the caller has looked for its receives.
    #[cold]
    fn hold_copy(
        &mut self,
        from: Place,
        to: Place,
        work: &Work<'_>,
        datagram: &Datagram,
        payload: Payload<'_>,
    ) -> Result<Step, WcStatus> {
        // The other places are for packets from the wire.
        if self.devices.known_device(to.device).held >= MAX_HELD / 2 {
            self.devices.known_device(to.device).counters.drop_held += 1;
            return Ok(Step::More);
        }
        let (device, qp) = self.devices.known(from);
        let pieces = pieces(device, qp, work, payload).ok_or(WcStatus::LocProt)?;
        let mut frame = vec![0; datagram.packet.frame_len(pieces.len())];
        write_frame(&datagram.packet, &pieces, &mut frame).map_err(|_| WcStatus::LocProt)?;
        self.hold(to, &frame);
        Ok(Step::More)
    }
}
