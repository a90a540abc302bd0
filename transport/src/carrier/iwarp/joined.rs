//! Streams between two QPs of this engine: long payload goes from memory to memory where it is
//! sent.
//!
//! Its FPDU takes its turn in the stream without it, as one does that came beyond a hole
//! ([`placed`](super::placed)): only then does it count as come, and has its verdict. But here
//! nothing is ever placed ahead of what comes before it: all that was sent with its payload has to
//! have been taken. So memory changes in the order in which it would otherwise.

use crate::base::id::DeviceId;
use crate::base::memory::{Fault, Region};
use crate::base::time::Instant;
use crate::carrier::iwarp::placed::{place_in_receive, place_of_response};
use crate::carrier::iwarp::qp::StreamQp;
use crate::message::outlet::{Fpdu, Outlet, Pieces, PlacedFpdu, StreamEnd, StreamOutlet};
use crate::message::transfer::Span;
use crate::message::verdict::placement;
use crate::objects::iwarp::state::Progress;
use crate::objects::outstanding::Scratch;
use crate::objects::qp::Direction;
use crate::objects::receiver::Receiver;
use crate::verbs::attr::Receives;
use crate::verbs::completion::Sink;
use crate::verbs::op::Remote;
use vrdma_wire::iwarp::rdmap::{Part, Segment, Tagged};
use vrdma_wire::num::{Qpn, Rkey};

/// Shorter payload is copied twice: what is placed has an entry of its own in the stream.
const LEAST: usize = 2048;

/// SENDs before one whose turn has not come: its receive is looked for behind theirs.
const SENDS: u32 = 16;

/// The QP at the other end.
pub(crate) struct Peer<'a, R> {
    pub(crate) receiver: Receiver<'a, R>,
    pub(crate) progress: Progress,
    pub(crate) scratch: &'a mut Scratch,
}

impl<R: Region> Peer<'_, R> {
    fn place_of_send(&mut self, part: Part, length: u32) -> Option<Span<'_, R>> {
        let Receiver { requests, qp, .. } = self.receiver;
        let before = part.msn.0.wrapping_sub(self.progress.send_msn.0);
        // Those of a shared queue are whose message comes first.
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

/// The outlet of a QP whose peer is in this engine.
struct Placing<'a, R, O> {
    outlet: &'a mut O,
    /// If anything may be placed there now.
    peer: Option<Peer<'a, R>>,
    /// FPDUs that were sent, and which was the last with its payload.
    sent: u64,
    whole: u64,
    /// The last one was placed, and its message goes on.
    goes_on: bool,
}

impl<R: Region, S: Sink> StreamQp<'_, R, S> {
    /// [`transmit`](StreamQp::transmit) to a QP of this engine; `peer`: if it may be reached now.
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
    /// Places the payload of an FPDU that is next in the stream; `None` if it may not be, or is not
    /// to be.
    fn place(&mut self, at: (DeviceId, Qpn), fpdu: &Fpdu, payload: &Pieces<'_, R>) -> Option<PlacedFpdu> {
        // The rest of a message goes as what was before it.
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
            // Whether its key may be invalidated shows in its turn, and nothing is placed before
            // that.
            Segment::Send { part, invalidate: None, .. } => peer.place_of_send(part, length),
            Segment::ReadResponse(to) => {
                let reads = peer.progress.reads;
                place_of_response(&peer.receiver, reads, to, length.into(), peer.scratch)
            }
            _ => None,
        };
        // Whose fault it is if not shows when the bytes are sent.
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
