//! A connection as a value that can be written, read, and gone on with.
//!
//! A connection is plain data, so what is written is the connection itself, by any encoding that serde has. What was read is a [`Saved`], which is
//! not trusted: [`Saved::restore`] makes a connection of it, or says what of it cannot be. (Names of fields are the format. When the engine's record
//! takes connections in, this gets the record's rules for versions.)

use crate::connection::{Connection, State};
use crate::seq::{FIRST, SYN};
use crate::timers::Timer;
use serde::{Deserialize, Serialize};

/// A connection that was written, or read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved(Connection);

impl Saved {
    /// The connection, if it can be one; else what is wrong with it.
    pub fn restore(self) -> Result<Connection, &'static str> {
        match self.0.fault() {
            None => Ok(self.0),
            Some(fault) => Err(fault),
        }
    }
}

/// Numbers of a record are below this: a stream of 2^62 bytes takes longer than hosts live, and sums of two do not overflow.
const FAR: u64 = 1 << 62;

impl Connection {
    /// The connection as a value.
    #[must_use]
    pub fn save(&self) -> Saved {
        Saved(self.clone())
    }

    /// What cannot be, if it is.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let (una, nxt) = (self.board.una(), self.board.nxt());
        let is_waiting = self.timers.runs(Timer::Retransmit);
        let is_begun = matches!(self.state, State::SynSent | State::SynReceived);
        match () {
            () if !(SYN..FAR).contains(&una) || !(una..FAR).contains(&nxt) => {
                Some("numbers sent are out of range")
            }
            () if self.received.nxt() >= FAR || self.received.edge() >= FAR => {
                Some("numbers received are out of range")
            }
            () if !is_begun && self.state != State::Closed && una < FIRST => {
                Some("the SYN is not acknowledged")
            }
            () if self.fin.is_some_and(|fin| fin + 1 != nxt) && self.state != State::Closed => {
                Some("something was sent after the FIN")
            }
            () if !self.board.is_empty() && !is_waiting => {
                Some("something is outstanding, and no timer runs")
            }
            () if self.board.is_empty() && is_waiting => Some("a timer runs for nothing"),
            () if self.mss == 0 || self.mss > 0xffff => Some("the segment size is out of range"),
            () if self.congestion.window == 0 => Some("the congestion window is closed"),
            () if self.agreed.send_scale > 14 || self.agreed.receive_scale > 14 => {
                Some("a window scale is over 14")
            }
            () if self.receive_window > 1 << 30 || self.window.size > 1 << 30 => {
                Some("a window is over 1 GiB")
            }
            () => self.board.fault().or_else(|| self.received.fault()),
        }
    }
}
