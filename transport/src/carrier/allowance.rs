//! What a connection may send in one turn.

use crate::agenda::schedule::{OPERATION, QP_TURN};
use crate::base::time::Instant;
use crate::message::outlet::Outlet;

/// What a QP may still send in its turn.
pub(super) struct Allowance {
    pub(super) now: Instant,
    /// Packets or FPDUs left,
    packets: usize,
    /// and about bytes.
    bytes: u32,
    sent: usize,
    /// Of a turn.
    budget: usize,
}

impl Allowance {
    /// Of a turn that may have so many packets.
    pub(super) fn new(now: Instant, budget: usize) -> Allowance {
        Allowance { now, packets: budget, bytes: QP_TURN, sent: 0, budget }
    }

    pub(super) fn may_send(&self, outlet: &mut impl Outlet) -> bool {
        self.packets > 0 && self.bytes > 0 && outlet.has_room()
    }

    /// Packets that were sent so far.
    pub(super) fn packets_sent(&self) -> usize {
        self.sent
    }

    pub(super) fn sent(&mut self, payload: u32) {
        self.packets -= 1;
        self.bytes = self.bytes.saturating_sub(payload + OPERATION as u32);
        self.sent += 1;
    }

    /// An operation without a packet was carried out, which costs so many bytes more than others.
    /// It counts as a packet, or several.
    pub(super) fn executed(&mut self, extra: u32) {
        self.packets = self.packets.saturating_sub(1 + extra as usize / OPERATION as usize);
        self.bytes = self.bytes.saturating_sub(extra + OPERATION as u32);
    }

    /// How many packets were sent, and what was carried out without one.
    pub(super) fn spent(&self) -> (usize, usize) {
        (self.sent, self.budget - self.packets - self.sent)
    }
}
