//! The responder receives requests, and executes or refuses them.

use crate::agenda::drains::{Fate, PostedReceives};
use crate::base::memory::Region;
use crate::message::accept::SegmentData;
use crate::message::verdict::{Nak, Refusal, Rejection};
use crate::objects::iwarp::operation::{atomic_of, imm_of};
use crate::objects::iwarp::responder_state::StreamResponse;
use crate::protocol::iwarp::data::Data;
use crate::protocol::iwarp::qp::StreamQp;
use crate::protocol::iwarp::terminate::{refused_read, refused_request, refused_write};
use crate::verbs::completion::Sink;
use crate::verbs::op::{Message, Remote, SendOp};
use crate::verbs::segment::{Segment, Segmentation};
use vrdma_wire::iwarp::cause::Cause;
use vrdma_wire::iwarp::num::{Msn, Stag};
use vrdma_wire::iwarp::rdmap::{IMMEDIATE_LEN, SendPart, Tagged};
use vrdma_wire::iwarp::request::{AtomicRequest, AtomicResponse, ReadRequest};
use vrdma_wire::num::Rkey;

/// What became of a segment.
enum Outcome {
    /// The segment was executed, with the value that an atomic found.
    Done(Option<u64>),
    /// The segment needs a receive, and there is none.
    NoReceive,
    Refused(Refusal),
}

