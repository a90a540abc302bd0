//! Reliable connections on packets (IBTA 9.7): [`requests`] leave, [`answers`] go back, [`responses`] come, and to peers' requests there is
//! a [`verdict`](crate::message::verdict::verdict) as on the same host ([`arrivals`]).

mod answering;
mod answers;
mod arrivals;
mod requests;
mod responses;
mod sending;
mod timers;

use crate::completion::Sink;
use crate::engine::Engine;
use crate::engine::wire::Nowhere;
use crate::look::Fate;
use crate::memory::Region;
use crate::outlet::Outlet;
use crate::pool::List;
use crate::qp::Way;
use crate::qp::{NEVER, Qp};
use crate::rc::wire::answering::Answering;
use crate::rc::wire::sending::Sending;
use crate::schedule::Place;
use crate::time::Instant;
use vrdma_wire::num::Psn;
use vrdma_wire::roce::{Body, Parsed, Rc};

/// What a QP whose peer is on the wire has besides.
pub(crate) struct Wire {
    sending: Sending,
    answering: Answering,
    /// When to do something about what has not happened until then, or [`NEVER`]. The QP's timer is not later than this.
    deadline: Instant,
    /// In its next turn requests go before answers: each in turn, so that neither makes the other wait for long.
    requests_first: bool,
}

impl Wire {
    /// For a QP whose attributes are set.
    pub(crate) fn new(qp: &Qp) -> Wire {
        Wire {
            sending: Sending::new(),
            answering: Answering::new(qp.max_dest_rd_atomic),
            deadline: NEVER,
            requests_first: false,
        }
    }

    /// The next request begins with `psn`; nothing of those in `queue` was sent.
    pub(crate) fn begin(&mut self, psn: Psn, queue: &List) {
        self.sending.begin(psn, queue.head());
        self.deadline = NEVER;
    }

    /// A request was added to the end of `queue`.
    pub(crate) fn appended(&mut self, queue: &List) {
        self.sending.appended(queue.tail());
    }

    /// What was sent and not answered is sent again.
    pub(crate) fn start_over(&mut self, queue: &List) {
        self.sending.go_back(queue.head());
        self.deadline = NEVER;
    }

    /// The QP takes as many READs and atomics now.
    pub(crate) fn resize(&mut self, max_dest_rd_atomic: u8) {
        self.answering.resize(max_dest_rd_atomic);
    }

    /// Whether there is a request to send, if nothing forbids it.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sending.has_unsent()
    }
}

/// How far `psn` is ahead of `other`, going up only: 0 to 2^24 - 1. What is half of that ahead is rather behind.
fn ahead(psn: Psn, other: Psn) -> u32 {
    Psn::truncate(psn.number().wrapping_sub(other.number())).number()
}

/// Half of the PSNs: so many may be outstanding (IBTA 9.7.2).
const HALF: u32 = 1 << 23;

/// What a QP may send in its turn.
struct Turn {
    now: Instant,
    /// Packets left,
    packets: usize,
    /// and about bytes.
    bytes: u32,
    sent: usize,
}

impl Turn {
    /// Most bytes of a turn.
    const BYTES: u32 = 256 << 10;
    /// What a packet costs beside its payload.
    const PACKET: u32 = 128;

    fn may_send<R: Region>(&self, outlet: &mut impl Outlet<R>) -> bool {
        self.packets > 0 && self.bytes > 0 && outlet.has_room()
    }

    fn sent(&mut self, payload: u32) {
        self.packets -= 1;
        self.bytes = self.bytes.saturating_sub(payload + Self::PACKET);
        self.sent += 1;
    }
}

impl<R: Region> Engine<R> {
    /// A packet of this service came for the QP at `place`, which exists.
    pub(crate) fn receive_rc(
        &mut self,
        now: Instant,
        place: Place,
        parsed: &Parsed<'_>,
        looked: bool,
        sink: &mut impl Sink,
    ) -> Fate {
        let packet = &parsed.packet;
        let Body::Rc(body) = &packet.body else { return Fate::Done };
        let Some(device) = self.devices.get_mut(place.device) else { return Fate::Done };
        let Some(qp) = device.qps.get(place.qpn.number()) else { return Fate::Done };
        if !qp.is_path_of_peer(&packet.path) {
            device.counters.drop_source += 1;
            return Fate::Done;
        }
        if qp.way != Way::Wire {
            device.counters.drop_not_connected += 1;
            return Fate::Done;
        }
        match body {
            Rc::Ack(_) | Rc::AtomicAck(..) | Rc::ReadResponse(_) => {
                self.receive_response(now, place, &packet.bth, body, parsed.payload, sink);
                Fate::Done
            }
            _ => self.receive_request(place, &packet.bth, body, parsed.payload, looked, sink),
        }
    }

    /// A QP's turn: sends at most `budget` packets, as long as `outlet` has room; how many it sent.
    pub(crate) fn transmit_rc(
        &mut self,
        now: Instant,
        place: Place,
        budget: usize,
        outlet: &mut impl Outlet<R>,
        sink: &mut impl Sink,
    ) -> usize {
        let Some(qp) = self.devices.qp_mut(place) else { return 0 };
        if qp.sgid.is_zero() {
            // Nothing can be sent from no address: it is lost.
            return self.take_turn_rc(now, place, budget, &mut Nowhere, sink);
        }
        self.take_turn_rc(now, place, budget, outlet, sink)
    }

    fn take_turn_rc(
        &mut self,
        now: Instant,
        place: Place,
        budget: usize,
        outlet: &mut impl Outlet<R>,
        sink: &mut impl Sink,
    ) -> usize {
        let qp = self.devices.qp_mut(place);
        let Some(wire) = qp.and_then(|qp| qp.wire.as_deref_mut()) else { return 0 };
        let requests_first = wire.requests_first;
        wire.requests_first = !requests_first;
        let mut turn = Turn { now, packets: budget, bytes: Turn::BYTES, sent: 0 };
        let mut more = false;
        for requests in [requests_first, !requests_first] {
            more |= match requests {
                true => self.send_requests(place, &mut turn, outlet, sink),
                false => self.send_answers(place, &mut turn, outlet, sink),
            };
        }
        if more {
            self.make_turn_due(place);
        }
        turn.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    #[test]
    fn an_idle_queue_pair_on_the_wire_is_small() {
        let resources = Limits::default().max_dest_rd_atomic as usize * size_of::<answering::Resource>();
        let all = size_of::<Option<Qp>>() + size_of::<Wire>() + resources;
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
