//! The port: received frames are parsed and find their QP, and QPs with packets to send take turns.
//!
//! The QP's service handles the packet: [`rc`](crate::protocol::roce),
//! [`uc`](crate::protocol::uc::roce), [`ud`](crate::protocol::ud::roce).

use crate::agenda::schedule::{Cost, OPERATION};
use crate::agenda::sweeps::Task;
use crate::base::dcqcn::Dcqcn;
use crate::base::error::Error;
use crate::base::gid::GidEntry;
use crate::base::id::DeviceId;
use crate::base::inter_worker::InterWorkerPart;
use crate::base::marks::Marks;
use crate::base::memory::{Fault, Region};
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use crate::base::transport_kind::TransportKind;
use crate::engine::Engine;
use crate::engine::rates::{Moving, meaning};
use crate::engine::reorder::EXECUTED;
use crate::message::outlet::{
    DiscardOutlet, Fpdu, Outlet, PacketOutlet, Pieces, PlacedFpdu, StreamEnd, StreamOutlet, Way,
};
use crate::objects::qp::Direction;
use crate::objects::qp::requester::Wait;
use crate::objects::roce::packet::OVERHEAD;
use crate::protocol::iwarp::data::ends_request;
use crate::protocol::roce::congestion::{Pace, pace, paced};
use crate::protocol::ud::roce::transmit_ud;
use crate::verbs::attr::QpType;
use crate::verbs::completion::{NoSink, Sink};
use crate::verbs::counters::{MalformedFrames, PortCounters};
use core::mem;
use vrdma_wire::DropReason;
use vrdma_wire::num::{Mac, Qpn, VlanId};
use vrdma_wire::roce::{Packet, Parsed};

/// An outlet that adds up the cost of packets.
///
/// It has no room once the device has spent what it may in its turn, or what its rate allows.
struct Metered<'a, O> {
    outlet: &'a mut O,
    credit: Cost,
    cost: Cost,
    /// What rates allow, if there are any.
    limit: Option<Moving>,
    /// What was sent, if there are any rates.
    moved: Moving,
    /// Bytes of frames that the rate of the QP allows, if congestion gave it one.
    burst: Option<u64>,
    /// Whether the next turn is far because of that rate.
    is_slow: bool,
    /// Bytes of frames that were sent.
    framed: u64,
}

impl<'a, O> Metered<'a, O> {
    fn new(outlet: &'a mut O, credit: Cost, limit: Option<Moving>, pace: Pace) -> Metered<'a, O> {
        let (burst, is_slow) = match pace {
            Pace::Burst { bytes, is_slow } => (Some(bytes), is_slow),
            Pace::Free | Pace::Waits(_) => (None, false),
        };
        Metered { outlet, credit, cost: 0, limit, moved: Moving::default(), burst, is_slow, framed: 0 }
    }

    /// Counts a packet.
    fn add(&mut self, packet: &Packet, payload: usize) {
        self.cost += payload as Cost + OPERATION;
        self.framed += payload as u64 + OVERHEAD;
        if self.limit.is_some() {
            self.count(payload, meaning(&packet.body));
        }
    }

    fn is_within_rates(&self) -> bool {
        let Moving { bytes, messages, .. } = self.moved;
        self.limit.is_none_or(|most| bytes < most.bytes && messages < most.messages)
            && self.burst.is_none_or(|most| self.framed < most)
    }

    fn count(&mut self, bytes: usize, (messages, asked): (u64, u64)) {
        self.moved.bytes += bytes as u64;
        self.moved.messages += messages;
        self.moved.asked += asked;
    }
}

impl<O: Outlet> Outlet for Metered<'_, O> {
    fn has_room(&mut self) -> bool {
        self.cost < self.credit && self.is_within_rates() && self.outlet.has_room()
    }

    fn has_rate(&self) -> bool {
        self.limit.is_some() || self.is_slow
    }

    fn may_ask(&self) -> bool {
        self.limit.is_none_or(|most| self.moved.asked < most.asked)
    }

    fn rate_leaves(&self) -> u64 {
        self.limit.map_or(u64::MAX, |most| most.bytes.saturating_sub(self.moved.bytes))
    }

