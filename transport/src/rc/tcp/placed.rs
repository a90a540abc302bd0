//! FPDUs that come beyond a hole of the stream: what they carry is placed at once if it may be, and delivered in its turn (RFC 5041, 5).
//!
//! Only of tagged segments with payload: a SEND waits for its turn, and so for its receive. What lies in the hole may have a key invalidated that is right now: that shows in
//! the segment's turn, when it is checked once more, and ends the connection as if it had come in order. Until then the peer might have written there anyway.

use crate::completion::Sink;
use crate::engine::borrowed::BorrowedQp;
use crate::memory::Region;
use crate::message::transfer::{Elements, Span, scatter};
use crate::message::verdict::{Receiver, placement};
use crate::op::{Answer, Remote};
use crate::outstanding::Requests;
use crate::pool::{At, List};
use crate::qp::attr::QpState;
use crate::rc::tcp::state::RcTcp;
use crate::request::Payload;
use core::iter::successors;
use vrdma_wire::iwarp::rdmap::{MAX_HEADERS, Parsed, Segment, Tagged};
use vrdma_wire::iwarp::{Place, decode};
use vrdma_wire::num::Rkey;

/// How many requests are looked at for the READ that a response is to.
const REQUESTS: usize = 256;

/// An FPDU whose payload was placed ([`Engine::place_fpdu`](crate::Engine::place_fpdu)): what is left of it to be delivered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedFpdu {
    segment: Segment,
    /// Bytes that were placed,
    payload: u32,
    /// and those of the FPDU.
    length: u32,
}

impl PlacedFpdu {
    /// Its bytes of the stream.
    #[allow(clippy::len_without_is_empty, reason = "an FPDU is never empty")]
    pub fn len(&self) -> usize {
        self.length as usize
    }
}

/// The payload of a tagged segment.
#[derive(Copy, Clone)]
pub(super) enum Data<'a> {
    /// Its bytes.
    Bytes(&'a [u8]),
    /// So many bytes, which were placed.
    Placed(u32),
}

impl Data<'_> {
    pub(super) fn len(self) -> u32 {
        match self {
            Data::Bytes(bytes) => bytes.len() as u32,
            Data::Placed(length) => length,
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl<R: Region, S: Sink> BorrowedQp<'_, R, S> {
    /// Places the payload of an FPDU that came beyond a hole. `None` if it may not be placed, whatever the reason: then nothing was.
    pub(crate) fn place_fpdu(&mut self, fpdu: &[u8]) -> Option<PlacedFpdu> {
        let framing = self.service.tcp().input.deframer.framing();
        if self.suspended
            || framing.markers
            || decode::fpdu_len(framing, Place::START, fpdu) != Some(fpdu.len())
        {
            return None;
        }
        let ulpdu = decode::ulpdu(framing, Place::START, fpdu, &mut []).ok()?;
        let Parsed { segment, payload } = Segment::parse(ulpdu).ok()?;
        match segment {
            _ if payload.is_empty() => return None,
            Segment::Write(to) => self.place_write(to, payload)?,
            Segment::ReadResponse(to) => self.place_response(to, payload)?,
            _ => return None,
        }
        self.counters.fpdus_placed += 1;
        Some(PlacedFpdu { segment, payload: payload.len() as u32, length: fpdu.len() as u32 })
    }

    fn place_write(&mut self, to: Tagged, payload: &[u8]) -> Option<()> {
        let BorrowedQp { qp, mrs, requests, srqs, .. } = self;
        let receiver = Receiver { mrs, requests, srqs, qp };
        let remote = Remote { addr: to.offset, rkey: Rkey(to.stag.0) };
        let (region, offset) = placement(&receiver, remote, payload.len() as u64)?;
        region.write(offset, payload).ok()
    }

    /// What a READ returns goes to its elements, as long as it has not ended.
    fn place_response(&mut self, to: Tagged, payload: &[u8]) -> Option<()> {
        let BorrowedQp { qp, mrs, requests, send_scratch, service, .. } = self;
        let RcTcp { requester: state, .. } = service.tcp();
        let before = to.stag.0.wrapping_sub(state.token());
        if before >= state.reads || !qp.is_receiving() {
            return None;
        }
        let at = nth_with_response(requests, &qp.requester.queue, before as usize)?;
        let (send, Payload::Sges(sges)) = requests.send_at(at, send_scratch) else { return None };
        let end = to.offset.checked_add(payload.len() as u64)?;
        if send.op.row().answer != Answer::Data || end > u64::from(send.length) {
            return None;
        }
        let elements = Elements { mrs, pd: qp.pd, rights: send.op.row().local };
        scatter(payload, Span::list(elements, sges, to.offset as u32)).ok()
    }

    /// The turn of an FPDU has come that was placed. False if something before it waits.
    pub(crate) fn receive_placed(&mut self, placed: &PlacedFpdu) -> bool {
        let input = &mut self.service.tcp().input;
        if self.suspended || input.waiting.is_some() {
            return false;
        }
        if self.qp.state == QpState::Err {
            // What comes after the end is nobody's.
            return true;
        }
        if let Err(fault) = input.deframer.skip(placed.len()) {
            self.fail_stream(fault, &[]);
            return true;
        }
        self.counters.fpdus_in += 1;
        self.begin_to_send();
        let mut headers = [0; MAX_HEADERS];
        let length = placed.segment.emit(&mut headers);
        let (data, ulpdu) = (Data::Placed(placed.payload), &headers[..length]);
        match placed.segment {
            Segment::Write(to) => self.receive_write(to, data, ulpdu),
            Segment::ReadResponse(to) => self.receive_read_response(to, data, ulpdu),
            _ => unreachable!("others are not placed"),
        }
        self.service.tcp().input.is_new = false;
        true
    }
}

/// The request behind `before` others of those that have a response.
fn nth_with_response(requests: &Requests, queue: &List, before: usize) -> Option<At> {
    let all = successors(queue.head(), |at| requests.send_after(*at)).take(REQUESTS);
    all.filter(|at| requests.is_answered(*at)).nth(before)
}
