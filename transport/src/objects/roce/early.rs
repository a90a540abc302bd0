//! Responses that came ahead of a missing one. Pure state.
//!
//! They are held, and taken in their order once the missing one has come. Requests may have memory
//! in common, so what the later one reads has to be stored last.

mod save;

use crate::base::time::{Instant, NEVER};
use crate::objects::roce::psn::{HALF, ahead};
use crate::objects::roce::reorder::tolerance::{Lateness, Tolerance};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrdma_wire::num::{AethMsn, Psn};
use vrdma_wire::roce::Credits;

/// The responses of a QP that came ahead of a missing one.
#[derive(Debug)]
pub(crate) struct EarlyResponses {
    /// By their PSN.
    held: BTreeMap<u32, HeldResponse>,
    memory: Share,
    /// The PSN before which the peer has executed all requests.
    executed: Option<Psn>,
    gap: Gap,
    tolerance: Tolerance,
    /// PSN of the last gap that was asked for and filled, and how late its response came.
    suspect: Option<(Psn, Lateness)>,
    /// Whether the response of the gap before that one came again.
    was_late: bool,
    /// Whether a part of a READ was ever asked for again. Its response ends before the READ.
    has_parts: bool,
}

/// A response that is held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HeldResponse {
    /// The responder's MSN and credits, if the response has them.
    pub(crate) aeth: Option<(AethMsn, Credits)>,
    pub(crate) data: HeldData,
}

/// What a held response has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum HeldData {
    /// A part of the data of a READ. `last` is set if the packet says that there is no more.
    Read { last: bool, data: Box<[u8]> },
    /// The value that an atomic found.
    Atomic(u64),
}

/// Bytes of responses that the QPs of each device hold.
#[derive(Default)]
pub(crate) struct EarlyMemory {
    engine: Arc<AtomicU64>,
    /// By the device's index.
    devices: Vec<Arc<AtomicU64>>,
}

/// The part of a QP. It is given back when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Share {
    engine: Arc<AtomicU64>,
    device: Arc<AtomicU64>,
    bytes: u64,
}

/// Most bytes of responses that a QP, the QPs of a device, and those of an engine hold.
pub(crate) const MOST_BYTES: [u64; 3] = [1 << 20, 8 << 20, 64 << 20];

/// Bytes that a held response takes beside its data.
const EACH: u64 = 96;

/// What is known of the missing response.
#[derive(Copy, Clone, Debug)]
struct Gap {
    /// Responses that came ahead of it.
    extent: u16,
    /// When the first of them came.
    since: Instant,
    /// The PSN before which everything missing was asked for again.
    asked: Option<Psn>,
    /// Whether a part of a READ was asked for then.
    is_part: bool,
    /// When it counts as lost though few responses come ahead of it, or [`NEVER`]. That is looked
    /// at once.
    late_at: Instant,
}

const NO_GAP: Gap = Gap { extent: 0, since: Instant(0), asked: None, is_part: false, late_at: NEVER };

impl HeldResponse {
    /// Whether it is data of a READ, which is executed again when it is asked for again.
    pub(crate) fn is_of_read(&self) -> bool {
        matches!(&self.data, HeldData::Read { data, .. } if !data.is_empty())
    }

    fn cost(&self) -> u64 {
        match &self.data {
            HeldData::Read { data, .. } => EACH + data.len() as u64,
            HeldData::Atomic(_) => EACH,
        }
    }
}

impl EarlyMemory {
    /// Returns the share of a QP of a device, which is empty.
    pub(crate) fn share(&mut self, device: u32) -> Share {
        let index = device as usize;
        if index >= self.devices.len() {
            self.devices.resize_with(index + 1, Arc::default);
        }
        Share { engine: self.engine.clone(), device: self.devices[index].clone(), bytes: 0 }
    }