    fn ends_with(&self, payload: usize, begins: bool) -> bool {
        // After a burst, other QPs of a device with rates may take long.
        let may_be_long = self.is_slow || self.limit.is_some();
        let ends_burst = |most| may_be_long && self.framed + payload as u64 + OVERHEAD >= most;
        if self.burst.is_some_and(ends_burst) {
            return true;
        }
        let Some(most) = self.limit else { return false };
        let Moving { bytes, messages, .. } = self.moved;
        self.cost + payload as Cost + OPERATION >= self.credit
            || bytes + payload as u64 >= most.bytes
            || messages + u64::from(begins) >= most.messages
    }
}

impl<R: Region, O: PacketOutlet<R>> PacketOutlet<R> for Metered<'_, O> {
    fn way_to(&mut self, dst: Mac) -> Way {
        self.outlet.way_to(dst)
    }

    fn send(&mut self, packet: &Packet, payload: &Pieces<'_, R>) -> Result<(), Fault> {
        self.add(packet, payload.len());
        self.outlet.send(packet, payload)
    }

    fn carries(&mut self, payload: &Pieces<'_, R>) -> bool {
        self.outlet.carries(payload)
    }

    fn send_inter_worker(
        &mut self,
        device: DeviceId,
        packet: &Packet,
        part: InterWorkerPart,
        payload: &Pieces<'_, R>,
    ) -> Result<(), Fault> {
        self.add(packet, payload.len());
        self.outlet.send_inter_worker(device, packet, part, payload)
    }
}

impl<R: Region, O: StreamOutlet<R>> StreamOutlet<R> for Metered<'_, O> {
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
        if self.limit.is_some() {
            let begins = fpdu.segment.as_ref().is_some_and(ends_request);
            self.count(payload.len(), (begins.into(), 0));
        }
        self.outlet.send_fpdu(device, qpn, fpdu, payload)
    }

    fn takes_placed(&mut self, device: DeviceId, qpn: Qpn) -> bool {
        self.outlet.takes_placed(device, qpn)
    }

    fn send_placed(&mut self, device: DeviceId, qpn: Qpn, placed: PlacedFpdu) {
        self.cost += Cost::from(placed.payload) + OPERATION;
        if self.limit.is_some() {
            self.count(placed.payload as usize, (ends_request(&placed.segment).into(), 0));
        }
        self.outlet.send_placed(device, qpn, placed);
    }

    fn end_stream(&mut self, device: DeviceId, qpn: Qpn, end: StreamEnd) {
        self.outlet.end_stream(device, qpn, end);
    }
}

/// Cost of copied datagrams that counts as one packet of a budget.
///
/// It is that of the longest packet: its bytes, and an operation.
const COPIED_PACKET: Cost = 4096 + OPERATION;

/// The destination of a packet.
pub(super) enum Addressee {
    /// A QP of a device.
    Device(u32),
    /// The members of a multicast group.
    Group,
}

impl<R: Region> Engine<R> {
    /// Reports that there is a port to other hosts, and whether its link is up.
    ///
    /// Before the first call there is no port. While the link is down, packets that QPs send are
    /// lost, so their timers run. If the link is up again in time, QPs go on at once. The next
    /// calls of [`Engine::poll`] do so, each for some QPs.
    pub fn set_link(&mut self, up: bool) {
        let was_down = self.core.port.link == Some(false);
        self.core.port.link = Some(up);
        match up {
            true if was_down => {
                for device in 0..self.core.devices.indices() {
                    if self.core.devices.get(device).is_some() {
                        self.sweep(device, Task::StartOver);
                    }
                }
            }
            true => {}
            false => self.sweeps.end(Task::StartOver),
        }
    }

    /// Sets the source MAC address of a device's packets.
    ///
    /// It is also the only destination MAC address that packets for the device may have.
    pub fn set_mac(&mut self, device: DeviceId, mac: Mac) -> Result<(), Error> {
        self.core.devices.find_mut(device)?.mac = mac;
        Ok(())
    }

