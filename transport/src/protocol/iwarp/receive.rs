//! Bytes from the peer: FPDUs are taken out of them, and each segment goes to the requester or the
//! responder.

use crate::agenda::drains::{Fate, PostedReceives};
use crate::base::memory::Region;
use crate::objects::iwarp::input::Waiting;
use crate::objects::iwarp::stream::ReadyToReceive;
use crate::protocol::iwarp::data::Data;
use crate::protocol::iwarp::qp::StreamQp;
use crate::verbs::attr::QpState;
use crate::verbs::completion::Sink;
use core::mem;
use vrdma_wire::iwarp::Segment;
use vrdma_wire::iwarp::cause::Cause;
use vrdma_wire::iwarp::fault::Fault;
use vrdma_wire::iwarp::num::Msn;

impl<R: Region, S: Sink> StreamQp<'_, R, S> {
    /// Takes the next bytes of the stream. Returns how many were taken.
    ///
    /// `buffer` has room for the longest FPDU, and may hold anything. [`Fate::NeedsDrain`] means
    /// that a message waits, with everything behind it, until the caller has drained the posts.
    pub(crate) fn receive_stream(&mut self, bytes: &[u8], buffer: &mut [u8]) -> (usize, Fate) {
        let input = &mut self.conn.input;
        if self.suspended || input.waiting.is_some() || self.waits_for_rate() {
            return (0, Fate::Done);
        }
        let input = &mut self.conn.input;
        let held = mem::take(&mut input.held);
        buffer[..held.len()].copy_from_slice(&held);
        let mut rest = bytes;
        let mut fate = Fate::Done;
        while fate == Fate::Done && !self.waits_for_rate() {
            if self.qp.state == QpState::Err {
                // Data after the end of the connection are dropped.
                return (bytes.len(), Fate::Done);
            }
            match self.conn.input.deframer.next(&mut rest, buffer) {
                Ok(Some(ulpdu)) => {
                    self.conn.input.fpdus += 1;
                    self.counters.fpdus_in += 1;
                    fate = self.receive_ulpdu(ulpdu, PostedReceives::MayComeYet);
                    if fate == Fate::NeedsDrain {
                        let waiting = Waiting { number: 0, ulpdu: ulpdu.into() };
                        self.conn.input.waiting = Some(waiting);
                    }
                }
                Ok(None) => break,
                Err(fault) => self.fail_stream(fault, &[]),
            }
        }
        let input = &mut self.conn.input;
        input.held = buffer[..input.deframer.held()].into();
        (bytes.len() - rest.len(), fate)
    }

    /// Handles the message that waited, because the caller has drained the posts.
    ///
    /// If it has no receive now, there is none.
    pub(crate) fn receive_waiting(&mut self, number: u32) {
        let input = &mut self.conn.input;
        let Some(waiting) = input.waiting.take_if(|waiting| waiting.number == number) else { return };
        if self.qp.state != QpState::Err {
            let fate = self.receive_ulpdu(&waiting.ulpdu, PostedReceives::AllTaken);
            debug_assert!(fate == Fate::Done, "who has looked does not ask");
        }
    }

    /// Sets the number of the question that the waiting message has asked.
    pub(crate) fn set_waiting_number(&mut self, number: u32) {
        let waiting = self.conn.input.waiting.as_mut();
        waiting.expect("who asks waits").number = number;
    }

    /// Handles a whole ULPDU.
    fn receive_ulpdu(&mut self, ulpdu: &[u8], posted: PostedReceives) -> Fate {
        // The peer has sent something, so this end may send too.
        self.begin_to_send();
        let input = &mut self.conn.input;
        let ready = if input.is_new { input.ready } else { None };
        if ulpdu.is_empty() && ready == Some(ReadyToReceive::Fpdu) {
            input.is_new = false;
            return Fate::Done;
        }
        let parsed = match Segment::parse(ulpdu) {
            Ok(parsed) => parsed,
            Err(fault) => {
                self.fail_stream(fault, ulpdu);
                return Fate::Done;
            }
        };
        if posted == PostedReceives::MayComeYet {
            self.count_for_rate(&parsed.segment, parsed.payload.len());
        }
        let fate = self.receive_segment(&parsed.segment, parsed.payload, (ulpdu, ready), posted);
        if fate == Fate::Done {
            self.conn.input.is_new = false;
        }
        fate
    }

    fn receive_segment(
        &mut self,
        segment: &Segment,
        payload: &[u8],
        (ulpdu, ready): (&[u8], Option<ReadyToReceive>),
        posted: PostedReceives,
    ) -> Fate {
        match *segment {
            Segment::Write(to) => {
                let is_ready = ready == Some(ReadyToReceive::Write) && payload.is_empty() && to.last;
                if !is_ready {
                    self.receive_write(to, Data::Bytes(payload), ulpdu);
                }
            }
            Segment::Send { part, solicited, invalidate } => {
                let data = Data::Bytes(payload);
                return self.receive_send(part, (solicited, invalidate), data, ulpdu, posted);
            }
            Segment::Immediate { msn, solicited, data } => {
                return self.receive_immediate(msn, (solicited, data), ulpdu, posted);
            }
            Segment::ReadRequest(msn, request) => {
                let is_ready = ready == Some(ReadyToReceive::Read) && request.length == 0;
                self.receive_read_request(msn, request, is_ready, ulpdu);
            }
            Segment::AtomicRequest(msn, request) => self.receive_atomic_request(msn, &request, ulpdu),
            Segment::ReadResponse(to) => self.receive_read_response(to, Data::Bytes(payload), ulpdu),
            Segment::AtomicResponse(msn, response) => self.receive_atomic_response(msn, response, ulpdu),
            Segment::Terminate(Msn::FIRST, terminate) => self.receive_terminate(&terminate),
            Segment::Terminate(..) => self.terminate_fatally(Cause::UntaggedMsn, ulpdu),
        }
        Fate::Done
    }

    /// Ends the connection, because the peer's bytes are no FPDUs, or no DDP segment.
    #[cold]
    pub(super) fn fail_stream(&mut self, fault: Fault, ulpdu: &[u8]) {
        self.counters.stream_faults += 1;
        self.terminate_fatally(fault.cause(), ulpdu);
    }
}
