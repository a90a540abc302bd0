//! Which end of a connection sends first.
//!
//! The initiator does (RFC 5044, 7.1). Only then can the responder be sure that the initiator takes
//! FPDUs. But programs may wait for the responder's first message. If both ends are peers (RFC
//! 6581), the initiator therefore sends a message by itself. If it is no such peer, a responder
//! that has waited for long sends nevertheless. Other implementations do so at once. Without this,
//! both ends would wait for ever.

use crate::base::memory::Region;
use crate::base::time::{Instant, NEVER};
use crate::objects::iwarp::state::RcTcp;
use crate::protocol::iwarp::qp::StreamQp;
use crate::verbs::completion::Sink;
use core::time::Duration;

/// How long a responder with something to send waits for the initiator's first message.
///
/// This is for an initiator that has not promised a message. By then it has surely taken the reply
/// of the set-up. Some implementations, such as Linux's siw, cannot handle data right behind the
/// reply.
const SILENCE: Duration = Duration::from_millis(500);

/// How long an initiator waits before it sends anything, if it has to send a message by itself.
///
/// Linux's siw does not notice data that come right behind its reply, before it listens for them.
/// Its kernel fails when such a connection is broken off.
const LULL: Duration = Duration::from_millis(20);

impl<R: Region, S: Sink> StreamQp<'_, R, S> {
    /// Makes sure that this end will send, if it may not so far.
    pub(super) fn mind_silence(&mut self, now: Instant) {
        let RcTcp { stream, requester, input, .. } = self.conn;
        if stream.may_send || stream.has_ended() {
            return;
        }
        let has_request = requester.cursor.is_some();
        let wait = match stream.ready {
            Some(_) => LULL,
            None if has_request && input.ready.is_none() => SILENCE,
            None => return,
        };
        if self.qp.timer == NEVER {
            self.arm(now + wait);
        }
    }

    /// Lets this end send, because there was silence for long enough.
    pub(crate) fn silence_is_over(&mut self) {
        if !self.conn.stream.has_ended() {
            self.begin_to_send();
        }
    }

    /// Lets this end send from now on.
    pub(super) fn begin_to_send(&mut self) {
        let stream = &mut self.conn.stream;
        if !stream.may_send {
            stream.may_send = true;
            self.disarm();
            self.try_stream_again();
        }
    }
}
