//! Frames of requests that came ahead of a gap: held, given up for others, and executed.

use crate::agenda::drains::{Fate, PostedReceives};
use crate::agenda::schedule::{Cost, OPERATION};
use crate::base::id::DeviceId;
use crate::base::inter_worker::InterWorkerPayload;
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use crate::engine::Engine;
use crate::objects::qp::Direction;
use crate::protocol::roce;
use crate::verbs::completion::{NoSink, Sink};
use vrdma_wire::roce::{Packet, Parsed};

/// Most held packets that are executed in one turn of a QP.
pub(crate) const EXECUTED: usize = 64;
/// Most held packets that are executed when another one comes. There are fewer of them then.
pub(crate) const EXECUTED_BEFORE: usize = 2;

impl<R: Region> Engine<R> {
    /// Returns how many packets the QPs of a device hold ahead of gaps, and the memory that they
    /// take in bytes.
    pub fn held_early(&self, device: DeviceId) -> (u32, u64) {
        let held = self.core.schedule.reorder.of_device(device.0);
        (held.packets, held.bytes)
    }

    /// Holds the frame of a request that came ahead of a gap.
    ///
    /// If the expected packet is held, some are executed before. The QP's turn may be far, because
    /// responses wait for a rate, or the uplink is full. If there is no room, the oldest buffer of
    /// the device, or of the device that holds most, gives way.
    #[cold]
    pub(super) fn hold_early(
        &mut self,
        now: Instant,
        place: QpRef,
        parsed: &Parsed<'_>,
        frame: &[u8],
        sink: &mut impl Sink,
    ) {
        // Bytes behind the packet are not held.
        let Parsed { packet, payload, .. } = parsed;
        let frame = &frame[..packet.frame_len(payload.len())];
        let (psn, mut is_last) = (packet.bth.psn, false);
        let borrowed = self.core.known(place, sink);
        if borrowed.qp.held == 0 && borrowed.roce().is_ready() {
            self.execute_early(now, place, (EXECUTED_BEFORE, Cost::MAX), sink);
            self.core.known(place, sink).roce().answer_at_once();
        }
        while let Some(lack) = self.core.known(place, sink).roce().hold_early(now, psn, frame, is_last) {
            let victim = self.core.schedule.reorder.victim(place, lack);
            is_last = victim.is_none();
            let Some(victim) = victim else { continue };
            let no_sink = &mut NoSink;
            let dropped = self.core.known(victim, no_sink).roce().evict_early(now);
            self.core.known(victim, no_sink).counters.drop_reorder += u64::from(dropped);
        }
    }

    /// Executes held packets of a QP until one is missing or has to wait, or many were executed.
    ///
    /// These are at most `packets`. After `most` of cost no other one follows. Returns how many,
    /// and their cost.
    #[cold]
    pub(super) fn execute_early(
        &mut self,
        now: Instant,
        place: QpRef,
        (packets, most): (usize, Cost),
        sink: &mut impl Sink,
    ) -> (usize, Cost) {
        let (mut count, mut cost) = (0, 0);
        let before = self.core.known(place, sink).qp.responder.psn;
        if self.core.is_limited(place.device) {
            self.core.schedule.rates.see(now);
        }
        while count < packets && (count == 0 || cost < most) {
            let borrowed = self.core.known(place, sink);
            // An earlier packet waits until the caller has drained the posts.
            if borrowed.qp.held > 0 {
                break;
            }
            let service = borrowed.qp.service();
            let Some(frame) = borrowed.roce().next_early(now) else { break };
            count += 1;
            cost += frame.len() as Cost + OPERATION;
            // Its ICRC was checked too. For a frame from a record, both were checked again.
            let parsed = Packet::parse(&frame).expect("a frame that is held was parsed when it came");
            let Some(body) = roce::body_for(service, &parsed.packet.body) else { continue };
            let data = (None, InterWorkerPayload::Bytes(parsed.payload));
            let borrowed = self.core.known(place, sink);
            let posted = PostedReceives::MayComeYet;
            match roce::receive(borrowed, now, &parsed.packet, data, body, posted) {
                Fate::Done => {}
                Fate::NeedsDrain => self.core.hold(place, &frame),
                Fate::Early => unreachable!("it is the expected packet"),
            }
        }
        self.core.known(place, sink).roce().went_on(now, before);
        (count, cost)
    }

    /// Executes held packets of a QP whose answers have to wait. They need no room at the outlet.
    ///
    /// Returns how many.
    #[cold]
    pub(super) fn execute_meanwhile(
        &mut self,
        now: Instant,
        (place, direction): (QpRef, Direction),
        sink: &mut impl Sink,
    ) -> usize {
        let Some(borrowed) = self.core.borrow(place, sink) else { return 0 };
        let is_due = direction == Direction::Answers && borrowed.qp.answer_due && !borrowed.suspended;
        if !is_due || !borrowed.holds_early() {
            return 0;
        }
        let most = borrowed.schedule.wire.credit(place.device) / 2;
        let (count, cost) = self.execute_early(now, place, (EXECUTED, most), sink);
        self.core.schedule.wire.spend(place.device, direction, cost);
        let mut qp = self.core.known(place, sink).roce();
        if qp.is_ready() && qp.qp.held == 0 {
            qp.answer_at_once();
        }
        count
    }

    /// Gives a QP a turn if it holds packets that may follow one that has just been handled.
    pub(super) fn look_at_early(&mut self, place: QpRef, sink: &mut impl Sink) {
        if let Some(mut borrowed) = self.core.borrow(place, sink)
            && borrowed.holds_early()
        {
            borrowed.make_answer_due();
        }
    }
}
