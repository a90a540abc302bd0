//! Responses that came ahead of a missing one. Pure state.
//!
//! Their data are in the memory of their requests already. A READ's memory has no defined content
//! until the READ is complete (IBTA 10.8.3.3), so its parts may come in any order. What is kept is
//! which responses have come, and up to where the peer has acknowledged.

mod save;

use crate::base::time::Instant;
use crate::objects::roce::psn::{HALF, ahead};
use crate::objects::roce::reorder::tolerance::{Lateness, Tolerance};
use vrdma_wire::num::Psn;

/// The responses of a QP that came ahead of a missing one.
#[derive(Debug)]
pub(crate) struct EarlyResponses {
    /// A bit for each PSN whose response has come, at the PSN modulo [`EARLY_WINDOW`].
    bits: Box<[u64; WORDS]>,
    /// Number of bits that are set.
    count: u32,
    /// The PSN before which the peer has executed all requests.
    executed: Option<Psn>,
    gap: Gap,
    tolerance: Tolerance,
    /// PSN of the last gap that was asked for and filled, and how late its response came.
    suspect: Option<(Psn, Lateness)>,
    /// Whether a part of a READ was ever asked for again. Its response ends before the READ.
    has_parts: bool,
}

/// What is known of the missing response.
#[derive(Copy, Clone, Debug)]
struct Gap {
    /// Responses that came ahead of it.
    extent: u16,
    /// When the first of them came.
    since: Instant,
    /// The PSN before which everything missing was asked for again.
    asked: Option<Psn>,
}

const NO_GAP: Gap = Gap { extent: 0, since: Instant(0), asked: None };

/// PSNs from the oldest without an answer on whose responses are kept. It divides the number of
/// PSNs.
pub(crate) const EARLY_WINDOW: u32 = 4096;

const WORDS: usize = (EARLY_WINDOW / 64) as usize;

/// Returns the word and the bit of a PSN.
fn place(psn: Psn) -> (usize, u64) {
    let index = psn.number() % EARLY_WINDOW;
    ((index / 64) as usize, 1 << (index % 64))
}

impl EarlyResponses {
    pub(crate) fn new(now: Instant) -> EarlyResponses {
        EarlyResponses {
            bits: Box::new([0; WORDS]),
            count: 0,
            executed: None,
            gap: NO_GAP,
            tolerance: Tolerance::new(now),
            suspect: None,
            has_parts: false,
        }
    }

