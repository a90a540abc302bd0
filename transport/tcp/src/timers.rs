//! The timers of a connection: one deadline for each purpose.

use crate::time::{Instant, NEVER};
use serde::{Deserialize, Serialize};

/// A purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Timer {
    /// Something outstanding was not acknowledged for too long (RFC 6298).
    Retransmit,
    /// A tail loss probe is due (RFC 8985, 7).
    TailProbe,
    /// Segments that may have been reordered count as lost (RFC 8985, 6).
    Reordering,
    /// A probe of a closed window is due (RFC 9293, 3.8.6.1).
    WindowProbe,
    /// A delayed ACK is due.
    DelayedAck,
    /// The peer has been silent for long.
    KeepAlive,
    /// The time in FIN-WAIT-2 or TIME-WAIT is over.
    Wait,
    /// Pacing lets new data go.
    Pace,
    /// The connection has no user, and its time to end has run out.
    Linger,
}

const ALL: [Timer; 9] = [
    Timer::Retransmit,
    Timer::TailProbe,
    Timer::Reordering,
    Timer::WindowProbe,
    Timer::DelayedAck,
    Timer::KeepAlive,
    Timer::Wait,
    Timer::Pace,
    Timer::Linger,
];

/// The deadlines of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Timers([Instant; ALL.len()]);

impl Default for Timers {
    fn default() -> Timers {
        Timers([NEVER; ALL.len()])
    }
}

impl Timers {
    pub fn set(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = at;
    }

    pub fn stop(&mut self, timer: Timer) {
        self.set(timer, NEVER);
    }

    pub fn at(&self, timer: Timer) -> Instant {
        self.0[timer as usize]
    }

    pub fn runs(&self, timer: Timer) -> bool {
        self.at(timer) != NEVER
    }

    /// Returns the first deadline.
    pub fn next(&self) -> Option<Instant> {
        self.0.into_iter().min().filter(|at| *at != NEVER)
    }

    /// Takes a timer that is due, and stops it.
    pub fn expired(&mut self, now: Instant) -> Option<Timer> {
        let timer = ALL.into_iter().find(|timer| self.runs(*timer) && self.at(*timer) <= now)?;
        self.stop(timer);
        Some(timer)
    }
}
