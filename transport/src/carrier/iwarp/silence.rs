//! Who sends first. The initiator of a connection does (RFC 5044, 7.1): only then is it sure that
//! it takes FPDUs. But programs may wait for the responder's first message. If both ends are peers
//! (RFC 6581), the initiator sends something by itself; if it is no such peer, a responder that has
//! waited for long sends all the same, as other implementations do at once: else both would wait
//! for ever.

use crate::base::memory::Region;
use crate::base::time::{Instant, NEVER};
use crate::carrier::iwarp::qp::StreamQp;
use crate::objects::iwarp::state::RcTcp;
use crate::verbs::completion::Sink;
use core::time::Duration;

/// A responder that has something to send waits so long for the first message of an initiator that
/// has not promised one: until then the reply of the set-up was surely taken, behind which Linux's
/// siw, for one, bears nothing.
const SILENCE: Duration = Duration::from_millis(500);

/// An initiator that is to send something by itself waits so long before it sends anything: Linux's
/// siw does not notice what comes right behind its reply, before it has come to listen for it, and
/// its kernel fails when such a connection is broken off.
const LULL: Duration = Duration::from_millis(20);

impl<R: Region, S: Sink> StreamQp<'_, R, S> {
    /// If this end does not send yet: sees to it that it will.
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

    /// There was silence for long enough.
    pub(crate) fn silence_is_over(&mut self) {
        if !self.conn.stream.has_ended() {
            self.begin_to_send();
        }
    }

    /// This end sends from now on.
    pub(super) fn begin_to_send(&mut self) {
        let stream = &mut self.conn.stream;
        if !stream.may_send {
            stream.may_send = true;
            self.disarm();
            self.try_stream_again();
        }
    }
}
