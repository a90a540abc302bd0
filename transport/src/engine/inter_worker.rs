//! Inter-worker packets: packets from other engines of this process.

use crate::agenda::drains::{Fate, PostedReceives};
use crate::base::inter_worker::{InterWorkerPacket, InterWorkerPayload};
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use crate::engine::Engine;
use crate::engine::wire::Addressee;
use crate::message::outlet::{Pieces, write_frame};
use crate::protocol::ud::packet::grh_of;
use crate::protocol::ud::roce::receive_ud;
use crate::protocol::{roce, uc};
use crate::verbs::attr::QpType;
use crate::verbs::completion::Sink;
use vrdma_wire::num::Pkey;
use vrdma_wire::roce::{Body, Packet};

impl<R: Region> Engine<R> {
    /// Takes an inter-worker packet.
    ///
    /// It may do what a frame may do, and no more. But it is known to be made by an engine of this
    /// process.
    pub fn handle_inter_worker(
        &mut self,
        now: Instant,
        near: &InterWorkerPacket<'_, R>,
        sink: &mut impl Sink,
    ) {
        self.core.port.counters.frames_in += 1;
        let packet = near.packet;
        let Some(Addressee::Device(index)) = self.addressee(packet) else { return };
        let place = QpRef { device: index, qpn: packet.bth.dest };
        let device = self.core.devices.known_device(index);
        if !packet.bth.pkey.matches(Pkey::DEFAULT) {
            device.counters.drop_pkey += 1;
            return;
        }
        if device.suspended {
            device.counters.drop_state += 1;
            return;
        }
        let Some((service, held)) = device.qp(place.qpn).map(|qp| (qp.service(), qp.held)) else {
            device.counters.drop_no_qp += 1;
            return;
        };
        device.counters.packets_in += 1;
        if self.core.schedule.rates.any()
            && !self.came_by_port(now, place, &packet.body, near.payload.len() as usize)
        {
            return;
        }
        let data = (Some(near.part), near.payload);
        let Some(body) = roce::body_for(service, &packet.body) else {
            return match (service, &packet.body) {
                (QpType::Uc, Body::Uc(_)) | (QpType::Ud | QpType::Gsi, Body::Ud { .. }) => {
                    self.arrive_unreliable(place, packet, near.payload, held > 0, sink)
                }
                _ => self.core.devices.known_device(index).counters.drop_service += 1,
            };
        };
        if held > 0 {
            // An earlier packet, queued as a frame, waits for a receive. This one is retransmitted
            // after a timeout.
            return;
        }
        if roce::receive(self.core.known(place, sink), now, packet, data, body, PostedReceives::MayComeYet)
            == Fate::NeedsDrain
        {
            self.core.look_near(place);
        }
    }

    /// Handles an inter-worker packet of an unreliable service, which is never retransmitted.
    ///
    /// If it finds no receive, it is queued as a frame until the caller has drained the posts.
    /// Later packets (`behind`) are queued behind it.
    fn arrive_unreliable(
        &mut self,
        place: QpRef,
        packet: &Packet,
        payload: InterWorkerPayload<'_, R>,
        behind: bool,
        sink: &mut impl Sink,
    ) {
        let InterWorkerPayload::Bytes(payload) = payload else {
            unreachable!("memory is lent for reliable services alone")
        };
        let fate = match &packet.body {
            _ if behind => Fate::NeedsDrain,
            Body::Uc(body) => uc::roce::receive(
                self.core.known(place, sink),
                packet,
                payload,
                body,
                PostedReceives::MayComeYet,
            ),
            &Body::Ud { deth, imm } => {
                let grh = || grh_of(packet, payload.len());
                receive_ud(
                    &mut self.core,
                    place,
                    (packet, payload),
                    (deth, imm),
                    grh,
                    PostedReceives::MayComeYet,
                    sink,
                )
            }
            _ => unreachable!("the caller has seen that it is of an unreliable service"),
        };
        if fate == Fate::NeedsDrain {
            let mut frame = vec![0; packet.frame_len(payload.len())];
            let written = write_frame(packet, &Pieces::<R>::bytes(payload), &mut frame);
            written.expect("bytes are always there");
            self.core.hold(place, &frame);
        }
    }
}
