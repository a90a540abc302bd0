//! The budget of a connection in one turn.

use crate::agenda::schedule::{OPERATION, QP_TURN};
use crate::base::time::Instant;
use crate::message::outlet::Outlet;

/// What a QP may still send in its turn.
pub(super) struct Allowance {
    pub(super) now: Instant,
    /// Packets or FPDUs left.
    packets: usize,
    /// Bytes left, approximately.
    bytes: u32,
    sent: usize,
    /// Packets or FPDUs at the beginning of the turn.
    budget: usize,
}

impl Allowance {
    /// Makes the budget of a turn with at most `budget` packets.
    pub(super) fn new(now: Instant, budget: usize) -> Allowance {
        Allowance { now, packets: budget, bytes: QP_TURN, sent: 0, budget }
    }

    pub(super) fn may_send(&self, outlet: &mut impl Outlet) -> bool {
        self.packets > 0 && self.bytes > 0 && outlet.has_room()
    }

    /// Whether a packet with this payload may be the last one of the turn, before a rate delays the
    /// next turn. `begins` tells that it is the first one of its message.
    pub(super) fn ends_with(&self, payload: u32, begins: bool, outlet: &impl Outlet) -> bool {
        let is_last = self.packets <= 1 || self.bytes <= payload + OPERATION as u32;
        outlet.has_rate() && (is_last || outlet.ends_with(payload as usize, begins))
    }

    /// Returns how many packets were sent so far.
    pub(super) fn packets_sent(&self) -> usize {
        self.sent
    }

    pub(super) fn sent(&mut self, payload: u32) {
        self.packets -= 1;
        self.bytes = self.bytes.saturating_sub(payload + OPERATION as u32);
        self.sent += 1;
    }

    /// Records an operation that was executed without a packet.
    ///
    /// It costs `extra` bytes more than others, and counts as one or more packets.
    pub(super) fn executed(&mut self, extra: u32) {
        self.packets = self.packets.saturating_sub(1 + extra as usize / OPERATION as usize);
        self.bytes = self.bytes.saturating_sub(extra + OPERATION as u32);
    }

    /// Returns how many packets were sent, and as how many the operations without a packet counted.
    pub(super) fn spent(&self) -> (usize, usize) {
        (self.sent, self.budget - self.packets - self.sent)
    }
}
