//! What is due when: a deadline for each thing that time does to a connection.

use crate::time::{Instant, NEVER};
use serde::{Deserialize, Serialize};

/// What time does to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Timer {
    /// Something outstanding has had no acknowledge for too long (RFC 6298).
    Retransmit,
    /// The tail is probed (RFC 8985, 7).
    TailProbe,
    /// What may have been reordered is lost (RFC 8985, 6).
    Reordering,
    /// A closed window is probed (RFC 9293, 3.8.6.1).
    WindowProbe,
    /// An acknowledge was delayed long enough.
    DelayedAck,
    /// The peer has been silent for long.
    KeepAlive,
    /// The connection has waited long enough, in FIN-WAIT-2 or TIME-WAIT.
    Wait,
    /// New data may go.
    Pace,
    /// Nobody uses the connection any more, and it has had its time to end.
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

    /// The first deadline.
    pub fn next(&self) -> Option<Instant> {
        self.0.into_iter().min().filter(|at| *at != NEVER)
    }

    /// Takes one that is due.
    pub fn expired(&mut self, now: Instant) -> Option<Timer> {
        let timer = ALL.into_iter().find(|timer| self.runs(*timer) && self.at(*timer) <= now)?;
        self.stop(timer);
        Some(timer)
    }
}
