//! A connection as a value that can be written, read, and gone on with.
//!
//! A connection is plain data, so what is written is the connection itself, by any encoding that
//! serde has. What was read is a [`Saved`], which is not trusted: [`Saved::restore`] makes a
//! connection of it, or says what of it cannot be. (Names of fields are the format. When the
//! engine's record takes connections in, this gets the record's rules for versions.)

use crate::connection::{Connection, State};
use crate::seq::{FAR, FIRST, SYN};
use crate::timers::Timer;
use serde::{Deserialize, Serialize};

/// A connection that was written, or read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved(Connection);

impl Saved {
    /// The connection, if it can be one; else what is wrong with it.
    pub fn restore(mut self) -> Result<Connection, &'static str> {
        self.0.board.find_runs();
        match self.0.fault() {
            None => Ok(self.0),
            Some(fault) => Err(fault),
        }
    }
}

impl Connection {
    /// The connection as a value.
    #[must_use]
    pub fn save(&self) -> Saved {
        Saved(self.clone())
    }

    /// What cannot be, if it is.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        self.number_fault()
            .or_else(|| self.state_fault())
            .or_else(|| self.board.fault())
            .or_else(|| self.received.fault())
    }

    /// Numbers with which others are computed are such that nothing overflows.
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
