//! The port: frames come in, are parsed and find their QP; QPs with packets to send take turns.
//!
//! What a packet means to its QP is the business of its service: [`rc`](crate::rc::roce), [`uc`](crate::uc::roce), [`ud`](crate::ud::roce).

use crate::carrier::Carrier;
use crate::completion::Sink;
use crate::counters::{MalformedFrames, PortCounters};
use crate::engine::Engine;
use crate::engine::sweeps::Task;
use crate::error::Error;
use crate::gid::GidEntry;
use crate::id::DeviceId;
use crate::look::Fate;
use crate::memory::{Fault, Region};
use crate::near::{NearPart, NearPayload};
use crate::outlet::{DiscardOutlet, Fpdu, Outlet, Pieces, PlacedFpdu, StreamEnd, Way};
use crate::place::Place;
use crate::qp::attr::QpType;
use crate::qp::requester::Wait;
use crate::schedule::{Cost, Direction, OPERATION};
use crate::time::Instant;
use crate::ud::packet::grh;
use core::mem;
use vrdma_wire::num::{Mac, Pkey, Qpn, VlanId};
use vrdma_wire::roce::{Body, Packet, Parsed};

/// An outlet that reckons what packets cost, and has no room once that is all that their device may spend in its turn.
struct Metered<'a, O> {
    outlet: &'a mut O,
    credit: Cost,
    cost: Cost,
}

impl<'a, O> Metered<'a, O> {
    fn new(outlet: &'a mut O, credit: Cost) -> Metered<'a, O> {
        Metered { outlet, credit, cost: 0 }
    }
}

impl<R: Region, O: Outlet<R>> Outlet<R> for Metered<'_, O> {
    fn has_room(&mut self) -> bool {
        self.cost < self.credit && self.outlet.has_room()
    }

    fn way_to(&mut self, dst: Mac) -> Way {
        self.outlet.way_to(dst)
    }

    fn send(&mut self, packet: &Packet, payload: &Pieces<'_, R>) -> Result<(), Fault> {
        self.cost += payload.len() as Cost + OPERATION;
        self.outlet.send(packet, payload)
    }

    fn carries(&mut self, payload: &Pieces<'_, R>) -> bool {
        self.outlet.carries(payload)
    }

    fn send_near(
        &mut self,
        device: DeviceId,
        packet: &Packet,
        part: NearPart,
        payload: &Pieces<'_, R>,
    ) -> Result<(), Fault> {
        self.cost += payload.len() as Cost + OPERATION;
        self.outlet.send_near(device, packet, part, payload)
    }

    fn stream_has_room(&mut self, device: DeviceId, qpn: Qpn) -> bool {
        self.outlet.stream_has_room(device, qpn)
    }

    fn send_fpdu(
        &mut self,
        device: DeviceId,
        qpn: Qpn,
        fpdu: &Fpdu,
        payload: &Pieces<'_, R>,
    ) -> Result<(), Fault> {
        self.cost += payload.len() as Cost + OPERATION;
        self.outlet.send_fpdu(device, qpn, fpdu, payload)
    }

    fn takes_placed(&mut self, device: DeviceId, qpn: Qpn) -> bool {
        self.outlet.takes_placed(device, qpn)
    }

    fn send_placed(&mut self, device: DeviceId, qpn: Qpn, placed: PlacedFpdu) {
        self.cost += Cost::from(placed.payload) + OPERATION;
        self.outlet.send_placed(device, qpn, placed);
    }

    fn end_stream(&mut self, device: DeviceId, qpn: Qpn, end: StreamEnd) {
        self.outlet.end_stream(device, qpn, end);
    }
}

/// What a datagram that is copied costs of a budget of packets: as many bytes as in the longest packet, and an operation.
const COPIED_PACKET: Cost = 4096 + OPERATION;

/// Whom a packet is for.
pub(super) enum Addressee {
    /// A QP of a device.
    Device(u32),
    /// The members of a multicast group.
    Group,
}

