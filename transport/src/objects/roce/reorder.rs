//! The reorder buffer: copies of the peer's packets that came ahead of a gap, and what is known of
//! that gap. Pure state, without I/O.
//!
//! A *gap* is at the PSN that the responder expects, while packets ahead of it came. The buffer
//! belongs to one QP. It exists since the QP's first gap, and is almost empty between two gaps.

mod save;
pub(crate) mod tolerance;

use crate::base::time::{Instant, NEVER};
use crate::objects::roce::psn::{HALF, ahead};
use core::mem;
use tolerance::{Lateness, Tolerance};
use vrdma_wire::num::Psn;

/// PSNs from the expected one on whose packets may be held. The number of PSNs is a multiple of it.
pub(crate) const REORDER_WINDOW: u32 = 512;
/// Most bytes that a QP may hold, with their overhead.
pub(crate) const REORDER_BYTES: u64 = 1 << 20;
/// Bytes of the ring of slots, with the allocator's overhead.
const RING: u64 = REORDER_WINDOW as u64 * size_of::<Slot>() as u64 + 32;
/// Bytes of a held packet beside its frame: the allocator rounds up, and needs a header.
const OVERHEAD: u64 = 32;
/// Duplicates after a NAK that show that the peer sent everything again.
const SENDS_ALL: u8 = 3;

/// A place for a frame.
type Slot = Option<Box<[u8]>>;

/// What is held: by a QP, or by a device.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Held {
    pub(crate) packets: u32,
    /// Bytes of memory, with their overhead.
    pub(crate) bytes: u64,
}

/// What became of a packet ahead of a gap.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Early {
    /// It is held.
    New,
    /// A packet with this PSN is held already.
    Known,
    /// The QP holds as much as it may, or there is no room.
    Dropped,
    /// It is beyond the window, or longer than any packet. It is dropped.
    Unfit,
}

/// What is known of the gap at the expected PSN.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Gap {
    /// Packets that came ahead since the gap is known. Without a gap it is 0.
    extent: u16,
    /// When the first of them came.
    since: Instant,
    /// Whether a NAK was made due for it.
    asked: bool,
    /// The latest packet of what may be a repetition by the peer, for which there was no NAK.
    round: Option<Psn>,
    /// Packets of that.
    again: u16,
    /// When a NAK is due at the latest, or [`NEVER`].
    nak_at: Instant,
}

const NO_GAP: Gap = Gap { extent: 0, since: Instant(0), asked: false, round: None, again: 0, nak_at: NEVER };

/// The reorder buffer of a QP.
#[derive(Debug)]
pub(crate) struct ReorderBuffer {
    /// The expected PSN, when it was last looked at.
    base: Psn,
    /// Slot `n` is for PSNs that are `n` modulo [`REORDER_WINDOW`]. Empty if nothing is held.
    slots: Box<[Slot]>,
    held: Held,
    /// Number of its place in the line of its device, while anything is held. Otherwise 0.
    pub(crate) place: u64,
    gap: Gap,
    /// How far the peer has come since it last began to repeat. If nothing of that is ahead, it is
    /// the PSN before the expected one.
    reached: Psn,
    tolerance: Tolerance,
    /// The last gap for which there was a NAK, and how late its packet came.
    ///
    /// If that packet comes again, the first one was not lost.
    suspect: Option<(Psn, Lateness)>,
    /// Duplicates since the last NAK.
    repeats: u8,
    /// Whether the peer sends everything again (go-back-N), because of a NAK or an RNR NAK.
    goes_back: bool,
}

/// Returns the PSN before this one.
fn before(psn: Psn) -> Psn {
    psn.add(u32::MAX)
}

impl ReorderBuffer {
    /// Makes an empty buffer. `goes_back` tells that the peer is about to send everything again.
    pub(crate) fn new(expected: Psn, now: Instant, goes_back: bool) -> ReorderBuffer {
        ReorderBuffer {
            base: expected,
            slots: Box::default(),
            held: Held::default(),
            place: 0,
            gap: NO_GAP,
            reached: before(expected),
            tolerance: Tolerance::new(now),
            suspect: None,
            repeats: 0,
            goes_back,
        }
    }

    /// Returns what is held.
    #[inline]
    pub(crate) fn held(&self) -> Held {
        self.held
    }

    /// Returns the bytes that a frame of this length takes, with the ring if there is none.
    pub(crate) fn cost(&self, frame: usize) -> u64 {
        let ring = if self.slots.is_empty() { RING } else { 0 };
        ring + frame as u64 + OVERHEAD
    }

