//! Streams that lead from one QP of this engine to another.

use crate::base::carrier::Carrier;
use crate::base::error::Error;
use crate::base::id::DeviceId;
use crate::base::memory::Region;
use crate::base::place::Place;
use crate::base::time::Instant;
use crate::carrier::iwarp::joined::Peer;
use crate::engine::Engine;
use crate::message::outlet::{PacketOutlet, StreamOutlet};
use crate::objects::iwarp::stream::Joined;
use crate::objects::qp::Direction;
use crate::verbs::completion::{NoSink, Sink};
use core::mem;
use vrdma_wire::num::Qpn;

impl<R: Region> Engine<R> {
    /// Says that what one of these QPs sends in its stream is what the other gets in its own, so
    /// that the payload of long WRITEs may go from memory to memory: of these the caller carries
    /// what is left ([`send_placed`](crate::StreamOutlet::send_placed)). It holds until either
    /// stream ends. `Invalid` if both are of one device, or not both have a stream.
    pub fn join_streams(&mut self, one: (DeviceId, Qpn), other: (DeviceId, Qpn)) -> Result<(), Error> {
        if one.0 == other.0 {
            return Err(Error::Invalid);
        }
        self.joins += 1;
        let number = self.joins;
        for ((device, qpn), peer) in [(one, other), (other, one)] {
            let peer = Place { device: peer.0.0, qpn: peer.1 };
            // One that is joined with what is not joined with it is as if it were not.
            self.with_stream(device, qpn, &mut NoSink)?.conn.join(peer, number);
        }
        Ok(())
    }

    /// Gives the QP of a stream that is joined its turn, as
    /// [`StreamQp::transmit`](crate::carrier::iwarp::qp::StreamQp::transmit) does to others.
    pub(super) fn transmit_joined(
        &mut self,
        now: Instant,
        (place, direction, joined): (Place, Direction, Joined),
        budget: usize,
        outlet: &mut (impl PacketOutlet<R> + StreamOutlet<R>),
        sink: &mut impl Sink,
    ) -> (usize, usize) {
        let Joined { peer, number, .. } = joined;
        let mut scratch = mem::take(&mut self.place_scratch);
        let (devices, mut common) = self.core.parts(sink);
        let Some((own, other)) = devices.two_mut(place.device, peer.device) else {
            // Its device is gone.
            return self.core.known(place, sink).stream().transmit_to(None, now, direction, budget, outlet);
        };
        let there = other.qps.get_mut(peer.qpn.number()).filter(|entry| entry.qp.carrier == Carrier::Tcp);
        let there = there.filter(|_| !other.parts.suspended).and_then(|entry| {
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