    /// Sets the parameters of congestion control, or switches it off.
    ///
    /// It is off in a new engine. A record of the engine does not have it. With it, packets of
    /// reliable connections say that their ends understand marks of switches (RFC 3168), marked
    /// packets are answered by notifications, and notifications lower the rate of a QP (IBTA annex
    /// A17.9, [`Dcqcn`]). Returns `Invalid` for parameters that are not
    /// [valid](Dcqcn::is_valid).
    pub fn set_congestion(&mut self, parameters: Option<Dcqcn>) -> Result<(), Error> {
        if parameters.is_some_and(|it| !it.is_valid()) {
            return Err(Error::Invalid);
        }
        self.core.schedule.dcqcn = parameters;
        Ok(())
    }

    /// Sets what the packets of a device have instead of what programs ask for.
    ///
    /// A record of the engine does not have it.
    pub fn set_marks(&mut self, device: DeviceId, marks: Marks) -> Result<(), Error> {
        self.core.devices.find_mut(device)?.marks = marks;
        Ok(())
    }

    /// Returns the counters of packets that belong to no single device.
    pub fn port_counters(&self) -> &PortCounters {
        &self.core.port.counters
    }

    /// Returns the counters of frames from the wire that were no packets.
    pub fn malformed_frames(&self) -> &MalformedFrames {
        &self.core.port.malformed
    }

    /// Takes a frame from the wire, from the Ethernet header on: an IP packet to UDP port 4791.
    ///
    /// A frame can do no more than its sender's connections allow, whatever it contains. What is
    /// refused is counted, and leaves no other trace.
    pub fn handle_frame(&mut self, now: Instant, frame: &[u8], sink: &mut impl Sink) {
        // The parsed packet is not moved. A copy right after its fields were stored would wait for
        // these stores.
        self.handle_parsed(now, &Packet::parse(frame), frame, sink);
    }

    /// Takes a frame from the wire that the caller has parsed.
    ///
    /// `parsed` is what [`Packet::parse`] made of `frame`. Apart from that, it does what
    /// [`Engine::handle_frame`] does.
    #[inline]
    pub fn handle_parsed(
        &mut self,
        now: Instant,
        parsed: &Result<Parsed<'_>, DropReason>,
        frame: &[u8],
        sink: &mut impl Sink,
    ) {
        self.core.port.counters.frames_in += 1;
        let parsed = match parsed {
            Ok(parsed) => parsed,
            Err(reason) => return self.core.port.malformed.count(*reason),
        };
        if let Err(reason) = parsed.check_icrc() {
            return self.core.port.malformed.count(reason);
        }
        self.route(now, parsed, frame, sink);
    }

    /// Takes a packet that the caller has parsed, and whose ICRC it has found right.
    ///
    /// This is for callers that measure how long each part takes.
    pub fn handle_packet(&mut self, now: Instant, parsed: &Parsed<'_>, frame: &[u8], sink: &mut impl Sink) {
        self.core.port.counters.frames_in += 1;
        self.route(now, parsed, frame, sink);
    }

    /// Delivers a packet to its destination.
    #[inline]
    fn route(&mut self, now: Instant, parsed: &Parsed<'_>, frame: &[u8], sink: &mut impl Sink) {
        match self.addressee(&parsed.packet) {
            Some(Addressee::Device(device)) => {
                let place = QpRef { device, qpn: parsed.packet.bth.dest };
                self.arrive(now, place, parsed, frame, sink);
            }
            Some(Addressee::Group) => self.handle_group(now, parsed, frame, sink),
            None => {}
        }
    }

