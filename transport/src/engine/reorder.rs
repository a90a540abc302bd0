//! Frames of requests that came ahead of a gap: held, given up for others, and executed.

use crate::agenda::drains::{Fate, PostedReceives};
use crate::agenda::schedule::{Cost, OPERATION};
use crate::base::id::DeviceId;
use crate::base::inter_worker::InterWorkerPayload;
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use crate::engine::Engine;
use crate::protocol::roce;
use crate::verbs::completion::{NoSink, Sink};
use vrdma_wire::roce::{Packet, Parsed};

/// Most held packets that are executed in one turn of a QP.
pub(crate) const EXECUTED: usize = 64;

impl<R: Region> Engine<R> {
    /// Returns how many packets the QPs of a device hold ahead of gaps, and the memory that they
    /// take in bytes.
    pub fn held_early(&self, device: DeviceId) -> (u32, u64) {
        let held = self.core.schedule.reorder.of_device(device.0);
        (held.packets, held.bytes)
    }

    /// Returns the memory in bytes of responses that QPs of a device hold ahead of missing ones.
    pub fn held_responses(&self, device: DeviceId) -> u64 {
        self.core.schedule.early.of_device(device.0)
    }

    /// Holds the frame of a request that came ahead of a gap.
    ///
    /// If there is no room, the oldest buffer of the device, or of the device that holds most,
    /// gives way.
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
        while let Some(lack) = self.core.known(place, sink).roce().hold_early(now, psn, frame, is_last) {
            let victim = self.core.schedule.reorder.victim(place, lack);
            is_last = victim.is_none();
            let Some(victim) = victim else { continue };
            let no_sink = &mut NoSink;
            let mut borrowed = self.core.known(victim, no_sink);
            let dropped = borrowed.evict_early();
            borrowed.counters.drop_reorder += u64::from(dropped);
        }
    }

    /// Executes held packets of a QP until one is missing or has to wait, or many were executed.
    ///
    /// After `most` of cost no other one follows. Returns how many, and their cost.
    #[cold]
    pub(super) fn execute_early(
        &mut self,
        now: Instant,
        place: QpRef,
        most: Cost,
        sink: &mut impl Sink,
    ) -> (usize, Cost) {
        let (mut count, mut cost) = (0, 0);
        let before = self.core.known(place, sink).qp.responder.psn;
        if self.core.is_limited(place.device) {
            self.core.schedule.rates.see(now);
        }
        while count < EXECUTED && (count == 0 || cost < most) {
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

    /// Gives a QP a turn if it holds packets that may follow one that has just been handled.
    pub(super) fn look_at_early(&mut self, place: QpRef, sink: &mut impl Sink) {
        if let Some(mut borrowed) = self.core.borrow(place, sink)
            && borrowed.holds_early()
        {
            borrowed.make_answer_due();
        }
    }
}
