//! When a connection in TIME-WAIT gives way to a new one between the same ends.

use crate::config::Config;
use crate::connection::{Connection, State};
use vrdma_wire::tcp::{Flags, Header};

impl Connection {
    /// Whether this SYN may begin a new connection between the same ends: none of its segments can
    /// be taken for one of this (RFC 6191; RFC 9293, 3.6.1: MAY-2). Then a number for ours that is
    /// beyond all that we used.
    pub(crate) fn may_begin_anew(&self, header: &Header) -> Option<u32> {
        if self.state != State::TimeWait || header.flags.0 & !(Flags::ECE.0 | Flags::CWR.0) != Flags::SYN.0 {
            return None;
        }
        let is_newer = match (self.agreed.timestamps, header.options.timestamps) {
            (true, Some((value, _))) => value.wrapping_sub(self.stamps.recent) as i32 > 0,
            _ => self.receive_origin.number(header.seq, self.received.nxt()) > self.received.nxt(),
        };
        is_newer.then(|| self.number_beyond())
    }

    /// Whether this connection may give way to one that this end begins between the same ends. Both
    /// need timestamps: by them the new connection drops segments of this one that come late
    /// (RFC 7323, appendix B.2). Then a number for ours that is beyond all that we used.
    pub(crate) fn may_give_way(&self, config: &Config) -> Option<u32> {
        let has_stamps = self.agreed.timestamps && config.timestamps;
        (self.state == State::TimeWait && has_stamps).then(|| self.number_beyond())
    }

    /// A number beyond all that we used, and beyond what the last window may have had on its way.
    fn number_beyond(&self) -> u32 {
        self.send_origin.wire(self.board.nxt()).wrapping_add(self.window.largest as u32)
    }
}
