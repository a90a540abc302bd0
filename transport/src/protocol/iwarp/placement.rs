//! Out-of-order placement: FPDUs that arrive beyond a gap of the stream (RFC 5041, 5).
//!
//! Their payload is placed at once, if that is allowed. They are delivered in their turn.
//!
//! A tagged segment says where its payload goes. A SEND has a message number, and each message
//! before it takes one receive. Its receive is therefore the one behind as many others, and stays
//! so. If there is no such receive, the SEND counts as lost: nothing of it is kept or acknowledged,
//! and the peer retransmits it. From a shared queue the SEND claims all missing receives up to its
//! own. It never claims many, so that a peer takes no more from other QPs.
//!
//! Data in the gap may invalidate a key that is valid at present. The segment is therefore checked
//! once more in its turn. If it fails, the connection ends as if the segment had arrived in order.
//! Until then the peer could have written there anyway.

use crate::agenda::drains::{Fate, PostedReceives};
use crate::base::memory::Region;
use crate::collections::pool::{At, List};
use crate::message::ctx::QpCtx;
use crate::message::outlet::PlacedFpdu;
use crate::message::transfer::{Elements, Span, may_be_used, scatter};
use crate::message::verdict::placement;
use crate::objects::iwarp::search;
use crate::objects::iwarp::state::RcTcp;
use crate::objects::outstanding::{Requests, Scratch};
use crate::objects::receiver::Receiver;
use crate::protocol::iwarp::data::Data;
use crate::protocol::iwarp::qp::StreamQp;
use crate::verbs::attr::{QpState, Receives};
use crate::verbs::completion::Sink;
use crate::verbs::limits::CLAIMED;
use crate::verbs::op::{Answer, OF_RECEIVES, Remote};
use crate::verbs::request::{MAX_MESSAGE, Payload};
use core::iter::successors;
use vrdma_wire::iwarp::num::Msn;
use vrdma_wire::iwarp::rdmap::{MAX_HEADERS, ParsedSegment, Segment, SendPart, Tagged};
use vrdma_wire::iwarp::{StreamOffset, decode};
use vrdma_wire::num::Rkey;

/// Most requests that are searched for the READ that a response belongs to.
const REQUESTS: usize = 256;

/// What becomes of an FPDU that arrived beyond a gap
/// ([`Engine::place_fpdu`](crate::Engine::place_fpdu)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EarlyFpdu {
    /// The payload was placed.
    Placed(PlacedFpdu),
    /// Nothing counts as placed. The caller has to keep the bytes until their turn.
    Keep,
    /// The message has no receive. The caller has to treat the FPDU as lost, so that the peer
    /// retransmits it.
    NoReceive,
}

