//! Requests ahead of a gap are held, and executed when the gap is filled.
//!
//! To the rules of IBTA 9.7 this is a network that delivers in order. A held packet is checked and
//! executed like one that comes when the packets before it have been executed. What differs is when
//! a NAK is sent for a gap:
//!
//! * The first NAK comes after as many packets as the network is known to reorder, or after a short
//!   time.
//! * Another NAK comes if the peer begins again, and the gap is still there.
//! * A gap may be of many packets. Until all of them have come, it is the same gap.
//! * What is held behind a further gap counts as come ahead of it.
//! * After an RNR NAK there is none, until its packet comes again.

use crate::agenda::drains::Fate;
use crate::base::memory::Region;
use crate::base::time::Instant;
use crate::base::transport_kind::TransportKind;
use crate::objects::roce::psn::{HALF, ahead};
use crate::objects::roce::reorder::{Early, REORDER_WINDOW, ReorderBuffer};
use crate::protocol::roce::qp::RoceQp;
use crate::verbs::completion::Sink;
use vrdma_wire::num::Psn;
use vrdma_wire::roce::MAX_FRAME;

impl<R: Region, S: Sink> RoceQp<'_, R, S> {
    /// Handles a request ahead of the expected one. If this says so, the caller holds its frame, or
    /// drops it.
    pub(super) fn receive_early(&mut self, is_inter_worker: bool) -> Fate {
        if !is_inter_worker && self.conn.may_hold() {
            return Fate::Early;
        }
        self.counters.out_of_sequence += 1;
        self.nak_gap_once();
        Fate::Done
    }

    /// Holds the frame of a request ahead of a gap, and sends a NAK for the gap if it is time.
    ///
    /// Returns how many bytes the device and the engine lack for it, if they do. Nothing has
    /// happened then. With `is_last` the frame is dropped instead.
    pub(crate) fn hold_early(&mut self, now: Instant, psn: Psn, frame: &[u8], is_last: bool) -> Option<u64> {
        let (expected, waits) = (self.qp.responder.psn, self.conn.responder.peer_waits());
        // Held packets may have been executed meanwhile.
        if !self.qp.is_receiving() {
            self.counters.drop_state += 1;
            return None;
        }
        if ahead(psn, expected) >= HALF {
            self.counters.duplicates += 1;
            return None;
        }
        if self.conn.reorder.is_none() {
            self.conn.reorder = Some(Box::new(ReorderBuffer::new(expected, now, waits)));
        }
        self.with_reorder(|buffer| buffer.advance(now, expected));
        let (device, memory) = (self.place.device, &self.schedule.reorder);
        let buffer = self.conn.reorder.as_ref().expect("it was made");
        let cost = buffer.cost(frame.len());
        let is_unfit = ahead(psn, expected) >= REORDER_WINDOW || frame.len() > MAX_FRAME;
        let what = match buffer.is_held(psn) {
            true => Early::Known,
            false if is_unfit => Early::Unfit,
            false if !buffer.has_room(frame.len()) => Early::Dropped,
            false if memory.has_room(device, cost) => Early::New,
            false if is_last => Early::Dropped,
            false => return Some(cost),
        };
        self.counters.out_of_sequence += 1;
        self.counters.drop_reorder += u64::from(what == Early::Dropped);
        let nak = self.with_reorder(|buffer| {
            if what == Early::New {
                buffer.hold(psn, frame);
            }
            !waits && buffer.came_ahead(now, psn, what)
        });
        self.ask_for_gap(nak == Some(true));
        None
    }

    /// Makes a NAK due for the gap at the expected PSN, or sets the time for it.
    fn ask_for_gap(&mut self, is_due: bool) {
        if is_due {
            return self.ask_again(self.qp.responder.psn, None);
        }
        self.arm_nak();
    }

    /// Takes the frame of the expected packet, if it is held.
    pub(crate) fn next_early(&mut self, now: Instant) -> Option<Box<[u8]>> {
        if !self.qp.is_receiving() {
            return None;
        }
        let expected = self.qp.responder.psn;
        self.with_reorder(|buffer| buffer.next(now, expected)).flatten()
    }

    /// Whether the expected packet is held.
    pub(crate) fn is_ready(&self) -> bool {
        let expected = self.qp.responder.psn;
        self.qp.is_receiving() && self.conn.reorder.as_ref().is_some_and(|it| it.is_held(expected))
    }

    /// Drops what the QP holds, because others need the room. Returns the number of packets.
    ///
    /// Its peer sends them again after a NAK or a timeout. If they were about to be executed,
    /// nothing else tells the peer.
    #[cold]
    pub(crate) fn evict_early(&mut self, now: Instant) -> u32 {
        let (was_ready, expected) = (self.is_ready(), self.qp.responder.psn);
        let evicted = self.with_reorder(|buffer| {
            buffer.advance(now, expected);
            (buffer.evict(), was_ready && buffer.stopped(now))
        });
        let (packets, is_due) = evicted.unwrap_or_default();
        if was_ready && self.qp.transport == TransportKind::Roce {
            self.ask_for_gap(is_due);
        }
        packets
    }

    /// Answers after held packets were executed, from the PSN `before` on, and takes care of what
    /// is still held.
    pub(crate) fn went_on(&mut self, now: Instant, before: Psn) {
        let expected = self.qp.responder.psn;
        let ready = self.with_reorder(|buffer| {
            buffer.advance(now, expected);
            buffer.is_held(expected)
        });
        let responder = &mut self.conn.responder;
        if expected != before && self.qp.is_receiving() && responder.nak.is_none() {
            // A peer that is sending everything again does not send what this covers.
            responder.acknowledge();
        }
        if self.qp.held > 0 {
            // A packet that waits for a receive goes before, and no packet before it is missing.
            return;
        }
        if ready == Some(true) {
            self.make_answer_due();
        } else if !self.conn.responder.peer_waits() {
            let nak = self.with_reorder(|buffer| buffer.stopped(now));
            self.ask_for_gap(nak == Some(true));
        }
    }

    /// Sends the NAK for a gap that has not been filled in time.
    pub(super) fn gap_is_old(&mut self, now: Instant) {
        if self.conn.nak_at() > now {
            return;
        }
        let expected = self.qp.responder.psn;
        let has_come = self.qp.held > 0;
        let nak = self.with_reorder(|buffer| match has_come {
            true => {
                buffer.has_come();
                false
            }
            false => buffer.take_delayed_nak(now, expected),
        });
        if nak == Some(true) && self.qp.is_receiving() && !self.conn.responder.peer_waits() {
            self.ask_again(expected, None);
        }
    }

    /// Notes for the rules of NAKs that an executed packet came again.
    pub(super) fn note_duplicate(&mut self, now: Instant, psn: Psn, may_be_probe: bool) {
        let expected = self.qp.responder.psn;
        self.with_reorder(|buffer| {
            buffer.advance(now, expected);
            buffer.repeated(psn, may_be_probe);
        });
    }

    /// Notes for the rules of NAKs that the peer was told to wait for a receive.
    pub(super) fn note_rnr(&mut self, now: Instant) {
        let expected = self.qp.responder.psn;
        self.with_reorder(|buffer| {
            buffer.advance(now, expected);
            buffer.peer_waits();
        });
    }
}
