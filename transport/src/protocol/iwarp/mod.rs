//! Reliable connections in TCP streams: iWARP (RFC 5040, 5041, 5044).
//!
//! The TCP below belongs to the caller. It is the host's TCP or [`vrdma-tcp`]. The caller passes
//! the stream's bytes, in order, and takes FPDUs. Nothing is lost here, so there are no PSNs and no
//! retransmission with its timers.
//!
//! Each end is a requester and a responder, as on RoCE. `objects/iwarp/stream.rs` is what both
//! share. [`set_up`] is what happens before (MPA), [`receive`] takes received bytes, and
//! [`terminate`] ends a connection that fails.
//!
//! A request is complete when its last FPDU was taken, unless it is answered (READs and atomics).
//! Completions stay in order. There is no RNR. A message without a receive waits until the caller
//! has drained the posts, as do all messages behind it. If there is still no receive, the
//! connection ends.
//!
//! [`vrdma-tcp`]: https://www.rfc-editor.org/rfc/rfc9293

pub(crate) mod data;
pub(crate) mod loopback;
pub(crate) mod placement;
pub(crate) mod qp;
mod rate;
mod receive;
mod requester_rx;
mod requester_tx;
mod responder_rx;
mod responder_tx;
pub(crate) mod set_up;
mod silence;
mod terminate;

use crate::base::memory::Region;
use crate::base::time::Instant;
use crate::message::outlet::{StreamEnd, StreamOutlet};
use crate::objects::qp::Direction;
use crate::protocol::allowance::Allowance;
use crate::protocol::iwarp::qp::StreamQp;
use crate::verbs::attr::QpState;
use crate::verbs::completion::Sink;

impl<R: Region, S: Sink> StreamQp<'_, R, S> {
    /// Sends FPDUs while `outlet` has room, and executes requests that need none.
    ///
    /// Together they count as at most `budget` FPDUs. Returns the number of FPDUs, and what the
    /// other requests counted as.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        direction: Direction,
        budget: usize,
        outlet: &mut impl StreamOutlet<R>,
    ) -> (usize, usize) {
        let mut allowance = Allowance::new(now, budget);
        self.mind_silence(now);
        let more = match direction {
            _ if self.conn.stream.has_ended() => false,
            Direction::Answers => self.send_answers(&mut allowance, outlet),
            Direction::Requests => self.send_requests(&mut allowance, outlet),
        };
        match direction {
            Direction::Answers if more => self.make_answer_due(),
            Direction::Requests if more => self.make_turn_due(),
            Direction::Answers | Direction::Requests => {}
        }
        self.finish_if_done(outlet);
        allowance.spent()
    }

    /// Goes on sending, because there is room in the stream again.
    pub(crate) fn stream_has_room(&mut self) {
        self.conn.stream.unblock();
        self.try_stream_again();
    }

    /// Ends the stream as soon as nothing is under way. No request begins any more.
    pub(crate) fn finish_stream(&mut self) {
        self.conn.stream.finishes = true;
        self.make_answer_due();
    }

    /// Ends the stream if that was requested and nothing is under way.
    fn finish_if_done(&mut self, outlet: &mut impl StreamOutlet<R>) {
        let place = self.place;
        let tcp = &mut *self.conn;
        if tcp.stream.finishes && tcp.is_idle() && !tcp.stream.has_ended() {
            tcp.stream.end();
            outlet.end_stream(place.id(), place.qpn, StreamEnd::Close);
            self.enter_error();
        }
    }

    /// Handles the end of the stream: the peer has ended it, or it broke.
    pub(crate) fn lose_stream(&mut self, orderly: bool) {
        let tcp = &mut *self.conn;
        let was_idle = tcp.is_idle() && tcp.input.is_between_messages();
        tcp.stream.end();
        if self.qp.state == QpState::Err {
            return;
        }
        match orderly && was_idle {
            true => self.enter_error(),
            false => self.enter_fatal(),
        }
    }
}
