//! Delivery of a packet to its QP.

use crate::agenda::drains::{Fate, PostedReceives};
use crate::base::inter_worker::InterWorkerPayload;
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use crate::engine::Engine;
use crate::protocol::roce::congestion;
use crate::protocol::ud::packet::grh;
use crate::protocol::ud::roce::receive_ud;
use crate::protocol::{roce, uc};
use crate::verbs::attr::QpType;
use crate::verbs::completion::Sink;
use vrdma_wire::ecn::Ecn;
use vrdma_wire::num::Pkey;
use vrdma_wire::roce::{Body, Packet, Parsed};

impl<R: Region> Engine<R> {
    /// Handles a packet that came for a device.
    ///
    /// A packet that finds no receive is queued until the caller has drained the posts. Later
    /// packets for the QP are queued behind it.
    pub(super) fn arrive(
        &mut self,
        now: Instant,
        place: QpRef,
        parsed: &Parsed<'_>,
        frame: &[u8],
        sink: &mut impl Sink,
    ) {
        let device = self.core.devices.known_device(place.device);
        if !parsed.packet.bth.pkey.matches(Pkey::DEFAULT) {
            device.counters.drop_pkey += 1;
            return;
        }
        if device.held > 0 && device.qp(place.qpn).is_some_and(|qp| qp.held > 0) {
            device.counters.packets_in += 1;
            self.note_mark(now, place, &parsed.packet, sink);
            self.core.hold(place, frame);
            return;
        }
        match self.deliver(now, place, parsed, PostedReceives::MayComeYet, sink) {
            Fate::Done => {}
            Fate::NeedsDrain => self.core.hold(place, frame),
            Fate::Early => self.hold_early(now, place, parsed, frame, sink),
        }
    }

    /// Takes note of a packet for a QP that a switch has marked.
    #[inline]
    fn note_mark(&mut self, now: Instant, place: QpRef, packet: &Packet, sink: &mut impl Sink) {
        if Ecn::of(packet.path.traffic_class) == Ecn::Experienced {
            congestion::marked(self.core.known(place, sink), now, packet);
        }
    }

    /// Delivers a packet to a QP, if there is one and the packet is of its service.
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        place: QpRef,
        parsed: &Parsed<'_>,
        posted: PostedReceives,
        sink: &mut impl Sink,
    ) -> Fate {
        let device = self.core.devices.known_device(place.device);
        if device.suspended {
            device.counters.drop_state += 1;
            return Fate::Done;
        }
        let Some(service) = device.qp(place.qpn).map(|qp| qp.service()) else {
            device.counters.drop_no_qp += 1;
            return Fate::Done;
        };
        device.counters.packets_in += u64::from(posted == PostedReceives::MayComeYet);
        if device.limited {
            self.core.schedule.rates.see(now);
        }
        let (packet, data) = (&parsed.packet, (None, InterWorkerPayload::Bytes(parsed.payload)));
        // A packet that waited for receives comes here twice.
        if posted == PostedReceives::MayComeYet {
            self.note_mark(now, place, packet, sink);
        }
        if let Some(body) = roce::body_for(service, &packet.body) {
            return roce::receive(self.core.known(place, sink), now, packet, data, body, posted);
        }
        match (service, &packet.body) {
            (QpType::Uc, Body::Uc(body)) => {
                return uc::roce::receive(self.core.known(place, sink), packet, parsed.payload, body, posted);
            }
            (QpType::Ud | QpType::Gsi, &Body::Ud { deth, imm }) => {
                let grh = || grh(parsed.ip_header());
                let data = (packet, parsed.payload);
                return receive_ud(&mut self.core, place, data, (deth, imm), grh, posted, sink);
            }
            (_, Body::Cnp) => {
                self.core.port.counters.congestion_notifications += 1;
                congestion::notified(self.core.known(place, sink), now, packet);
            }
            _ => self.core.devices.known_device(place.device).counters.drop_service += 1,
        }
        Fate::Done
    }
}
