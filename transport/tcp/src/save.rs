//! Saving and restoring a connection as a value.
//!
//! A connection is plain data. So the connection itself is written, by any encoding of serde. A
//! [`Saved`] that was read is not trusted. [`Saved::restore`] makes a connection of it, or returns
//! what is inconsistent. Names of fields are the format. When the engine's record contains
//! connections, the record's rules for versions apply to this format too.

use crate::connection::{Connection, State};
use crate::seq::{FAR, FIRST, SYN};
use crate::timers::Timer;
use serde::{Deserialize, Serialize};

/// A connection as written or read, which is not validated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved(Connection);

impl Saved {
    /// Returns the connection if it is consistent, or else what is wrong with it.
    pub fn restore(mut self) -> Result<Connection, &'static str> {
        self.0.board.find_runs();
        match self.0.fault() {
            None => Ok(self.0),
            Some(fault) => Err(fault),
        }
    }
}

impl Connection {
    /// Returns the connection as a value.
    #[must_use]
    pub fn save(&self) -> Saved {
        Saved(self.clone())
    }

    /// Returns an inconsistency, if there is one.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        self.number_fault()
            .or_else(|| self.state_fault())
            .or_else(|| self.board.fault())
            .or_else(|| self.received.fault())
    }

    /// Checks that numbers are small enough for computations not to overflow.
    fn number_fault(&self) -> Option<&'static str> {
        let (una, nxt) = (self.board.una(), self.board.nxt());
        let congestion = &self.congestion;
        match () {
            () if !(SYN..FAR).contains(&una) || !(una..FAR).contains(&nxt) => {
                Some("numbers sent are out of range")
            }
            () if self.fin.is_some_and(|fin| fin >= FAR) => Some("the FIN is out of range"),
            () if self.window.seq >= FAR || self.window.ack >= FAR => Some("the window is of no segment"),
            () if self.receive_window > 1 << 30
                || self.window.size > 1 << 30
                || self.window.largest > 1 << 30 =>
            {
                Some("a window is over 1 GiB")
            }
            () if self.mss == 0 || self.mss > 0xffff => Some("the segment size is out of range"),
            () if self.full.is_some_and(|full| full.mss <= self.mss || full.mss > 0xffff) => {
                Some("segments were no longer than they are")
            }
            () if !congestion.is_sane() => Some("the congestion window is out of range"),
            () if !self.rtt.is_sane() || !self.rack.is_sane() => Some("a round trip takes too long"),
            () if self.agreed.send_scale > 14 || self.agreed.receive_scale > 14 => {
                Some("a window scale is over 14")
            }
            () => None,
        }
    }

    fn state_fault(&self) -> Option<&'static str> {
        let (una, nxt) = (self.board.una(), self.board.nxt());
        let is_waiting = self.timers.runs(Timer::Retransmit);
        let is_begun = matches!(self.state, State::SynSent | State::SynReceived);
        let is_closed = self.state == State::Closed;
        match () {
            () if !is_begun && !is_closed && una < FIRST => Some("the SYN is not acknowledged"),
            () if is_begun && una > SYN => Some("the SYN is acknowledged"),
            () if self.fin.is_some_and(|fin| fin + 1 != nxt) && !is_closed => {
                Some("something was sent after the FIN")
            }
            () if !self.board.is_empty() && !is_waiting => {
                Some("something is outstanding, and no timer runs")
            }
            () if self.board.is_empty() && is_waiting => Some("a timer runs for nothing"),
            () => None,
        }
    }
}