impl<R: Region, S: Sink> StreamQp<'_, R, S> {
    /// Handles a segment of a WRITE.
    pub(super) fn receive_write(&mut self, to: Tagged, payload: Data<'_>, ulpdu: &[u8]) {
        let remote = Remote { addr: to.offset, rkey: Rkey(to.stag.0) };
        let op = SendOp::Write { remote, imm: None };
        let first = self.qp.responder.in_progress != Message::Write;
        let length = payload.len();
        // Each segment of a WRITE names its own memory, and is checked as if it were the whole
        // message.
        let segment = Segment { first, last: to.last, ..self.whole(&op, length) };
        match self.execute(&segment, payload) {
            Outcome::Done(_) => {
                let input = &mut self.conn.input;
                let before = if first { 0 } else { input.written };
                // This cannot overflow, because the responder's checks limit the length of a
                // message.
                input.written = before + length;
            }
            Outcome::NoReceive => unreachable!("it needs none"),
            Outcome::Refused(refusal) => {
                let cause = match refusal.nak {
                    Nak::Access => refused_write(self.mrs, self.qp.holder(), to.stag, to.offset, length),
                    Nak::Invalid if segment.first && self.qp.responder.in_progress != Message::None => {
                        Cause::RdmapOpcode
                    }
                    Nak::Invalid => Cause::RdmapAccess,
                    Nak::Operational => Cause::RdmapStreamCatastrophic,
                };
                self.refuse_segment(refusal, cause, ulpdu);
            }
        }
    }

    /// Handles a segment of a SEND.
    pub(super) fn receive_send(
        &mut self,
        part: SendPart,
        (solicited, invalidate): (bool, Option<Stag>),
        payload: Data<'_>,
        ulpdu: &[u8],
        posted: PostedReceives,
    ) -> Fate {
        let op = match invalidate {
            None => SendOp::Send { imm: None },
            Some(Stag(key)) => SendOp::SendInvalidate { key: Rkey(key) },
        };
        let first = self.qp.responder.in_progress != Message::Send;
        let offset = if first { 0 } else { self.qp.responder.received };
        if part.msn != self.conn.input.send_msn {
            self.terminate_fatally(Cause::UntaggedMsn, ulpdu);
            return Fate::Done;
        }
        if part.offset != offset {
            self.terminate_fatally(Cause::UntaggedOffset, ulpdu);
            return Fate::Done;
        }
        let length = payload.len();
        let segment = Segment {
            first,
            last: part.last,
            solicited,
            offset,
            message: offset.saturating_add(length),
            ..self.whole(&op, length)
        };
        match self.execute(&segment, payload) {
            Outcome::Done(_) if part.last => self.conn.input.send_ended(),
            Outcome::Done(_) => {}
            Outcome::NoReceive => return self.find_no_receive(ulpdu, posted),
            Outcome::Refused(refusal) => {
                let cause = match refusal {
                    Refusal { nak: Nak::Access, .. } => Cause::RdmapProtectedInvalidate,
                    Refusal { nak: Nak::Invalid, receive: Some(_) } => Cause::UntaggedTooLong,
                    Refusal { nak: Nak::Invalid, receive: None } => Cause::RdmapOpcode,
                    Refusal { nak: Nak::Operational, .. } => Cause::RdmapStreamCatastrophic,
                };
                self.refuse_segment(refusal, cause, ulpdu);
            }
        }
        Fate::Done
    }

    /// Handles immediate data, which follow their WRITE.
    pub(super) fn receive_immediate(
        &mut self,
        msn: Msn,
        (solicited, data): (bool, [u8; IMMEDIATE_LEN]),
        ulpdu: &[u8],
        posted: PostedReceives,
    ) -> Fate {
        let input = &self.conn.input;
        if msn != input.send_msn {
            self.terminate_fatally(Cause::UntaggedMsn, ulpdu);
            return Fate::Done;
        }
        // This is the end of a WRITE whose payload has all arrived.
        let written = input.written;
        let op = SendOp::Write { remote: Remote::default(), imm: Some(imm_of(data)) };
        let segment = Segment { solicited, offset: written, message: written, ..self.whole(&op, 0) };
        match self.execute(&segment, Data::Bytes(&[])) {
            Outcome::Done(_) => {
                let input = &mut self.conn.input;
                input.send_ended();
                input.written = 0;
            }
            Outcome::NoReceive => return self.find_no_receive(ulpdu, posted),
            Outcome::Refused(refusal) => {
                let cause = match self.qp.responder.in_progress {
                    Message::None => Cause::RdmapAccess,
                    Message::Send | Message::Write => Cause::RdmapOpcode,
                };
                self.refuse_segment(refusal, cause, ulpdu);
            }
        }
        Fate::Done
    }

    /// Handles a READ. `is_ready`: it is the message by which the peer allows this end to send.
    pub(super) fn receive_read_request(
        &mut self,
        msn: Msn,
        request: ReadRequest,
        is_ready: bool,
        ulpdu: &[u8],
    ) {
        let response = StreamResponse::Read { request, msn, pd: self.qp.pd };
        if !self.is_next_request(msn, is_ready, ulpdu) {
            return;
        }
        if is_ready {
            return self.respond(response);
        }
        let remote = Remote { addr: request.source_offset, rkey: Rkey(request.source.0) };
        let op = SendOp::Read { remote };
        let segment = self.whole(&op, request.length);
        match self.execute(&segment, Data::Bytes(&[])) {
            Outcome::Done(_) => self.respond(response),
            Outcome::NoReceive => unreachable!("it needs none"),
            Outcome::Refused(refusal) => {
                let cause = match refusal.nak {
                    Nak::Access => refused_read(self.mrs, self.qp.holder(), &request),
                    Nak::Invalid | Nak::Operational => self.why_invalid(),
                };
                self.refuse_segment(refusal, cause, ulpdu);
            }
        }
    }

    /// Handles an atomic.
    pub(super) fn receive_atomic_request(&mut self, msn: Msn, request: &AtomicRequest, ulpdu: &[u8]) {
        let Some(op) = atomic_of(request) else {
            return self.terminate_fatally(Cause::RdmapOpcode, ulpdu);
        };
        if !self.is_next_request(msn, false, ulpdu) {
            return;
        }
        const WORD: u32 = 8;
        let segment = self.whole(&op, WORD);
        match self.execute(&segment, Data::Bytes(&[])) {
            Outcome::Done(found) => {
                let original = found.expect("an atomic finds something");
                self.respond(StreamResponse::Atomic(AtomicResponse { id: request.id, original }));
            }
            Outcome::NoReceive => unreachable!("it needs none"),
            Outcome::Refused(refusal) => {
                let cause = match refusal.nak {
                    Nak::Access => {
                        let there = (request.stag, request.offset);
                        refused_request(self.mrs, self.qp.holder(), there, WORD)
                    }
                    Nak::Invalid => self.why_invalid(),
                    Nak::Operational => Cause::RdmapOperation,
                };
                self.refuse_segment(refusal, cause, ulpdu);
            }
        }
    }

    /// Returns a segment of `op` that is a whole message.
    fn whole<'b>(&self, op: &'b SendOp, length: u32) -> Segment<'b> {
        Segment {
            op,
            row: op.row(),
            solicited: false,
            first: true,
            last: true,
            psn: self.qp.responder.psn,
            packets: 0,
            offset: 0,
            length,
            message: length,
            segmentation: Segmentation::Ddp,
        }
    }

    /// Checks and executes a segment, and updates the QP.
    fn execute(&mut self, segment: &Segment<'_>, payload: Data<'_>) -> Outcome {
        let data = match payload {
            Data::Bytes(bytes) => SegmentData::packet(bytes),
            Data::Placed(_) => SegmentData::Placed,
        };
        match self.accept(segment, data) {
            Ok(found) => Outcome::Done(found),
            Err(&(Rejection::Refused(refusal) | Rejection::Memory(refusal))) => Outcome::Refused(refusal),
            Err(Rejection::NoReceive) => Outcome::NoReceive,
            Err(Rejection::Dropped(_) | Rejection::Source) => {
                unreachable!("the state was checked before, and the data came with the segment")
            }
        }
    }

    /// Handles a message without a receive. It waits until the caller has drained the posts.
    ///
    /// If there is still no receive, the connection ends, because the peer cannot be asked to wait.
    fn find_no_receive(&mut self, ulpdu: &[u8], posted: PostedReceives) -> Fate {
        if posted == PostedReceives::MayComeYet {
            return Fate::NeedsDrain;
        }
        self.counters.no_receive_ends += 1;
        self.terminate_fatally(Cause::UntaggedNoBuffer, ulpdu);
        Fate::Done
    }

    /// Whether a READ or an atomic has the next number, and the peer does not ask for too many at
    /// once.
    ///
    /// If not, this ends the connection.
    fn is_next_request(&mut self, msn: Msn, is_ready: bool, ulpdu: &[u8]) -> bool {
        let tcp = &mut *self.conn;
        let most = self.qp.max_dest_rd_atomic.max(u8::from(is_ready));
        let cause = match () {
            () if msn != tcp.input.request_msn => Cause::UntaggedMsn,
            () if !tcp.responder.has_room(most) => Cause::UntaggedNoBuffer,
            () => {
                tcp.input.request_msn = msn.add(1);
                return true;
            }
        };
        self.terminate_fatally(cause, ulpdu);
        false
    }

    fn respond(&mut self, response: StreamResponse) {
        self.conn.responder.respond(response);
        self.make_answer_due();
    }

    /// Returns why a READ or an atomic is invalid.
    ///
    /// It comes in the middle of a message, or the QP does not allow it.
    fn why_invalid(&self) -> Cause {
        match self.qp.responder.in_progress {
            Message::None => Cause::RdmapAccess,
            Message::Send | Message::Write => Cause::RdmapOpcode,
        }
    }

    #[cold]
    fn refuse_segment(&mut self, refusal: Refusal, cause: Cause, ulpdu: &[u8]) {
        let event = self.refuse(refusal);
        self.terminate(cause, ulpdu, event);
    }
}
