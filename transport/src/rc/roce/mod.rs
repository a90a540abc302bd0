//! Reliable connections on packets of RoCEv2 (IBTA 9.7). Each end is a requester and a responder, and each of these sends ([`requester_tx`],
//! [`responder_tx`]), receives ([`requester_rx`], [`responder_rx`]) and has its state ([`requester_state`], [`responder_state`]); [`retry`] is
//! about what has not happened.

mod packet;
mod requester_rx;
mod requester_state;
mod requester_tx;
mod responder_rx;
mod responder_state;
mod responder_tx;
mod retry;
mod save;

use crate::carrier::Carrier;
use crate::completion::Sink;
use crate::engine::borrowed::BorrowedQp;
use crate::engine::wire::DiscardOutlet;
use crate::look::Fate;
use crate::memory::Region;
use crate::outlet::Outlet;
use crate::pool::List;
use crate::qp::{NEVER, Qp};
use crate::rc::roce::requester_state::RequesterState;
use crate::rc::roce::responder_state::ResponderState;
use crate::schedule::{Direction, OPERATION, QP_TURN};
use crate::time::Instant;
use vrdma_wire::num::Psn;
use vrdma_wire::roce::{Parsed, Rc};

/// What a QP has whose peer is reached in packets.
pub(crate) struct RcRoce {
    requester: RequesterState,
    responder: ResponderState,
    /// When to do something about what has not happened until then, or [`NEVER`]. The QP's timer is not later than this.
    deadline: Instant,
}

impl RcRoce {
    /// For a QP whose attributes are set.
    pub(crate) fn new(qp: &Qp) -> RcRoce {
        RcRoce {
            requester: RequesterState::new(),
            responder: ResponderState::new(qp.max_dest_rd_atomic),
            deadline: NEVER,
        }
    }

    /// The next request begins with `psn`; nothing of those in `queue` was sent.
    pub(crate) fn start(&mut self, psn: Psn, queue: &List) {
        self.requester.start(psn, queue.head());
        self.deadline = NEVER;
    }

    /// A request was added to the end of `queue`.
    #[inline]
    pub(crate) fn posted(&mut self, queue: &List) {
        self.requester.posted(queue.tail());
    }

    /// What is outstanding is retransmitted.
    pub(crate) fn send_again(&mut self, queue: &List) {
        self.requester.go_back(queue.head());
        self.deadline = NEVER;
    }

    /// The QP takes as many READs and atomics now.
    pub(crate) fn resize(&mut self, max_dest_rd_atomic: u8) {
        self.responder.resize(max_dest_rd_atomic);
    }

    /// Whether there is a request to send, if nothing forbids it.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.requester.has_unsent()
    }
}

/// How far `psn` is ahead of `other`, going up only: 0 to 2^24 - 1. From [`HALF`] on it is behind.
fn ahead(psn: Psn, other: Psn) -> u32 {
    Psn::truncate(psn.number().wrapping_sub(other.number())).number()
}

/// Half of the PSNs: so many may be outstanding (IBTA 9.7.2).
const HALF: u32 = 1 << 23;

/// What a QP may still send in its turn.
struct Allowance {
    now: Instant,
    /// Packets left,
    packets: usize,
    /// and about bytes.
    bytes: u32,
    sent: usize,
}

impl Allowance {
    /// Most bytes of a turn.
    const BYTES: u32 = QP_TURN;

    fn may_send<R: Region>(&self, outlet: &mut impl Outlet<R>) -> bool {
        self.packets > 0 && self.bytes > 0 && outlet.has_room()
    }

    fn sent(&mut self, payload: u32) {
        self.packets -= 1;
        self.bytes = self.bytes.saturating_sub(payload + OPERATION as u32);
        self.sent += 1;
    }
}

impl<R: Region, S: Sink> BorrowedQp<'_, R, S> {
    /// A packet of this service came.
    pub(crate) fn receive_rc(&mut self, now: Instant, parsed: &Parsed<'_>, body: &Rc, looked: bool) -> Fate {
        let packet = &parsed.packet;
        if !self.qp.is_path_of_peer(&packet.path) {
            self.counters.drop_source += 1;
            return Fate::Done;
        }
        if self.qp.carrier != Carrier::Roce {
            self.counters.drop_not_connected += 1;
            return Fate::Done;
        }
        match body {
            Rc::Ack(_) | Rc::AtomicAck(..) | Rc::ReadResponse(_) => {
                self.receive_response(now, &packet.bth, body, parsed.payload);
                Fate::Done
            }
            _ => self.receive_request(&packet.bth, body, parsed.payload, looked),
        }
    }

    /// Sends at most `budget` packets, as long as `outlet` has room; how many it sent.
    pub(crate) fn transmit_rc(
        &mut self,
        now: Instant,
        direction: Direction,
        budget: usize,
        outlet: &mut impl Outlet<R>,
    ) -> usize {
        if self.qp.sgid.is_zero() {
            // Nothing can be sent from no address: it is lost.
            return self.take_turn_rc(now, direction, budget, &mut DiscardOutlet);
        }
        self.take_turn_rc(now, direction, budget, outlet)
    }

    fn take_turn_rc(
        &mut self,
        now: Instant,
        direction: Direction,
        budget: usize,
        outlet: &mut impl Outlet<R>,
    ) -> usize {
        if self.qp.carrier != Carrier::Roce {
            // It was made due before its address vector changed.
            return 0;
        }
        let mut allowance = Allowance { now, packets: budget, bytes: Allowance::BYTES, sent: 0 };
        match direction {
            Direction::Answers => {
                if self.send_responses(&mut allowance, outlet) {
                    self.make_answer_due();
                }
            }
            Direction::Requests => {
                if self.send_requests(&mut allowance, outlet) {
                    self.make_turn_due();
                }
            }
        }
        allowance.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::qp::QpEntry;

    #[test]
    fn an_idle_queue_pair_on_the_wire_is_small() {
        let resources =
            Limits::default().max_dest_rd_atomic as usize * size_of::<responder_state::Resource>();
        let all = size_of::<Option<QpEntry>>() + size_of::<RcRoce>() + resources;
        assert!(all < 2048, "{all}");
    }

    #[test]
    fn ahead_goes_around() {
        let last = Psn::truncate(0xff_ffff);
        assert_eq!(
            (ahead(last.add(2), last), ahead(last, last.add(1)), ahead(last, last)),
            (2, 0xff_ffff, 0)
        );
    }
}
