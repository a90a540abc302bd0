//! When a connection in TIME-WAIT gives way to a new one with the same tuple.

use crate::config::Config;
use crate::connection::{Connection, State};
use vrdma_wire::tcp::{Flags, TcpHeader};

/// What a new connection has to know of the one that gave way to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Former {
    /// The initial sequence number of the new connection: beyond all numbers of the former one.
    pub initial: u32,
    /// The last timestamp of the peer.
    pub stamp: u32,
}

impl Connection {
    /// Returns our initial sequence number if this SYN may begin a new connection with the same
    /// tuple.
    ///
    /// It may if no segment of this connection can be taken for one of the new one (RFC 6191; RFC
    /// 9293, 3.6.1: MAY-2).
    pub(crate) fn may_begin_anew(&self, header: &TcpHeader) -> Option<u32> {
        if self.state != State::TimeWait || header.flags.0 & !(Flags::ECE.0 | Flags::CWR.0) != Flags::SYN.0 {
            return None;
        }
        let is_beyond = self.receive_origin.number(header.seq, self.received.nxt()) > self.received.nxt();
        let is_newer = match (self.agreed.timestamps, header.options.timestamps) {
            (true, Some((value, _))) => match value.wrapping_sub(self.stamps.recent) as i32 {
                0 => is_beyond,
                later => later > 0,
            },
            _ => is_beyond,
        };
        is_newer.then(|| self.number_beyond())
    }

    /// Returns what the new connection needs if this one may give way to one that this end begins.
    ///
    /// Both need timestamps. By them the new connection drops late segments of this one (RFC 7323,
    /// appendix B.2).
    pub(crate) fn may_give_way(&self, config: &Config) -> Option<Former> {
        let has_stamps = self.agreed.timestamps && config.timestamps;
        let former = || Former { initial: self.number_beyond(), stamp: self.stamps.recent };
        (self.state == State::TimeWait && has_stamps).then(former)
    }

    /// Returns whether a SYN of the peer is newer than all segments of the connection that gave
    /// way.
    ///
    /// If it is not, it is ignored. Our SYN is retransmitted, and the peer's clock has ticked by
    /// then.
    pub(crate) fn is_after_former(&self, header: &TcpHeader) -> bool {
        let Some(former) = self.former_stamp else { return true };
        header.options.timestamps.is_some_and(|(value, _)| value.wrapping_sub(former) as i32 > 0)
    }

    /// Returns a number beyond all that we used, and beyond what the last window may still have in
    /// flight.
    fn number_beyond(&self) -> u32 {
        self.send_origin.wire(self.board.nxt()).wrapping_add(self.window.largest as u32)
    }
}