impl<R: Region> Engine<R> {
    /// Says that there is a port to other hosts, and whether its link is up. While it is down, what QPs send is lost: so their
    /// timers run, and what they began goes on if the link is up again in time: at once, by the next calls of [`Engine::poll`], which take
    /// some QPs each. Before the first call there is no port.
    pub fn set_link(&mut self, up: bool) {
        let was_down = self.port.link == Some(false);
        self.port.link = Some(up);
        match up {
            true if was_down => {
                for device in 0..self.devices.indices() {
                    if self.devices.get(device).is_some() {
                        self.sweep(device, Task::StartOver);
                    }
                }
            }
            true => {}
            false => self.sweeps.end(Task::StartOver),
        }
    }

    /// Sets the source MAC address of a device's packets, which is also the only one that packets for it may have as their destination.
    pub fn set_mac(&mut self, device: DeviceId, mac: Mac) -> Result<(), Error> {
        self.devices.find_mut(device)?.mac = mac;
        Ok(())
    }

    /// What was counted of packets that are no single device's business.
    pub fn port_counters(&self) -> &PortCounters {
        &self.port.counters
    }

    /// What came from the wire and was no packet.
    pub fn malformed_frames(&self) -> &MalformedFrames {
        &self.port.malformed
    }

    /// Takes a frame from the wire, from the Ethernet header on: an IP packet to UDP port 4791. Nothing that it may hold can do more
    /// than its sender's connections allow; what is refused is counted, and no trace of it remains.
    pub fn handle_frame(&mut self, now: Instant, frame: &[u8], sink: &mut impl Sink) {
        self.port.counters.frames_in += 1;
        // The packet stays where it was put: to copy what was just stored field by field takes until these stores are done.
        let parsed = Packet::parse(frame);
        let parsed = match &parsed {
            Ok(parsed) => parsed,
            Err(reason) => return self.port.malformed.count(*reason),
        };
        if let Err(reason) = parsed.check_icrc() {
            return self.port.malformed.count(reason);
        }
        self.route(now, parsed, frame, sink);
    }

    /// The same of a packet that was parsed, and its ICRC found right, by the caller: who wants to know what takes how long.
    pub fn handle_packet(&mut self, now: Instant, parsed: &Parsed<'_>, frame: &[u8], sink: &mut impl Sink) {
        self.port.counters.frames_in += 1;
        self.route(now, parsed, frame, sink);
    }

    /// To whom it is for.
    #[inline]
    fn route(&mut self, now: Instant, parsed: &Parsed<'_>, frame: &[u8], sink: &mut impl Sink) {
        match self.addressee(&parsed.packet) {
            Some(Addressee::Device(device)) => {
                let place = Place { device, qpn: parsed.packet.bth.dest };
                self.arrive(now, place, parsed, frame, sink);
            }
            Some(Addressee::Group) => self.handle_group(now, parsed, frame, sink),
            None => {}
        }
    }

    /// Whom a packet is for, unless it was dropped.
    pub(super) fn addressee(&mut self, packet: &Packet) -> Option<Addressee> {
        let counters = &mut self.port.counters;
        let vlan = VlanId::of(packet.path.vlan);
        if self.devices.gids.owner(GidEntry { gid: packet.path.src, vlan }).is_some() {
            counters.drop_spoofed += 1;
            return None;
        }
        if packet.path.dst.is_multicast() {
            if packet.path.dst_mac.is_unicast() {
                counters.drop_mac += 1;
                return None;
            }
            return Some(Addressee::Group);
        }
        let Some(index) = self.devices.gids.owner(GidEntry { gid: packet.path.dst, vlan }) else {
            match self.devices.gids.is_anywhere(packet.path.dst) {
                true => counters.drop_vlan += 1,
                false => counters.drop_no_device += 1,
            }
            return None;
        };
        if self.devices.known_device(index).mac != packet.path.dst_mac {
            counters.drop_mac += 1;
            return None;
        }
        Some(Addressee::Device(index))
    }