    /// Returns the number of bytes that the QPs of a device hold.
    pub(crate) fn of_device(&self, device: u32) -> u64 {
        self.devices.get(device as usize).map_or(0, |bytes| bytes.load(Ordering::Relaxed))
    }
}

impl Share {
    /// Takes this many bytes. Returns false if there is no room for them.
    fn take(&mut self, bytes: u64) -> bool {
        let after = [
            self.bytes + bytes,
            self.device.load(Ordering::Relaxed) + bytes,
            self.engine.load(Ordering::Relaxed) + bytes,
        ];
        let has_room = after.iter().zip(MOST_BYTES).all(|(after, most)| *after <= most);
        if has_room {
            self.add(bytes);
        }
        has_room
    }

    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.device.fetch_add(bytes, Ordering::Relaxed);
        self.engine.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give(&mut self, bytes: u64) {
        self.bytes -= bytes;
        self.device.fetch_sub(bytes, Ordering::Relaxed);
        self.engine.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give(self.bytes);
    }
}

impl EarlyResponses {
    pub(crate) fn new(now: Instant, memory: Share) -> EarlyResponses {
        EarlyResponses {
            held: BTreeMap::new(),
            memory,
            executed: None,
            gap: NO_GAP,
            tolerance: Tolerance::new(now),
            suspect: None,
            was_late: false,
            has_parts: false,
        }
    }

    /// Counts what is held in another share. A restored QP has none of its device before.
    pub(crate) fn move_to(&mut self, mut memory: Share) {
        memory.add(self.memory.bytes);
        self.memory = memory;
    }

