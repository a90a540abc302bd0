//! NAKs for a packet that is missing.

use crate::base::memory::Region;
use crate::protocol::roce::qp::RoceQp;
use crate::verbs::completion::Sink;
use vrdma_wire::num::Psn;
use vrdma_wire::roce::{NakCode, Syndrome};

const GAP: Syndrome = Syndrome::Nak(NakCode::PsnSequenceError);

impl<R: Region, S: Sink> RoceQp<'_, R, S> {
    /// Makes a NAK due for the PSN that is expected, unless there was one.
    pub(super) fn nak_gap_once(&mut self) {
        if self.conn.responder.nak_once(self.qp.responder.psn, GAP) {
            self.counters.naks_sequence += 1;
            self.make_answer_due();
        }
    }

    /// Asks the peer to send the expected packet, at `psn`, again.
    ///
    /// `looked` is its PSN if the caller has drained posts for it.
    pub(super) fn ask_again(&mut self, psn: Psn, looked: Option<Psn>) {
        self.counters.naks_sequence += 1;
        self.conn.responder.ask_again(psn, GAP, looked);
        self.make_answer_due();
    }
}