    /// Whether the QP may hold a frame of this length.
    pub(crate) fn has_room(&self, frame: usize) -> bool {
        self.held.bytes + self.cost(frame) <= REORDER_BYTES
    }

    fn slot(&mut self, psn: Psn) -> &mut Slot {
        &mut self.slots[(psn.number() % REORDER_WINDOW) as usize]
    }

    /// Whether a packet of this PSN is held.
    pub(crate) fn is_held(&self, psn: Psn) -> bool {
        let slot = self.slots.get((psn.number() % REORDER_WINDOW) as usize);
        ahead(psn, self.base) < REORDER_WINDOW && slot.is_some_and(Option::is_some)
    }

    /// Holds a copy of the frame of a PSN that is in the window and not held.
    pub(crate) fn hold(&mut self, psn: Psn, frame: &[u8]) {
        self.held.bytes += self.cost(frame.len());
        self.held.packets += 1;
        if self.slots.is_empty() {
            self.slots = (0..REORDER_WINDOW).map(|_| None).collect();
        }
        *self.slot(psn) = Some(frame.into());
    }

    /// Takes the frame of a PSN, if it is held.
    fn take(&mut self, psn: Psn) -> Slot {
        if self.held.packets == 0 {
            return None;
        }
        let frame = self.slot(psn).take()?;
        self.held.packets -= 1;
        self.held.bytes -= frame.len() as u64 + OVERHEAD;
        if self.held.packets == 0 {
            (self.slots, self.held.bytes) = (Box::default(), 0);
        }
        Some(frame)
    }

    /// Drops all that is held, and forgets the gap.
    pub(crate) fn clear(&mut self) {
        self.evict();
        (self.gap, self.reached) = (NO_GAP, before(self.base));
    }

    /// Drops all that is held, and returns how many packets these were. The gap is still there.
    pub(crate) fn evict(&mut self) -> u32 {
        let Held { packets, .. } = mem::take(&mut self.held);
        self.slots = Box::default();
        packets
    }

    /// Records which PSN is expected now. Frames before it are dropped.
    ///
    /// A gap may be of several packets. It is the same one until a held packet follows.
    pub(crate) fn advance(&mut self, now: Instant, expected: Psn) {
        let passed = ahead(expected, self.base);
        if passed == 0 {
            return;
        }
        for n in 0..passed.min(REORDER_WINDOW) {
            if self.held.packets == 0 {
                break;
            }
            self.take(self.base.add(n));
        }
        if self.gap.extent > 0 {
            let late = Lateness::new(self.gap.extent, self.gap.since, now);
            match self.gap.asked {
                true => self.suspect = late.map(|late| (self.base, late)),
                false => {
                    late.into_iter().for_each(|late| self.tolerance.learn(late));
                    // Without a NAK for this gap, the peer sends no packet of the next one again.
                    self.goes_back = false;
                }
            }
        }
        self.base = expected;
        if ahead(self.reached, expected) >= HALF {
            self.reached = before(expected);
        }
        if self.held.packets == 0 || self.is_held(expected) {
            self.gap = NO_GAP;
        } else if self.gap.asked {
            // One NAK asks for the whole gap. A held packet that comes again shows another loss.
            self.gap = Gap { round: None, again: 0, nak_at: NEVER, ..self.gap };
        }
    }

    /// Takes the frame of the expected PSN, if it is held.
    pub(crate) fn next(&mut self, now: Instant, expected: Psn) -> Option<Box<[u8]>> {
        self.advance(now, expected);
        self.take(expected)
    }

    /// Takes note of the expected packet, whose PSN is this, before another one is expected.
    ///
    /// `is_unsent` tells that a NAK for it has not left. The peer will never see that NAK. A packet
    /// that may be a probe does not show how late packets come, because the peer sent it again.
    pub(crate) fn came(&mut self, psn: Psn, is_unsent: bool, may_be_probe: bool) {
        if self.gap.extent == 0 || psn != self.base {
            return;
        }
        self.gap.asked &= !is_unsent;
        if may_be_probe {
            self.gap.since = Instant(0);
        }
    }

    /// Records that the peer has come to a PSN. Returns whether that is farther than before.
    fn reach(&mut self, psn: Psn) -> bool {
        let is_farther = (1..HALF).contains(&ahead(psn, self.reached));
        if is_farther {
            self.reached = psn;
        }
        is_farther
    }

