//! Reliable connections in streams of TCP: iWARP (RFC 5040, 5041, 5044). The TCP below is the
//! caller's, of the host or [`vrdma-tcp`]'s: it hands the stream's bytes in, in order, and takes
//! FPDUs. Nothing is lost here: no PSNs, timers or retransmission. Each end is a requester and a
//! responder as on RoCE; `objects/iwarp/stream.rs` is what both share, [`set_up`] what happens
//! before (MPA), [`receive`] what comes in, [`terminate`] how it ends.
//!
//! A request is complete when its last FPDU was taken, unless it is answered (READs and atomics);
//! completions stay in order. There is no RNR: a message without a receive waits until the caller
//! has looked, as do all behind it, and then ends the connection.
//!
//! [`vrdma-tcp`]: https://www.rfc-editor.org/rfc/rfc9293

pub(crate) mod data;
pub(crate) mod joined;
pub(crate) mod placed;
pub(crate) mod qp;
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
use crate::carrier::allowance::Allowance;
use crate::carrier::iwarp::qp::StreamQp;
use crate::message::outlet::{StreamEnd, StreamOutlet};
use crate::objects::qp::Direction;
use crate::verbs::attr::QpState;
use crate::verbs::completion::Sink;

impl<R: Region, S: Sink> StreamQp<'_, R, S> {
    /// Sends at most `budget` FPDUs, as long as `outlet` has room, among which count requests that
    /// need none; how many of each.
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

    /// There is room in the stream again.
    pub(crate) fn stream_has_room(&mut self) {
        self.conn.stream.unblock();
        self.try_stream_again();
    }

    /// The stream ends as soon as what has begun has ended: no request begins any more.
    pub(crate) fn finish_stream(&mut self) {
        self.conn.stream.finishes = true;
        self.make_answer_due();
    }

    /// Ends a stream that was to, once nothing is under way.
    fn finish_if_done(&mut self, outlet: &mut impl StreamOutlet<R>) {
        let place = self.place;
        let tcp = &mut *self.conn;
        if tcp.stream.finishes && tcp.is_idle() && !tcp.stream.has_ended() {
            tcp.stream.end();
            outlet.end_stream(place.id(), place.qpn, StreamEnd::Close);
            self.enter_error();
        }
    }

    /// The peer has ended the stream, or it broke.
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
