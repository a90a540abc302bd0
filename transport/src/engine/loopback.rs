//! Loopback connections: streams from one QP of this engine to another.

use crate::base::error::Error;
use crate::base::id::DeviceId;
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use crate::base::transport_kind::TransportKind;
use crate::engine::Engine;
use crate::message::outlet::{PacketOutlet, StreamOutlet};
use crate::objects::iwarp::stream::Loopback;
use crate::objects::qp::Direction;
use crate::protocol::iwarp::loopback::Peer;
use crate::verbs::completion::{NoSink, Sink};
use core::mem;
use vrdma_wire::num::Qpn;

impl<R: Region> Engine<R> {
    /// Makes the streams of two QPs a loopback connection.
    ///
    /// What either QP sends in its stream is what the other receives in its own. The payload of
    /// long messages may then be copied from memory to memory. The caller carries only the rest of
    /// such messages ([`send_placed`](crate::StreamOutlet::send_placed)). This holds until either
    /// stream ends.
    ///
    /// Returns `Invalid` if both QPs are of one device, or if one has no stream.
    pub fn connect_loopback(&mut self, one: (DeviceId, Qpn), other: (DeviceId, Qpn)) -> Result<(), Error> {
        if one.0 == other.0 {
            return Err(Error::Invalid);
        }
        self.joins += 1;
        let number = self.joins;
        for ((device, qpn), peer) in [(one, other), (other, one)] {
            let peer = QpRef { device: peer.0.0, qpn: peer.1 };
            // If only one of the two is joined with the other, that has no effect.
            self.with_stream(device, qpn, &mut NoSink)?.conn.join(peer, number);
        }
        Ok(())
    }

    /// Gives a QP on a loopback connection its turn.
    ///
    /// For other QPs, [`StreamQp::transmit`](crate::protocol::iwarp::qp::StreamQp::transmit) does
    /// so.
    pub(super) fn transmit_joined(
        &mut self,
        now: Instant,
        (place, direction, joined): (QpRef, Direction, Loopback),
        budget: usize,
        outlet: &mut (impl PacketOutlet<R> + StreamOutlet<R>),
        sink: &mut impl Sink,
    ) -> (usize, usize) {
        let Loopback { peer, number, .. } = joined;
        let mut scratch = mem::take(&mut self.place_scratch);
        let (devices, mut common) = self.core.parts(sink);
        let Some((own, other)) = devices.two_mut(place.device, peer.device) else {
            // The peer's device does not exist any more.
            return self.core.known(place, sink).stream().transmit_to(None, now, direction, budget, outlet);
        };
        let there =
            other.qps.get_mut(peer.qpn.number()).filter(|entry| entry.qp.transport == TransportKind::Tcp);
        // What comes for a device with rates goes through the stream, which the device may stop.
        let may_place = !other.parts.suspended && !other.parts.limited;
        let there = there.filter(|_| may_place).and_then(|entry| {
            let progress = entry.service.tcp().progress_from(place, number)?;
            Some(Peer { receiver: other.parts.receiver(&entry.qp), progress, scratch: &mut scratch })
        });
        let entry = own.qps.known(place.qpn);
        let mut borrowed = common.lend(place, entry, &mut own.parts).stream();
        let sent = borrowed.transmit_to(there, now, direction, budget, outlet);
        self.place_scratch = scratch;
        sent
    }
}