    /// Whether nothing came ahead of the oldest PSN without an answer.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0 && self.executed.is_none()
    }

    /// Whether the response with a PSN has come.
    pub(crate) fn has(&self, psn: Psn) -> bool {
        let (word, bit) = place(psn);
        self.bits[word] & bit != 0
    }

    /// Records that the response with a PSN has come. It is within [`EARLY_WINDOW`].
    pub(crate) fn put(&mut self, psn: Psn) {
        let (word, bit) = place(psn);
        self.count += u32::from(self.bits[word] & bit == 0);
        self.bits[word] |= bit;
    }

    /// Takes the response with a PSN, if it has come.
    pub(crate) fn take(&mut self, psn: Psn) -> bool {
        let (word, bit) = place(psn);
        let has = self.bits[word] & bit != 0;
        self.count -= u32::from(has);
        self.bits[word] &= !bit;
        has
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

    /// Records that a response came ahead of the one with PSN `una`. Returns whether to ask for
    /// that again.
    pub(crate) fn came_ahead(&mut self, now: Instant, una: Psn) -> bool {
        self.tolerance.refresh(now);
        if self.gap.extent == 0 {
            self.gap.since = now;
        }
        self.gap.extent = self.gap.extent.saturating_add(1);
        self.is_lost(now, una)
    }

    /// Whether the response with PSN `una` counts as lost, and was not asked for again.
    fn is_lost(&self, now: Instant, una: Psn) -> bool {
        let Gap { extent, since, asked } = self.gap;
        let is_asked = asked.is_some_and(|end| (1..HALF).contains(&ahead(end, una)));
        let is_late = extent > self.tolerance.packets().into() || now >= since + self.tolerance.wait();
        !is_asked && is_late
    }

    /// Returns how many responses from `una` on are missing until one that has come, or `most`.
    pub(crate) fn missing(&self, una: Psn, most: u32) -> u32 {
        (1..most).find(|&more| self.has(una.add(more))).unwrap_or(most)
    }

    /// Records that all that is missing before `end` was asked for again. `is_part` tells that the
    /// READ does not end there.
    pub(crate) fn asked(&mut self, end: Psn, is_part: bool) {
        self.gap.asked = Some(end);
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
        let is_asked = self.gap.asked.is_some_and(|end| (1..HALF).contains(&ahead(end, una)));
        match late {
            Some(late) if is_asked => self.suspect = Some((una, late)),
            Some(late) => self.tolerance.learn(late),
            None => {}
        }
    }

    /// Records that `una` is the oldest PSN without an answer now. Returns whether to ask for it
    /// again, because later responses are there.
    pub(crate) fn went_on(&mut self, now: Instant, una: Psn) -> bool {
        self.executed = self.executed(una);
        if self.gap.asked.is_some_and(|end| !(1..HALF).contains(&ahead(end, una))) {
            self.gap.asked = None;
        }
        // All that is there came ahead of the next gap.
        let ahead_of_it = self.count + u32::from(self.executed.is_some());
        self.gap.extent = ahead_of_it.min(u16::MAX.into()) as u16;
        self.gap.since = now;
        ahead_of_it > 0 && self.is_lost(now, una)
    }

    /// Records an answered response that came again.
    pub(crate) fn repeated(&mut self, psn: Psn) {
        // It was late, and not lost.
        if let Some((_, late)) = self.suspect.take_if(|(of, _)| *of == psn) {
            self.tolerance.learn(late);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psn(number: u32) -> Psn {
        Psn::truncate(number)
    }

    #[test]
    fn responses_are_kept_by_their_psn_across_its_wrap() {
        let mut early = EarlyResponses::new(Instant(0));
        let una = psn(0xff_fff0);
        let all: Vec<Psn> = (1..EARLY_WINDOW).step_by(7).map(|more| una.add(more)).collect();
        all.iter().for_each(|&at| early.put(at));
        all.iter().for_each(|&at| early.put(at));
        assert_eq!(early.count as usize, all.len());
        for more in 1..EARLY_WINDOW {
            let at = una.add(more);
            assert_eq!(early.has(at), all.contains(&at));
            assert_eq!(early.take(at), all.contains(&at));
        }
        assert!(early.is_empty());
    }

    #[test]
    fn the_furthest_acknowledge_is_kept_until_all_before_it_is_answered() {
        let mut early = EarlyResponses::new(Instant(0));
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
    fn what_was_asked_for_is_not_asked_for_again_and_a_further_gap_is() {
        let mut early = EarlyResponses::new(Instant(0));
        early.put(psn(2));
        assert!(early.came_ahead(Instant(0), psn(1)), "nothing is known to be late");
        early.asked(psn(5), false);
        early.put(psn(3));
        assert!(!early.came_ahead(Instant(1), psn(1)));
        early.put(psn(8));
        assert!(!early.came_ahead(Instant(1), psn(1)));
        early.came(Instant(2), psn(1));
        assert!(early.take(psn(2)) && early.take(psn(3)));
        assert!(!early.went_on(Instant(2), psn(4)), "it was asked for");
        assert!(early.went_on(Instant(2), psn(5)), "it was not, and 8 is there");
        assert!(early.take(psn(8)));
        assert!(!early.went_on(Instant(2), psn(9)), "nothing is ahead");
    }

    #[test]
    fn responses_that_are_late_teach_how_long_to_wait() {
        let mut early = EarlyResponses::new(Instant(0));
        early.put(psn(2));
        assert!(early.came_ahead(Instant(0), psn(1)));
        early.asked(psn(2), false);
        early.came(Instant(9000), psn(1));
        assert!(early.take(psn(2)) && !early.went_on(Instant(9000), psn(3)));
        early.repeated(psn(2));
        early.put(psn(4));
        assert!(early.came_ahead(Instant(9000), psn(3)), "2 came once");
        early.asked(psn(4), false);
        early.came(Instant(9000), psn(3));
        assert!(early.take(psn(4)) && !early.went_on(Instant(9000), psn(5)));
        early.repeated(psn(3));
        for more in 6..8 {
            early.put(psn(more));
            assert!(!early.came_ahead(Instant(9000), psn(5)), "one that was overtaken by one came late");
        }
        early.put(psn(8));
        assert!(early.came_ahead(Instant(9000), psn(5)));
        assert!(early.came_ahead(Instant(9000 + 20_000), psn(5)), "time counts, too");
    }
}
