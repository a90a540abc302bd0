//! Packets of other engines of this process come in.

use crate::completion::Sink;
use crate::engine::Engine;
use crate::engine::wire::Addressee;
use crate::look::Fate;
use crate::memory::Region;
use crate::near::{NearPacket, NearPayload};
use crate::outlet::{Pieces, write_frame};
use crate::place::Place;
use crate::qp::attr::QpType;
use crate::time::Instant;
use crate::ud::packet::grh_of;
use vrdma_wire::num::Pkey;
use vrdma_wire::roce::{Body, Packet};

impl<R: Region> Engine<R> {
    /// Takes a packet of another engine of this process. What a frame may do it may, and no more; but who made it is known.
    pub fn handle_near(&mut self, now: Instant, near: &NearPacket<'_, R>, sink: &mut impl Sink) {
        self.port.counters.frames_in += 1;
        let packet = near.packet;
        let Some(Addressee::Device(index)) = self.addressee(packet) else { return };
        let place = Place { device: index, qpn: packet.bth.dest };
        let device = self.devices.known_device(index);
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
        let data = (Some(near.part), near.payload);
        let (body, srqn) = match (service, &packet.body) {
            (QpType::Rc, Body::Rc(body)) => (body, None),
            (QpType::XrcSend, Body::Xrc(body)) if body.srqn().is_none() => (body.rc(), None),
            (QpType::XrcRecv, Body::Xrc(body)) if body.srqn().is_some() => (body.rc(), body.srqn()),
            (QpType::Uc, Body::Uc(_)) | (QpType::Ud | QpType::Gsi, Body::Ud { .. }) => {
                return self.arrive_unreliable(place, packet, near.payload, held > 0, sink);
            }
            _ => {
                device.counters.drop_service += 1;
                return;
            }
        };
        if held > 0 {
            // What came before, as a frame, waits for a receive: this is sent again after a timeout.
            return;
        }
        if self.known(place, sink).receive_rc(now, packet, data, (body, srqn), false) == Fate::Look {
            self.look_near(place);
        }
    }

    /// A packet of an unreliable service came, which nobody sends again: what finds no receive waits, as a frame, until the caller has looked for one, and what comes
    /// after it (`behind`) waits behind it.
    fn arrive_unreliable(
        &mut self,
        place: Place,
        packet: &Packet,
        payload: NearPayload<'_, R>,
        behind: bool,
        sink: &mut impl Sink,
    ) {
        let NearPayload::Bytes(payload) = payload else {
            unreachable!("memory is lent for reliable services alone")
        };
        let fate = match &packet.body {
            _ if behind => Fate::Look,
            Body::Uc(body) => self.known(place, sink).receive_uc(packet, payload, body, false),
            &Body::Ud { deth, imm } => {
                let grh = || grh_of(packet, payload.len());
                self.receive_ud(place, (packet, payload), (deth, imm), grh, false, sink)
            }
            _ => unreachable!("the caller has seen that it is of an unreliable service"),
        };
        if fate == Fate::Look {
            let mut frame = vec![0; packet.frame_len(payload.len())];
            let written = write_frame(packet, &Pieces::<R>::bytes(payload), &mut frame);
            written.expect("bytes are always there");
            self.hold(place, &frame);
        }
    }
}