impl<R: Region, S: Sink> StreamQp<'_, R, S> {
    /// Places the payload of an FPDU that arrived beyond a gap, if it may be placed.
    pub(crate) fn place_fpdu(&mut self, fpdu: &[u8]) -> EarlyFpdu {
        let Some(ParsedSegment { segment, payload }) = self.parse_early(fpdu) else { return EarlyFpdu::Keep };
        if self.lacks_receive(&segment) {
            self.counters.fpdus_too_early += 1;
            return EarlyFpdu::NoReceive;
        }
        if self.place(&segment, payload).is_none() {
            return EarlyFpdu::Keep;
        }
        self.counters.fpdus_placed += 1;
        EarlyFpdu::Placed(PlacedFpdu { segment, payload: payload.len() as u32, length: fpdu.len() as u32 })
    }

    /// Returns the segment of one whole FPDU with a correct CRC, if the QP can place any.
    fn parse_early<'b>(&mut self, fpdu: &'b [u8]) -> Option<ParsedSegment<'b>> {
        let framing = self.conn.input.deframer.framing();
        if self.suspended
            || !self.qp.is_receiving()
            || framing.markers
            || decode::fpdu_len(framing, StreamOffset::START, fpdu) != Some(fpdu.len())
        {
            return None;
        }
        let ulpdu = decode::ulpdu(framing, StreamOffset::START, fpdu, &mut []).ok()?;
        Segment::parse(ulpdu).ok()
    }

    /// Places a payload. Returns `None` if it may not be placed. Some bytes may have been written
    /// then.
    fn place(&mut self, segment: &Segment, payload: &[u8]) -> Option<()> {
        match *segment {
            _ if payload.is_empty() => None,
            Segment::Write(to) => self.place_write(to, payload),
            Segment::ReadResponse(to) => self.place_response(to, payload),
            Segment::Send { part, .. } => self.place_send(part, payload),
            _ => None,
        }
    }

    /// Returns how many messages that take a receive come before this one.
    fn messages_before(&mut self, msn: Msn) -> u32 {
        msn.0.wrapping_sub(self.conn.input.send_msn.0)
    }

    /// Whether a segment belongs to a message whose receive is not among those of the QP.
    fn lacks_receive(&mut self, segment: &Segment) -> bool {
        let msn = match *segment {
            Segment::Send { part, .. } => part.msn,
            Segment::Immediate { msn, .. } => msn,
            _ => return false,
        };
        let shared = self.srqs.of(self.qp).map_or(0, |srq| srq.receives.len());
        let available = self.qp.responder.queue.len().saturating_add(shared);
        self.messages_before(msn) >= available
    }

    fn place_send(&mut self, part: SendPart, payload: &[u8]) -> Option<()> {
        let before = self.messages_before(part.msn);
        let most = if self.qp.receives() == Receives::Own { search::MOST } else { CLAIMED };
        if before >= most {
            return None;
        }
        while self.qp.responder.queue.len() <= before {
            assert!(self.claim_another(), "so many are there");
        }
        let QpCtx { qp, mrs, requests, srqs, recv_scratch, conn, .. } = self;
        let length = payload.len() as u32;
        let input = &mut conn.input;
        let (ends, queue) = ((input.send_msn, part.msn), &qp.responder.queue);
        let at = input.search.find(ends, length, queue, |at| requests.receive_after(at))?;
        let receiver = Receiver { mrs, requests, srqs, qp };
        scatter(payload, place_in_receive(&receiver, at, part, length, recv_scratch)?).ok()
    }

    fn place_write(&mut self, to: Tagged, payload: &[u8]) -> Option<()> {
        let QpCtx { qp, mrs, requests, srqs, .. } = self;
        let receiver = Receiver { mrs, requests, srqs, qp };
        let remote = Remote { addr: to.offset, rkey: Rkey(to.stag.0) };
        let (region, offset) = placement(&receiver, remote, payload.len() as u64)?;
        region.write(offset, payload).ok()
    }

    /// Places data of a READ response in the READ's elements, as long as the READ has not ended.
    fn place_response(&mut self, to: Tagged, payload: &[u8]) -> Option<()> {
        let QpCtx { qp, mrs, requests, srqs, send_scratch, conn, .. } = self;
        let RcTcp { requester: state, .. } = conn;
        let receiver = Receiver { mrs, requests, srqs, qp };
        let reads = (state.token(), state.reads);
        let there = place_of_response(&receiver, reads, to, payload.len() as u64, send_scratch)?;
        scatter(payload, there).ok()
    }

    /// Delivers an FPDU that was placed, in its turn.
    ///
    /// Returns false if the device is suspended, if a message before it waits, or if the device has
    /// received as much as its rate allows.
    pub(crate) fn receive_placed(&mut self, placed: &PlacedFpdu) -> bool {
        let input = &mut self.conn.input;
        if self.suspended || input.waiting.is_some() || self.waits_for_rate() {
            return false;
        }
        if self.qp.state == QpState::Err {
            // Data after the end of the connection are dropped.
            return true;
        }
        self.count_for_rate(&placed.segment, placed.payload as usize);
        let input = &mut self.conn.input;
        if let Err(fault) = input.deframer.skip(placed.len()) {
            self.fail_stream(fault, &[]);
            return true;
        }
        self.conn.input.fpdus += 1;
        self.counters.fpdus_in += 1;
        self.begin_to_send();
        let mut headers = [0; MAX_HEADERS];
        let length = placed.segment.emit(&mut headers);
        let (data, ulpdu) = (Data::Placed(placed.payload), &headers[..length]);
        match placed.segment {
            Segment::Write(to) => self.receive_write(to, data, ulpdu),
            Segment::ReadResponse(to) => self.receive_read_response(to, data, ulpdu),
            Segment::Send { part, solicited, invalidate } => {
                // Its receive existed when it was placed, and still exists. The caller need not
                // drain posts.
                let fate =
                    self.receive_send(part, (solicited, invalidate), data, ulpdu, PostedReceives::AllTaken);
                debug_assert!(fate == Fate::Done, "who has looked does not ask");
            }
            _ => unreachable!("others are not placed"),
        }
        self.conn.input.is_new = false;
        true
    }
}

/// Returns where a part of a READ response goes, as long as the READ has not ended.
///
/// `token` is that of the first outstanding READ or atomic, and `reads` is how many are
/// outstanding.
pub(super) fn place_of_response<'a, R: Region>(
    &Receiver { mrs, requests, qp, .. }: &Receiver<'a, R>,
    (token, reads): (u32, u32),
    to: Tagged,
    length: u64,
    scratch: &'a mut Scratch,
) -> Option<Span<'a, R>> {
    let before = to.stag.0.wrapping_sub(token);
    if before >= reads || !qp.is_receiving() {
        return None;
    }
    let at = nth_with_response(requests, &qp.requester.queue, before as usize)?;
    let (send, Payload::Sges(sges)) = requests.send_at(at, scratch) else { return None };
    let end = to.offset.checked_add(length)?;
    if send.op.row().answer != Answer::Data || end > u64::from(send.length) {
        return None;
    }
    let elements = Elements { mrs, pd: qp.pd, rights: send.op.row().local };
    Some(Span::list(elements, sges, to.offset as u32))
}

/// Returns where a part of a SEND goes whose receive is at `at`.
pub(super) fn place_in_receive<'a, R: Region>(
    &Receiver { mrs, requests, qp, .. }: &Receiver<'a, R>,
    at: At,
    part: SendPart,
    length: u32,
    scratch: &'a mut Scratch,
) -> Option<Span<'a, R>> {
    let receive = requests.receive_at(at);
    if part.offset.checked_add(length)? > receive.length.min(MAX_MESSAGE) {
        return None;
    }
    let elements = Elements { mrs, pd: qp.pd_of_receives(), rights: OF_RECEIVES };
    let there = Span::of(elements, requests.elements(receive, scratch), part.offset, length);
    may_be_used(there.clone(), length).then_some(there)
}

/// Returns the request that is behind `before` others, counting only those with a response.
fn nth_with_response(requests: &Requests, queue: &List, before: usize) -> Option<At> {
    let all = successors(queue.head(), |at| requests.send_after(*at)).take(REQUESTS);
    all.filter(|at| requests.is_answered(*at)).nth(before)
}
