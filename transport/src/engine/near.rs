//! Packets of other engines of this process come in.

use crate::completion::Sink;
use crate::engine::Engine;
use crate::engine::wire::Addressee;
use crate::look::Fate;
use crate::memory::Region;
use crate::near::NearPacket;
use crate::place::Place;
use crate::qp::attr::QpType;
use crate::time::Instant;
use vrdma_wire::num::Pkey;
use vrdma_wire::roce::Body;

impl<R: Region> Engine<R> {
    /// Takes a packet of another engine of this process. What a frame may do it may, and no more; but who made it is known.
    pub fn handle_near(&mut self, now: Instant, near: &NearPacket<'_, R>, sink: &mut impl Sink) {
        self.port.counters.frames_in += 1;
        let packet = near.packet;
        let Some(Addressee::Device(index)) = self.addressee(packet) else { return };
        let place = Place { device: index, qpn: packet.bth.dest };
        let device = self.devices.known_device(index);
        if packet.bth.pkey != Pkey::DEFAULT {
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
        let (body, srqn) = match (service, &packet.body) {
            (QpType::Rc, Body::Rc(body)) => (body, None),
            (QpType::XrcSend, Body::Xrc(body)) if body.srqn().is_none() => (body.rc(), None),
            (QpType::XrcRecv, Body::Xrc(body)) if body.srqn().is_some() => (body.rc(), body.srqn()),
            _ => {
                device.counters.drop_service += 1;
                return;
            }
        };
        if held > 0 {
            // What came before, as a frame, waits for a receive: this is sent again after a timeout.
            return;
        }
        let data = (Some(near.part), near.payload);
        if self.known(place, sink).receive_rc(now, packet, data, (body, srqn), false) == Fate::Look {
            self.look_near(place);
        }
    }
}
