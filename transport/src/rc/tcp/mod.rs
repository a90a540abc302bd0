//! Reliable connections in streams of TCP: iWARP (RFC 5040, 5041, 5044). The TCP below is the caller's, of the host or [`vrdma-tcp`]'s: it hands the
//! stream's bytes in, in order, and takes FPDUs. Nothing is lost here: no PSNs, timers or retransmission. Each end is a requester and a responder as on RoCE;
//! [`stream`] is what both share, [`set_up`] what happens before (MPA), [`receive`] what comes in, [`terminate`] how it ends.
//!
//! A request is complete when its last FPDU was taken, unless it is answered (READs and atomics); completions stay in order. There is no RNR: a message
//! without a receive waits until the caller has looked, as do all behind it, and then ends the connection.
//!
//! [`vrdma-tcp`]: https://www.rfc-editor.org/rfc/rfc9293

pub(crate) mod attr;
mod framing;
mod input;
pub(crate) mod joined;
mod operation;
pub(crate) mod placed;
mod receive;
mod requester_rx;
mod requester_state;
mod requester_tx;
mod responder_rx;
mod responder_state;
mod responder_tx;
mod search;
pub(crate) mod set_up;
mod silence;
pub(crate) mod state;
pub(crate) mod stream;
mod terminate;

use crate::completion::Sink;
use crate::engine::borrowed::BorrowedQp;
use crate::memory::Region;
use crate::outlet::{Outlet, StreamEnd};
use crate::qp::attr::QpState;
use crate::rc::allowance::Allowance;
use crate::schedule::Direction;
use crate::time::Instant;

impl<R: Region, S: Sink> BorrowedQp<'_, R, S> {
    /// Sends at most `budget` FPDUs, as long as `outlet` has room, among which count requests that need none; how many of each.
    pub(crate) fn transmit_tcp(
        &mut self,
        now: Instant,
        direction: Direction,
        budget: usize,
        outlet: &mut impl Outlet<R>,
    ) -> (usize, usize) {
        let mut allowance = Allowance::new(now, budget);
        self.mind_silence(now);
        let more = match direction {
            _ if self.service.tcp().stream.has_ended() => false,
            Direction::Answers => self.send_answers(&mut allowance, outlet),
            Direction::Requests => self.send_requests_tcp(&mut allowance, outlet),
        };
        match direction {
            Direction::Answers if more => self.make_answer_due(),
            Direction::Requests if more => self.make_turn_due(),
            Direction::Answers | Direction::Requests => {}
        }
        self.finish_if_done(outlet);
        allowance.spent()
    }

    /// What waits for room, or for a message of the other direction to end, is tried in its turn.
    pub(crate) fn try_stream_again(&mut self) {
        self.make_answer_due();
        self.make_ready();
    }

    /// There is room in the stream again.
    pub(crate) fn stream_has_room(&mut self) {
        self.service.tcp().stream.unblock();
        self.try_stream_again();
    }

    /// The stream ends as soon as what has begun has ended: no request begins any more.
    pub(crate) fn finish_stream(&mut self) {
        self.service.tcp().stream.finishes = true;
        self.make_answer_due();
    }

    /// Ends a stream that was to, once nothing is under way.
    fn finish_if_done(&mut self, outlet: &mut impl Outlet<R>) {
        let place = self.place;
        let tcp = self.service.tcp();
        if tcp.stream.finishes && tcp.is_idle() && !tcp.stream.has_ended() {
            tcp.stream.end();
            outlet.end_stream(place.id(), place.qpn, StreamEnd::Close);
            self.enter_error();
        }
    }

    /// The peer has ended the stream, or it broke.
    pub(crate) fn lose_stream(&mut self, orderly: bool) {
        let tcp = self.service.tcp();
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