    /// A packet came for a device. What finds no receive waits until the caller has looked for it, and what comes after it waits behind it.
    pub(super) fn arrive(
        &mut self,
        now: Instant,
        place: Place,
        parsed: &Parsed<'_>,
        frame: &[u8],
        sink: &mut impl Sink,
    ) {
        let device = self.devices.known_device(place.device);
        if !parsed.packet.bth.pkey.matches(Pkey::DEFAULT) {
            device.counters.drop_pkey += 1;
            return;
        }
        if device.held > 0 && device.qp(place.qpn).is_some_and(|qp| qp.held > 0) {
            device.counters.packets_in += 1;
            self.hold(place, frame);
        } else if self.deliver(now, place, parsed, false, sink) == Fate::Look {
            self.hold(place, frame);
        }
    }

    /// To a QP, if there is one and the packet is of its service. `looked`: a receive that is missing now is not on its way.
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        place: Place,
        parsed: &Parsed<'_>,
        looked: bool,
        sink: &mut impl Sink,
    ) -> Fate {
        let device = self.devices.known_device(place.device);
        if device.suspended {
            device.counters.drop_state += 1;
            return Fate::Done;
        }
        let Some(service) = device.qp(place.qpn).map(|qp| qp.service()) else {
            device.counters.drop_no_qp += 1;
            return Fate::Done;
        };
        device.counters.packets_in += u64::from(!looked);
        let (packet, data) = (&parsed.packet, (None, NearPayload::Bytes(parsed.payload)));
        match (service, &parsed.packet.body) {
            (QpType::Rc, Body::Rc(body)) => {
                return self.known(place, sink).receive_rc(now, packet, data, (body, None), looked);
            }
            (QpType::XrcSend, Body::Xrc(body)) if body.srqn().is_none() => {
                return self.known(place, sink).receive_rc(now, packet, data, (body.rc(), None), looked);
            }
            (QpType::XrcRecv, Body::Xrc(body)) if body.srqn().is_some() => {
                return self.known(place, sink).receive_rc(
                    now,
                    packet,
                    data,
                    (body.rc(), body.srqn()),
                    looked,
                );
            }
            (QpType::Uc, Body::Uc(body)) => {
                return self.known(place, sink).receive_uc(packet, parsed.payload, body, looked);
            }
            (QpType::Ud | QpType::Gsi, &Body::Ud { deth, imm }) => {
                let grh = || grh(parsed.ip_header());
                return self.receive_ud(place, (packet, parsed.payload), (deth, imm), grh, looked, sink);
            }
            (_, Body::Cnp) => self.port.counters.congestion_notifications += 1,
            _ => device.counters.drop_service += 1,
        }
        Fate::Done
    }

    /// Gives QPs with packets to send their turns, for at most `budget` packets and as long as `outlet` has room; true if more could be
    /// sent now. While the link is down it does nothing.
    pub fn transmit(
        &mut self,
        now: Instant,
        budget: usize,
        outlet: &mut impl Outlet<R>,
        sink: &mut impl Sink,
    ) -> bool {
        if !self.port.is_up() || self.schedule.wire.is_idle() {
            return false;
        }
        let sent = self.give_turns(now, budget, outlet, sink);
        self.port.counters.frames_out += sent as u64;
        self.can_transmit()
    }

    /// Whether a call of [`Engine::transmit`] (or, while the link is down, [`Engine::poll`]) has something to do.
    pub(super) fn can_transmit(&self) -> bool {
        self.schedule.wire.len() > 0
    }

    /// While the link is down, what would be sent is lost.
    pub(super) fn lose_packets(&mut self, now: Instant, sink: &mut impl Sink) {
        /// So much a call: all the windows of eight QPs.
        const BUDGET: usize = 1024;
        if !self.port.is_up() && self.can_transmit() {
            let lost = self.give_turns(now, BUDGET, &mut DiscardOutlet, sink);
            self.port.counters.lost_link_down += lost as u64;
        }
    }

    /// Gives QPs their turns; how many packets they sent.
    fn give_turns(
        &mut self,
        now: Instant,
        budget: usize,
        outlet: &mut impl Outlet<R>,
        sink: &mut impl Sink,
    ) -> usize {
        let is_up = self.port.is_up();
        let (mut sent, mut spent) = (0, 0);
        while spent < budget && outlet.has_room() {
            self.begin_step();
            let Some((place, direction)) = self.schedule.wire.pop() else { break };
            if let Some((device, qpn, lines)) = self.next_lines(place.device, direction) {
                outlet.expect(device, qpn, lines);
            }
            // It may have been destroyed since it was due.
            let Some(mut borrowed) = self.borrow(place, sink) else { continue };
            let due = match direction {
                Direction::Answers => &mut borrowed.qp.answer_due,
                Direction::Requests => &mut borrowed.qp.turn_due,
            };
            if !mem::take(due) || borrowed.suspended {
                // Its turns come when its device goes on.
                continue;
            }
            let (left, credit) = (budget - spent, borrowed.schedule.wire.credit(place.device));
            let mut outlet = Metered::new(outlet, credit);
            let (packets, requests, copied) = match borrowed.qp.service() {
                // Nothing of a stream is lost: it waits until the link is up.
                _ if borrowed.qp.carrier == Carrier::Tcp && !is_up => {
                    borrowed.service.tcp().block();
                    (0, 0, 0)
                }
                _ if borrowed.qp.carrier == Carrier::Tcp => {
                    let (fpdus, requests) = match borrowed.service.tcp().joined() {
                        None => borrowed.transmit_tcp(now, direction, left, &mut outlet),
                        Some(joined) => {
                            let turn = (place, direction, joined);
                            self.transmit_joined(now, turn, left, &mut outlet, sink)
                        }
                    };
                    (0, fpdus + requests, 0)
                }
                QpType::Rc | QpType::XrcSend | QpType::XrcRecv => {
                    let (packets, requests) = borrowed.transmit_rc(now, direction, left, &mut outlet);
                    (packets, requests, 0)
                }
                QpType::Uc => {
                    let (packets, requests) = borrowed.transmit_uc(left, &mut outlet);
                    (packets, requests, 0)
                }
                QpType::Ud | QpType::Gsi => {
                    let (packets, copied) = self.transmit_ud(place, left, credit, &mut outlet, sink);
                    (packets, 0, copied)
                }
            };
            // Packets that left for nowhere cost an operation each, and so do requests without one, and a turn that found nothing to do.
            let done = (packets + requests).max(1);
            let cost = outlet.cost.max(copied).max(done as Cost * OPERATION);
            self.schedule.wire.spend(place.device, direction, cost);
            sent += packets;
            // A turn without a packet costs too, or this would have no end; what was copied costs as packets would.
            spent += done.max((copied / COPIED_PACKET) as usize);
        }
        sent
    }

    /// Decides which carrier the messages of a connected QP take: [`Carrier::Local`] if its peer's address is of this engine, or if there is no
    /// port. Not while a request is under way: then it stays with what it has.
    pub(super) fn choose_carrier(&mut self, place: Place) {
        let (_, qp) = self.devices.known(place);
        if qp.service().is_datagram() || qp.requester.started {
            return;
        }
        let peer = GidEntry { gid: qp.dgid, vlan: qp.vlan };
        let local = !self.port.exists() || self.devices.gids.owner(peer).is_some();
        let carrier = if local { Carrier::Local } else { Carrier::Roce };
        let (qp, service) = self.devices.known_mut(place);
        // A question that it asked is void.
        qp.requester.wait = Wait::No;
        service.set_carrier(qp, carrier);
    }

    /// How many packets a device has sent.
    pub(crate) fn packets_out(&self, device: u32) -> u64 {
        self.devices.get(device).map_or(0, |device| device.counters.packets_out)
    }
}