    /// Records a packet that came ahead of the expected PSN. Returns whether a NAK is due.
    pub(crate) fn came_ahead(&mut self, now: Instant, psn: Psn, what: Early) -> bool {
        // Packets beyond the window say nothing about those within it.
        let goes_on = what == Early::Unfit || self.reach(psn);
        if self.is_held(self.base) {
            // There is no gap: what is held is about to be executed.
            return false;
        }
        if what == Early::Known {
            self.repeats = self.repeats.saturating_add(1);
        }
        if self.gap.extent == 0 {
            self.tolerance.refresh(now);
            self.gap.since = now;
            if what != Early::Unfit {
                self.reached = psn;
            }
        }
        if what != Early::Known || !self.gap.asked {
            self.gap.extent = self.gap.extent.saturating_add(1);
        }
        if !self.gap.asked {
            return self.decide(now);
        }
        if goes_on {
            // What came again before this was doubled by the network.
            self.gap = Gap { round: None, again: 0, nak_at: NEVER, ..self.gap };
            return false;
        }
        // The peer was here before. If packets follow in order, it sends everything again, and the
        // gap is still there. There is one NAK for each repetition.
        let rises = self.gap.round.is_some_and(|latest| (1..HALF).contains(&ahead(psn, latest)));
        (self.gap.round, self.gap.again) = (Some(psn), self.gap.again.saturating_add(1));
        let is_due = rises && self.gap.again > self.tolerance.packets().into();
        if is_due {
            self.asked();
        } else if what == Early::Known && self.gap.nak_at == NEVER {
            self.gap.nak_at = now + self.tolerance.wait();
        }
        is_due
    }

    /// Records that the expected packet is missing, and is not waiting elsewhere. Returns whether a
    /// NAK for it is due.
    ///
    /// If the gap is a further one, behind held packets that were executed, everything held came
    /// ahead of it. If nothing is held, the peer may still have come farther: what it sent was
    /// dropped.
    ///
    /// But a peer that sends everything again sends the packet of this gap too. A NAK would let it
    /// begin once more, so it comes only if a later packet comes before that one.
    pub(crate) fn stopped(&mut self, now: Instant) -> bool {
        let is_missing = self.held.packets > 0 || ahead(self.reached, self.base) < HALF;
        if !is_missing || self.gap.asked {
            return false;
        }
        if self.gap.extent == 0 {
            if self.goes_back {
                return false;
            }
            self.tolerance.refresh(now);
            self.gap = Gap { extent: self.held.packets.max(1) as u16, since: now, ..NO_GAP };
        }
        self.decide(now)
    }

    /// Decides whether the NAK for a gap, for which there was none, is due.
    fn decide(&mut self, now: Instant) -> bool {
        if self.gap.extent > u16::from(self.tolerance.packets()) {
            self.asked();
            return true;
        }
        if self.gap.nak_at == NEVER {
            self.gap.nak_at = now + self.tolerance.wait();
        }
        false
    }

    /// Records that a NAK is due.
    fn asked(&mut self) {
        self.goes_back = self.repeats >= SENDS_ALL;
        self.repeats = 0;
        if let Some(latest) = self.gap.round {
            self.reached = latest;
        }
        self.gap = Gap { asked: true, round: None, again: 0, nak_at: NEVER, ..self.gap };
    }

    /// Returns when a NAK for the gap is due at the latest.
    #[inline]
    pub(crate) fn nak_at(&self) -> Instant {
        self.gap.nak_at
    }

    /// Takes the delayed NAK for the gap at the expected PSN, if it is due now.
    pub(crate) fn take_delayed_nak(&mut self, now: Instant, expected: Psn) -> bool {
        self.advance(now, expected);
        let is_due = self.gap.nak_at <= now && !self.is_held(expected);
        if is_due {
            self.asked();
        }
        is_due
    }

    /// Takes note that the expected packet has come, and waits for a receive.
    pub(crate) fn has_come(&mut self) {
        self.gap.nak_at = NEVER;
    }

    /// Records a duplicate of an executed packet.
    pub(crate) fn repeated(&mut self, psn: Psn, may_be_probe: bool) {
        self.repeats = self.repeats.saturating_add(1);
        // If a later packet is the first to come again, the peer had already sent this one again.
        if let Some((of, late)) = self.suspect.take_if(|(of, _)| ahead(psn, *of) < HALF)
            && of == psn
            && !may_be_probe
        {
            self.tolerance.learn(late);
        }
    }

    /// Records that the peer was told to wait for a receive. It sends everything again then.
    pub(crate) fn peer_waits(&mut self) {
        (self.gap, self.goes_back, self.repeats) = (NO_GAP, true, SENDS_ALL);
    }
}

#[cfg(test)]
mod tests;