    /// Returns the memory in bytes of what is held.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory.bytes
    }

    /// Whether nothing came ahead of the oldest PSN without an answer.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.executed.is_none()
    }

    /// Whether the response with a PSN has come.
    pub(crate) fn has(&self, psn: Psn) -> bool {
        self.held.contains_key(&psn.number())
    }

    /// Holds the response with a PSN, which has not come before. Returns false if there is no room
    /// for it.
    pub(crate) fn hold(&mut self, psn: Psn, response: HeldResponse) -> bool {
        let has_room = self.memory.take(response.cost());
        if has_room {
            self.held.insert(psn.number(), response);
        }
        has_room
    }

    /// Takes the response with a PSN, if it has come.
    pub(crate) fn take(&mut self, psn: Psn) -> Option<HeldResponse> {
        let response = self.held.remove(&psn.number())?;
        self.memory.give(response.cost());
        Some(response)
    }

    /// Forgets what is held, because all of it is asked for again.
    pub(crate) fn clear(&mut self) {
        self.held.clear();
        self.memory.give(self.memory.bytes);
        (self.executed, self.gap) = (None, NO_GAP);
    }

    /// Forgets what came from `first` on, because all of that is asked for again.
    pub(crate) fn forget_from(&mut self, first: Psn) {
        let memory = &mut self.memory;
        let is_before = |psn: Psn| ahead(psn, first) >= HALF;
        self.held.retain(|&psn, response| {
            let stays = is_before(Psn::truncate(psn));
            memory.give(if stays { 0 } else { response.cost() });
            stays
        });
        self.executed = self.executed.map(|end| if is_before(end) { end } else { first });
    }

    /// Whether the READ at `una` was asked for again, and has not been answered so far.
    pub(crate) fn waits(&self, una: Psn) -> bool {
        self.gap.asked.is_some_and(|end| (1..HALF).contains(&ahead(end, una)))
    }

    /// Whether the part of a READ that begins at `una` was asked for again, and has not come so
    /// far.
    pub(crate) fn waits_for_part(&self, una: Psn) -> bool {
        self.gap.is_part && self.waits(una)
    }

    /// Whether anything is known that the next response has to do with.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.gap.extent == 0 && self.gap.asked.is_none() && self.is_empty()
    }

    /// Records that the peer has executed all requests before `end`. `una` is the oldest PSN
    /// without an answer.
    pub(crate) fn executed_to(&mut self, una: Psn, end: Psn) {
        let further = |known: &Psn| ahead(end, una) > ahead(*known, una);
        if self.executed.as_ref().is_none_or(further) {
            self.executed = Some(end);
        }
    }

    /// Returns the PSN before which the peer has executed all requests, if it is beyond `una`.
    pub(crate) fn executed(&self, una: Psn) -> Option<Psn> {
        self.executed.filter(|&end| (1..HALF).contains(&ahead(end, una)))
    }

    /// Records that a response came ahead of the one with PSN `una`. Returns whether that counts as
    /// lost.
    ///
    /// If it was asked for again, its answer may still come.
    pub(crate) fn came_ahead(&mut self, now: Instant, una: Psn) -> bool {
        self.tolerance.refresh(now);
        if self.gap.extent == 0 {
            self.begins(now, una);
        }
        self.gap.extent = self.gap.extent.saturating_add(1);
        self.is_late(now)
    }

    /// Begins to wait for the response with PSN `una`, which may only be late.
    fn begins(&mut self, now: Instant, una: Psn) {
        self.gap.since = now;
        self.gap.late_at = if self.waits(una) { NEVER } else { now + self.tolerance.wait() };
    }

    /// Returns when to look whether the oldest response counts as lost, or [`NEVER`].
    #[inline]
    pub(crate) fn late_at(&self) -> Instant {
        self.gap.late_at
    }

    /// Looks later whether the response with PSN `una` counts as lost, unless it was asked for.
    pub(crate) fn look_at(&mut self, at: Instant, una: Psn) {
        if !self.waits(una) {
            self.gap.late_at = at;
        }
    }

    /// Ends the wait for the response with PSN `una`, if its time is over. Returns whether to ask
    /// for it again.
    pub(crate) fn is_too_late(&mut self, now: Instant, una: Psn) -> bool {
        if self.gap.late_at > now {
            return false;
        }
        self.gap.late_at = NEVER;
        self.gap.extent > 0 && self.is_lost(now, una)
    }

    /// Whether the oldest response is later than others were.
    fn is_late(&self, now: Instant) -> bool {
        let Gap { extent, since, .. } = self.gap;
        extent > self.tolerance.packets().into() || now >= since + self.tolerance.wait()
    }

    /// Whether the response with PSN `una` counts as lost, and was not asked for again.
    fn is_lost(&self, now: Instant, una: Psn) -> bool {
        !self.waits(una) && self.is_late(now)
    }

    /// Returns how many responses from `una` on are missing until one that has come, or `most`.
    pub(crate) fn missing(&self, una: Psn, most: u32) -> u32 {
        // Behind the last PSN comes the first one.
        let next = self.held.range(una.number()..).chain(&self.held).next();
        next.map_or(most, |(&psn, _)| ahead(Psn::truncate(psn), una).min(most))
    }

    /// Records that all that is missing before `end` was asked for again. `is_part` tells that the
    /// READ does not end there.
    pub(crate) fn asked(&mut self, end: Psn, is_part: bool) {
        (self.gap.asked, self.gap.is_part, self.gap.late_at) = (Some(end), is_part, NEVER);
        self.has_parts |= is_part;
    }

    /// Whether a response may end before its READ.
    pub(crate) fn has_parts(&self) -> bool {
        self.has_parts
    }

    /// Records that the response with PSN `una` has come from the peer.
    ///
    /// If nothing asked for it, the network has reordered it.
    pub(crate) fn came(&mut self, now: Instant, una: Psn) {
        if self.gap.extent == 0 {
            return;
        }
        let late = Lateness::new(self.gap.extent, self.gap.since, now);
        match late {
            Some(late) if self.waits(una) => self.suspect = Some((una, late)),
            Some(late) => self.tolerance.learn(late),
            None => {}
        }
    }

    /// Records that `una` is the oldest PSN without an answer now. Returns whether to ask for it
    /// again, because later responses are there.
    pub(crate) fn went_on(&mut self, now: Instant, una: Psn) -> bool {
        self.executed = self.executed(una);
        if !self.waits(una) {
            self.gap.asked = None;
        }
        // All that is there came ahead of the next gap.
        let ahead_of_it = self.held.len() + usize::from(self.executed.is_some());
        self.gap.extent = ahead_of_it.min(u16::MAX.into()) as u16;
        self.gap.late_at = NEVER;
        if ahead_of_it == 0 {
            return false;
        }
        self.begins(now, una);
        self.is_lost(now, una)
    }

    /// Records an answered response that came again.
    pub(crate) fn repeated(&mut self, psn: Psn) {
        if let Some((of, late)) = self.suspect.take_if(|(of, _)| ahead(psn, *of) < HALF) {
            // It was late, and not lost. A single one may have been asked for by a probe, too.
            let is_late = of == psn;
            if is_late && self.was_late {
                self.tolerance.learn(late);
            }
            self.was_late = is_late;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psn(number: u32) -> Psn {
        Psn::truncate(number)
    }

    fn new() -> EarlyResponses {
        EarlyResponses::new(Instant(0), Share::default())
    }

    fn response(length: usize) -> HeldResponse {
        let data = HeldData::Read { last: false, data: vec![1; length].into() };
        HeldResponse { aeth: None, data }
    }

    #[test]
    fn a_missing_response_counts_as_lost_after_its_time_and_that_is_looked_at_once() {
        let mut early = new();
        let late = Lateness::new(10, Instant(0), Instant(100_000)).unwrap();
        early.tolerance.learn(late);
        let (una, at) = (psn(5), Instant(1000 + 150_000));
        assert_eq!(early.late_at(), NEVER);
        assert!(!early.came_ahead(Instant(1000), una) && !early.came_ahead(Instant(2000), una));
        assert_eq!(early.late_at(), at, "it counts from the first one");
        assert!(!early.is_too_late(Instant(at.0 - 1), una));
        assert!(early.is_too_late(at, una));
        assert_eq!(early.late_at(), NEVER);
        assert!(!early.is_too_late(Instant(at.0 + 1), una));
        // Nobody waits for what was asked for.
        early.clear();
        assert!(!early.came_ahead(Instant(1000), una));
        early.asked(psn(6), true);
        assert_eq!(early.late_at(), NEVER);
        assert!(!early.came_ahead(Instant(3000), una));
        assert_eq!(early.late_at(), NEVER);
        // The next gap has a time of its own.
        assert!(early.hold(psn(8), response(1)));
        assert!(!early.went_on(Instant(4000), psn(6)));
        assert_eq!(early.late_at(), Instant(4000 + 150_000));
        early.take(psn(8));
        assert!(!early.went_on(Instant(5000), psn(9)));
        assert_eq!(early.late_at(), NEVER);
    }

    #[test]
    fn a_queue_pair_a_device_and_an_engine_hold_no_more_than_they_may_and_give_it_back() {
        let mut memory = EarlyMemory::default();
        let length = 4096;
        let fill = |early: &mut EarlyResponses| {
            (0..1 << 20).take_while(|&n| early.hold(psn(n), response(length))).count() as u64
        };
        let each = MOST_BYTES[0] / (EACH + length as u64);
        let mut all = Vec::new();
        for device in 0..10 {
            for qp in 0..10 {
                let mut early = EarlyResponses::new(Instant(0), memory.share(device));
                let count = fill(&mut early);
                assert_eq!(count == each, device < 8 && qp < 8, "{device} {qp}: {count}");
                all.push(early);
            }
            assert!(memory.of_device(device) <= MOST_BYTES[1]);
        }
        assert!(memory.engine.load(Ordering::Relaxed) <= MOST_BYTES[2]);
        let mut one = all.swap_remove(0);
        assert!((0..10).all(|n| one.take(psn(n)) == Some(response(length))));
        assert_eq!(one.take(psn(3)), None);
        one.move_to(memory.share(11));
        assert_eq!(memory.of_device(11), (each - 10) * (EACH + length as u64));
        drop((one, all));
        assert!((0..12).all(|device| memory.of_device(device) == 0));
        assert_eq!(memory.engine.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_furthest_acknowledge_is_kept_until_all_before_it_is_answered() {
        let mut early = new();
        let una = psn(0xff_fffe);
        early.executed_to(una, una.add(5));
        early.executed_to(una, una.add(3));
        assert_eq!(early.executed(una), Some(psn(3)));
        assert!(!early.is_empty());
        early.went_on(Instant(0), psn(2));
        assert_eq!(early.executed(psn(2)), Some(psn(3)));
        early.went_on(Instant(0), psn(3));
        assert!(early.is_empty());
    }

    #[test]
    fn what_is_missing_ends_at_the_next_one_that_has_come() {
        let mut early = new();
        let una = psn(0xff_fff0);
        assert_eq!(early.missing(una, 5), 5);
        assert!(early.hold(psn(3), response(1)) && early.hold(psn(7), response(1)));
        assert_eq!((early.missing(una, 100), early.missing(una, 5)), (19, 5));
        assert!(early.hold(psn(0xff_fff4), response(1)));
        assert_eq!(early.missing(una, 100), 4);
    }

    #[test]
    fn what_was_asked_for_is_not_asked_for_again_and_a_further_gap_is() {
        let mut early = new();
        assert!(early.hold(psn(2), response(1)));
        assert!(early.came_ahead(Instant(0), psn(1)), "nothing is known to be late");
        early.asked(psn(5), false);
        assert!(early.hold(psn(3), response(1)) && early.hold(psn(8), response(1)));
        assert!(early.came_ahead(Instant(1), psn(1)) && early.waits(psn(1)), "it may be lost again");
        early.came(Instant(2), psn(1));
        assert!(early.take(psn(2)).is_some() && early.take(psn(3)).is_some());
        assert!(!early.went_on(Instant(2), psn(4)), "it was asked for");
        assert!(early.went_on(Instant(2), psn(5)), "it was not, and 8 is there");
        assert!(early.take(psn(8)).is_some());
        assert!(!early.went_on(Instant(2), psn(9)), "nothing is ahead");
    }

    #[test]
    fn responses_that_are_late_teach_how_long_to_wait() {
        let mut early = new();
        assert!(early.hold(psn(2), response(1)));
        assert!(early.came_ahead(Instant(0), psn(1)));
        early.asked(psn(2), false);
        early.came(Instant(9000), psn(1));
        assert!(early.take(psn(2)).is_some() && !early.went_on(Instant(9000), psn(3)));
        early.repeated(psn(2));
        assert!(early.hold(psn(4), response(1)));
        assert!(early.came_ahead(Instant(9000), psn(3)), "2 came once");
        early.asked(psn(4), false);
        early.came(Instant(9000), psn(3));
        assert!(early.take(psn(4)).is_some() && !early.went_on(Instant(9000), psn(5)));
        early.repeated(psn(3));
        assert!(
            early.hold(psn(6), response(1)) && early.came_ahead(Instant(9000), psn(5)),
            "once is no proof"
        );
        early.asked(psn(6), false);
        early.came(Instant(9000), psn(5));
        assert!(early.take(psn(6)).is_some() && !early.went_on(Instant(9000), psn(7)));
        early.repeated(psn(5));
        for more in 8..10 {
            assert!(early.hold(psn(more), response(1)));
            assert!(!early.came_ahead(Instant(9000), psn(7)), "one that was overtaken by one came late");
        }
        assert!(early.hold(psn(10), response(1)));
        assert!(early.came_ahead(Instant(9000), psn(7)));
        assert!(early.came_ahead(Instant(9000 + 20_000), psn(7)), "time counts, too");
    }
}