    /// Returns the destination of a packet, unless it was dropped.
    pub(super) fn addressee(&mut self, packet: &Packet) -> Option<Addressee> {
        let counters = &mut self.core.port.counters;
        let vlan = VlanId::of(packet.path.vlan);
        if self.core.devices.gids.owner(GidEntry { gid: packet.path.src, vlan }).is_some() {
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
        let Some(index) = self.core.devices.gids.owner(GidEntry { gid: packet.path.dst, vlan }) else {
            match self.core.devices.gids.is_anywhere(packet.path.dst) {
                true => counters.drop_vlan += 1,
                false => counters.drop_no_device += 1,
            }
            return None;
        };
        if self.core.devices.known_device(index).mac != packet.path.dst_mac {
            counters.drop_mac += 1;
            return None;
        }
        Some(Addressee::Device(index))
    }

    /// Gives QPs with packets to send their turns. Returns whether more could be sent now.
    ///
    /// It sends at most `budget` packets, while `outlet` has room. While the link is down it does
    /// nothing.
    pub fn transmit(
        &mut self,
        now: Instant,
        budget: usize,
        outlet: &mut (impl PacketOutlet<R> + StreamOutlet<R>),
        sink: &mut impl Sink,
    ) -> bool {
        self.core.schedule.see(now);
        if !self.core.port.is_up() || self.core.schedule.wire.is_idle() {
            return false;
        }
        let sent = self.give_turns(now, budget, outlet, sink);
        self.core.port.counters.frames_out += sent as u64;
        self.can_transmit()
    }

    /// Whether a call of [`Engine::transmit`] has something to do. While the link is down, this is
    /// [`Engine::poll`].
    pub(super) fn can_transmit(&self) -> bool {
        self.core.schedule.wire.len() > 0
    }

    /// Makes and loses the packets of QPs while the link is down.
    pub(super) fn lose_packets(&mut self, now: Instant, sink: &mut impl Sink) {
        /// Packets in one call: the full windows of eight QPs.
        const BUDGET: usize = 1024;
        if !self.core.port.is_up() && self.can_transmit() {
            let lost = self.give_turns(now, BUDGET, &mut DiscardOutlet, sink);
            self.core.port.counters.lost_link_down += lost as u64;
        }
    }

    /// Gives QPs their turns. Returns how many packets they sent.
    fn give_turns(
        &mut self,
        now: Instant,
        budget: usize,
        outlet: &mut (impl PacketOutlet<R> + StreamOutlet<R>),
        sink: &mut impl Sink,
    ) -> usize {
        let is_up = self.core.port.is_up();
        let (mut sent, mut spent) = (0, 0);
        while spent < budget && outlet.has_room() {
            self.begin_step();
            let Some((place, direction)) = self.core.schedule.wire.pop() else { break };
            if let Some((device, qpn, lines)) = self.next_lines(place.device, direction) {
                outlet.expect(device, qpn, lines);
            }
            let limited = self.core.is_limited(place.device);
            // A time that it has waited for at a limit stays its own while it waits for its rate.
            if limited && self.waits_for_pace(now, (place, direction)) {
                spent += 1 + self.execute_meanwhile(now, (place, direction), sink);
                continue;
            }
            let limit = if limited { self.limit_by_port(place, direction) } else { None };
            if limited && limit.is_none() {
                self.core.schedule.wire.spend(place.device, direction, OPERATION);
                spent += 1;
                continue;
            }
            // The QP may have been destroyed since it was due.
            let Some(mut borrowed) = self.core.borrow(place, sink) else { continue };
            if !mem::take(borrowed.qp.due(direction)) || borrowed.suspended {
                // A suspended device's QPs get their turns when the device goes on.
                continue;
            }
            if direction == Direction::Answers && borrowed.holds_early() {
                // The other half is for answers.
                let most = borrowed.schedule.wire.credit(place.device) / 2;
                let (count, cost) = self.execute_early(now, place, (EXECUTED, most), sink);
                self.core.schedule.wire.spend(place.device, direction, cost);
                spent += count;
                borrowed = self.core.known(place, sink);
            }
            // READs that were executed just now have responses, which wait too.
            let pace = pace(&mut borrowed, now, direction);
            if let Pace::Waits(at) = pace {
                spent += 1;
                match mem::replace(borrowed.qp.due(direction), true) {
                    // It has more to do at once, and has a turn for that.
                    true => self.core.schedule.wire.spend(place.device, direction, OPERATION),
                    false => self.postpone(now, (place, direction), at),
                }
                continue;
            }
            let (left, credit) = (budget.saturating_sub(spent), borrowed.schedule.wire.credit(place.device));
            let mut outlet = Metered::new(outlet, credit, limit, pace);
            let (packets, requests, copied) = match (borrowed.qp.transport, borrowed.qp.service()) {
                // Nothing of a stream is lost. It waits until the link is up.
                (TransportKind::Tcp, _) if !is_up => {
                    borrowed.stream().conn.block();
                    (0, 0, 0)
                }
                (TransportKind::Tcp, _) => {
                    let turn = (place, direction);
                    (0, self.transmit_stream(now, turn, left, &mut outlet, sink), 0)
                }
                (_, QpType::Ud | QpType::Gsi) => {
                    // What is copied on this host is counted datagram by datagram.
                    let left = if limit.is_some() { 1 } else { left };
                    let (packets, copied) =
                        transmit_ud(&mut self.core, place, left, credit, &mut outlet, sink);
                    (packets, 0, copied)
                }
                (TransportKind::Roce, QpType::Uc) => {
                    let (packets, requests) = borrowed.uc_roce().transmit(left, &mut outlet);
                    (packets, requests, 0)
                }
                (TransportKind::Roce, QpType::Rc | QpType::XrcSend | QpType::XrcRecv) => {
                    let (packets, requests) = borrowed.roce().transmit(now, direction, left, &mut outlet);
                    (packets, requests, 0)
                }
                // The turn was scheduled before the QP's address vector changed.
                (TransportKind::Local, QpType::Uc) => {
                    borrowed.make_ready();
                    (0, 0, 0)
                }
                (TransportKind::Local, QpType::Rc | QpType::XrcSend | QpType::XrcRecv) => (0, 0, 0),
            };
            // Packets that are lost because there is no source address cost an operation each. So
            // do requests without packets, and a turn that found nothing to do.
            let done = (packets + requests).max(1);
            let cost = outlet.cost.max(copied).max(done as Cost * OPERATION);
            let (moved, framed) = (outlet.moved, outlet.framed);
            self.core.schedule.wire.spend(place.device, direction, cost);
            if limit.is_some() {
                self.moved_by_port(place, direction, moved);
            }
            if pace != Pace::Free
                && let Some(mut borrowed) = self.core.borrow(place, sink)
            {
                paced(&mut borrowed, now, direction, framed);
            }
            sent += packets;
            // A turn without packets counts too, or this loop would not end. Copied datagrams count
            // like packets.
            spent += done.max((copied / COPIED_PACKET) as usize);
        }
        sent
    }

    /// Makes a QP that has a turn of the port wait if its rate says so. Returns whether it does.
    #[cold]
    fn waits_for_pace(&mut self, now: Instant, (place, direction): (QpRef, Direction)) -> bool {
        let no_sink = &mut NoSink;
        let Some(mut borrowed) = self.core.borrow(place, no_sink) else { return false };
        if !*borrowed.qp.due(direction) || borrowed.suspended {
            return false;
        }
        let Pace::Waits(at) = pace(&mut borrowed, now, direction) else { return false };
        self.postpone(now, (place, direction), at);
        true
    }

    /// Gives a QP, which was taken out of its queue, a turn of the port at some time.
    fn postpone(&mut self, now: Instant, (place, direction): (QpRef, Direction), at: Instant) {
        let schedule = &mut self.core.schedule;
        schedule.rates.something_waits(now);
        schedule.wire.postpone(place, direction, at);
        schedule.wire.spend(place.device, direction, OPERATION);
    }

    /// Gives a QP on a stream its turn. Returns as how many FPDUs what it did counts.
    fn transmit_stream(
        &mut self,
        now: Instant,
        (place, direction): (QpRef, Direction),
        left: usize,
        outlet: &mut (impl PacketOutlet<R> + StreamOutlet<R>),
        sink: &mut impl Sink,
    ) -> usize {
        let mut stream = self.core.known(place, sink).stream();
        let (fpdus, requests) = match stream.conn.joined() {
            None => stream.transmit(now, direction, left, outlet),
            Some(joined) => self.transmit_joined(now, (place, direction, joined), left, outlet, sink),
        };
        fpdus + requests
    }

    /// Decides the transport kind of a connected QP.
    ///
    /// It is [`TransportKind::Local`] if the peer's address is of this engine, or if there is no
    /// port. While a request is under way, the QP keeps its transport kind.
    pub(super) fn choose_transport(&mut self, place: QpRef) {
        let (_, qp) = self.core.devices.known(place);
        if qp.service().is_datagram() || qp.requester.started {
            return;
        }
        let peer = GidEntry { gid: qp.dgid, vlan: qp.vlan };
        let local = !self.core.port.exists() || self.core.devices.gids.owner(peer).is_some();
        let transport = if local { TransportKind::Local } else { TransportKind::Roce };
        let (qp, service) = self.core.devices.known_mut(place);
        // A question that the QP asked is void.
        qp.requester.wait = Wait::No;
        service.set_transport(qp, transport);
    }
}
