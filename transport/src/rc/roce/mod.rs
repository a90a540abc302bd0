//! Reliable connections on packets of RoCEv2 (IBTA 9.7). Each end is a requester and a responder, and each of these sends ([`requester_tx`],
//! [`responder_tx`]), receives ([`requester_rx`], [`responder_rx`]) and has its state ([`requester_state`], [`responder_state`]); [`retry`] is
//! about what has not happened.

mod packet;
mod psn;
mod requester_rx;
mod requester_state;
mod requester_tx;
mod responder_rx;
mod responder_state;
mod responder_tx;
mod retry;
pub(crate) mod state;

use crate::carrier::Carrier;
use crate::completion::Sink;
use crate::engine::borrowed::BorrowedQp;
use crate::look::Fate;
use crate::memory::Region;
use crate::near::{NearPart, NearPayload};
use crate::outlet::{DiscardOutlet, Outlet};
use crate::rc::allowance::Allowance;
use crate::rc::roce::packet::Response;
use crate::schedule::Direction;
use crate::time::Instant;
use vrdma_wire::num::Srqn;
use vrdma_wire::roce::{Packet, Rc};

impl<R: Region, S: Sink> BorrowedQp<'_, R, S> {
    /// A packet of this service came, by itself, as a near packet, if it is one; a request of XRC with the shared receive queue that it names.
    pub(crate) fn receive_rc(
        &mut self,
        now: Instant,
        packet: &Packet,
        (part, payload): (Option<NearPart>, NearPayload<'_, R>),
        (body, srqn): (&Rc, Option<Srqn>),
        looked: bool,
    ) -> Fate {
        if !self.qp.is_path_of_peer(&packet.path) {
            self.counters.drop_source += 1;
            return Fate::Done;
        }
        if self.qp.carrier != Carrier::Roce {
            self.counters.drop_not_connected += 1;
            return Fate::Done;
        }
        match Response::of(body, part.map_or(1, |part| part.psns), payload) {
            Some(response) => {
                self.receive_response(now, packet.bth.psn, response);
                Fate::Done
            }
            None => self.receive_request(&packet.bth, (body, srqn), (part, payload), looked),
        }
    }

    /// Sends at most `budget` packets, as long as `outlet` has room, among which count requests that need none; how many of each.
    pub(crate) fn transmit_rc(
        &mut self,
        now: Instant,
        direction: Direction,
        budget: usize,
        outlet: &mut impl Outlet<R>,
    ) -> (usize, usize) {
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
    ) -> (usize, usize) {
        if self.qp.carrier != Carrier::Roce {
            // It was made due before its address vector changed.
            return (0, 0);
        }
        let way = outlet.way_to(self.qp.attr().dmac);
        let roce = self.service.rc_roce();
        (roce.stays_here, roce.is_near) = (way.stays_here, way.is_near);
        if !way.has_room {
            match direction {
                Direction::Answers => self.make_answer_due(),
                Direction::Requests => self.make_turn_due(),
            }
            return (0, 0);
        }
        let mut allowance = Allowance::new(now, budget);
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
        allowance.spent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::qp::entry::QpEntry;
    use crate::rc::roce::state::RcRoce;

    #[test]
    fn an_idle_queue_pair_on_the_wire_is_small() {
        // Room for READs and atomics of its peer it has from the first of them on.
        let all = size_of::<Option<QpEntry>>() + size_of::<RcRoce>();
        assert!(all < 768, "{all}");
        let resources =
            Limits::default().max_dest_rd_atomic as usize * size_of::<responder_state::Resource>();
        assert!(all + resources < 2048, "{all} and {resources}");
    }
}
