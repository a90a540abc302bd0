//! Loopback connections: streams between two QPs of this engine.
//!
//! Long payload is copied from memory to memory when it is sent. The rest of its FPDU takes its
//! turn in the stream, like an FPDU that was placed out of order
//! ([`placement`](super::placement)). Only in its turn does the FPDU count as received, and is
//! checked.
//!
//! But here nothing is placed ahead of earlier data. All FPDUs that were sent with their payload
//! must have been taken first. Memory therefore changes in the same order as without placement.

use crate::base::id::DeviceId;
use crate::base::memory::{Fault, Region};
use crate::base::time::Instant;
use crate::message::outlet::{Fpdu, Outlet, Pieces, PlacedFpdu, StreamEnd, StreamOutlet};
use crate::message::transfer::Span;
use crate::message::verdict::placement;
use crate::objects::iwarp::state::Progress;
use crate::objects::outstanding::Scratch;
use crate::objects::qp::Direction;
use crate::objects::receiver::Receiver;
use crate::protocol::iwarp::placement::{place_in_receive, place_of_response};
use crate::protocol::iwarp::qp::StreamQp;
use crate::verbs::attr::Receives;
use crate::verbs::completion::Sink;
use crate::verbs::op::Remote;
use vrdma_wire::iwarp::rdmap::{Segment, SendPart, Tagged};
use vrdma_wire::num::{Qpn, Rkey};

/// Least payload that is placed. Shorter payload is copied twice, because a placed FPDU has an
/// entry of its own in the stream.
const LEAST: usize = 2048;

/// Most SENDs that may come before a SEND that is placed. Its receive is searched behind theirs.
const SENDS: u32 = 16;

/// The QP at the other end of a loopback connection.
pub(crate) struct Peer<'a, R> {
    pub(crate) receiver: Receiver<'a, R>,
    pub(crate) progress: Progress,
    pub(crate) scratch: &'a mut Scratch,
}

impl<R: Region> Peer<'_, R> {
    fn place_of_send(&mut self, part: SendPart, length: u32) -> Option<Span<'_, R>> {
        let Receiver { requests, qp, .. } = self.receiver;
        let before = part.msn.0.wrapping_sub(self.progress.send_msn.0);
        // A receive of a shared queue belongs to the message that arrives first, so it is unknown
        // here.
        if before > SENDS || qp.receives() != Receives::Own || !qp.is_receiving() {
            return None;
        }
        let first = qp.responder.queue.head()?;
        let at = (0..before).try_fold(first, |at, _| requests.receive_after(at))?;
        place_in_receive(&self.receiver, at, part, length, self.scratch)
    }

    fn place_of_write(&self, to: Tagged, length: u64) -> Option<Span<'_, R>> {
        let remote = Remote { addr: to.offset, rkey: Rkey(to.stag.0) };
        let (region, offset) = placement(&self.receiver, remote, length)?;
        Some(Span::Flat(region, offset))
    }
}

/// The outlet of a QP on a loopback connection, which places payload at the peer.
struct Placing<'a, R, O> {
    outlet: &'a mut O,
    /// The peer, if anything may be placed there now.
    peer: Option<Peer<'a, R>>,
    /// Number of FPDUs that were sent. `whole` counts those up to the last one with its payload.
    sent: u64,
    whole: u64,
    /// Whether the last FPDU was placed, and its message goes on.
    goes_on: bool,
}

impl<R: Region, S: Sink> StreamQp<'_, R, S> {
    /// Sends to a QP of this engine, like [`transmit`](StreamQp::transmit). `peer` is set if it may
    /// be reached now.
    pub(crate) fn transmit_to(
        &mut self,
        peer: Option<Peer<'_, R>>,
        now: Instant,
        direction: Direction,
        budget: usize,
        outlet: &mut impl StreamOutlet<R>,
    ) -> (usize, usize) {
        let stream = &self.conn.stream;
        let sent = stream.fpdus;
        let (whole, goes_on) = stream.joined.map_or((sent, false), |joined| (joined.whole, joined.goes_on));
        let mut placing = Placing { outlet, peer, sent, whole, goes_on };
        let sent = self.transmit(now, direction, budget, &mut placing);
        let Placing { whole, goes_on, .. } = placing;
        if let Some(joined) = &mut self.conn.stream.joined {
            (joined.whole, joined.goes_on) = (whole, goes_on);
        }
        sent
    }
}

impl<R: Region, O: StreamOutlet<R>> Placing<'_, R, O> {
    /// Places the payload of the next FPDU of the stream.
    ///
    /// Returns `None` if the payload may not be placed, or is too short.
    fn place(&mut self, at: (DeviceId, Qpn), fpdu: &Fpdu, payload: &Pieces<'_, R>) -> Option<PlacedFpdu> {
        // The rest of a message is placed if the part before it was.
        let is_rest = self.goes_on && !payload.is_empty();
        if payload.len() < LEAST && !is_rest {
            return None;
        }
        let peer = self.peer.as_mut().filter(|peer| peer.progress.taken >= self.whole)?;
        let (segment, length) = (fpdu.segment?, payload.len() as u32);
        if !self.outlet.takes_placed(at.0, at.1) {
            return None;
        }
        let there = match segment {
            Segment::Write(to) => peer.place_of_write(to, length.into()),
            // Whether a key may be invalidated is checked in the SEND's turn. Nothing of such a
            // SEND may be placed before that.
            Segment::Send { part, invalidate: None, .. } => peer.place_of_send(part, length),
            Segment::ReadResponse(to) => {
                let reads = peer.progress.reads;
                place_of_response(&peer.receiver, reads, to, length.into(), peer.scratch)
            }
            _ => None,
        };
        // If this fails, sending the bytes shows which side is at fault.
        if !payload.move_to(there?) {
            return None;
        }
        let (payload, length) = (payload.len() as u32, fpdu.len(payload.len()) as u32);
        Some(PlacedFpdu { segment, payload, length })
    }
}

impl<R, O: Outlet> Outlet for Placing<'_, R, O> {
    fn has_room(&mut self) -> bool {
        self.outlet.has_room()
    }
}

impl<R: Region, O: StreamOutlet<R>> StreamOutlet<R> for Placing<'_, R, O> {
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
        let placed = self.place((device, qpn), fpdu, payload);
        self.goes_on = placed.as_ref().is_some_and(|placed| !placed.is_last());
        if let Some(placed) = placed {
            self.outlet.send_placed(device, qpn, placed);
            self.sent += 1;
            return Ok(());
        }
        self.outlet.send_fpdu(device, qpn, fpdu, payload)?;
        self.sent += 1;
        self.whole = self.sent;
        Ok(())
    }

    fn end_stream(&mut self, device: DeviceId, qpn: Qpn, end: StreamEnd) {
        self.outlet.end_stream(device, qpn, end);
    }
}
