//! The receiving side: which data has arrived, where the gaps are, and what the peer is told of it.

use crate::seq::{FAR, FIRST, Range, offset};
use serde::{Deserialize, Serialize};

/// Maximum number of ranges and gaps that one segment may cover.
///
/// Genuine segments cover only a few. Each step searches all ranges, so the rest of a segment that
/// covers more is not taken.
const MOST_STEPS: usize = 16;

/// New bytes of the stream, in a segment that has just arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The offset of the bytes in the stream.
    pub offset: u64,
    /// Their position in the segment's data.
    pub at: core::ops::Range<usize>,
    /// The offset up to which the stream is complete. If it is less than `offset`, there is a gap
    /// before the bytes.
    pub complete: u64,
    /// Whether the bytes are a whole segment as the peer sent it, and the peer says that it is
    /// whole FPDUs. Such a segment may be placed beyond a gap.
    pub is_whole: bool,
}

/// What a segment changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Change {
    /// Some of it was taken.
    pub is_new: bool,
    /// It was out of order, a duplicate, or filled a gap. The peer should know at once (RFC 5681,
    /// 4.2).
    pub is_urgent: bool,
}

/// The receiving direction of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reassembly {
    /// RCV.NXT.
    nxt: u64,
    /// The right edge of the window as the peer was told. It never moves back.
    edge: u64,
    /// The ranges beyond the first gap, the most recently changed one first (RFC 2018, 4). No two
    /// of them touch.
    kept: Vec<Range>,
    /// A range that arrived twice, until the peer is told (RFC 2883).
    duplicate: Option<Range>,
    /// The number of the FIN, after it arrived, in order or not.
    fin: Option<u64>,
}

impl Reassembly {
    pub fn new() -> Reassembly {
        Reassembly { nxt: FIRST, edge: FIRST, kept: Vec::new(), duplicate: None, fin: None }
    }

    /// Returns RCV.NXT.
    pub fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Returns the right edge of the window.
    pub fn edge(&self) -> u64 {
        self.edge
    }

    /// Moves the right edge of the window up to `edge`, never back.
    pub fn open(&mut self, edge: u64) {
        self.edge = self.edge.max(edge);
    }

    /// Returns whether there is data beyond a gap.
    pub fn has_holes(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Returns whether the FIN, and all data before it, has arrived.
    pub fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.nxt > fin)
    }

    /// Returns whether there is something for a SACK option.
    pub fn has_news(&self) -> bool {
        self.duplicate.is_some() || self.has_holes()
    }

    /// Takes arriving data.
    ///
    /// `take` is called for each part that is new and in the window. It returns how many bytes of
    /// the part's front it took.
    pub fn handle_data(&mut self, data: Range, most: u16, mut take: impl FnMut(Arrival) -> usize) -> Change {
        self.note_duplicate(data);
        let had_holes = self.has_holes();
        let mut change = Change { is_new: false, is_urgent: self.duplicate.is_some() };
        let end = data.end.min(self.edge).min(self.fin.unwrap_or(u64::MAX));
        let mut at = data.start.max(self.nxt);
        for _ in 0..MOST_STEPS {
            // A part that was just taken may have joined with the next range.
            at = at.max(self.nxt);
            if at >= end {
                break;
            }
            if let Some(there) = self.kept.iter().find(|kept| (kept.start..kept.end).contains(&at)) {
                at = there.end;
                continue;
            }
            let next = self.kept.iter().map(|kept| kept.start).filter(|start| *start > at).min();
            let part = Range { start: at, end: end.min(next.unwrap_or(end)) };
            at = part.end;
            if part.start > self.nxt && self.kept.len() >= usize::from(most) && !self.touches(part) {
                change.is_urgent = true;
                continue;
            }
            let place = (part.start - data.start) as usize..(part.end - data.start) as usize;
            let length = place.len();
            let (offset, complete) = (offset(part.start), offset(self.nxt));
            let taken = take(Arrival { offset, at: place, complete, is_whole: false }).min(length);
            if taken > 0 {
                self.insert(Range { start: part.start, end: part.start + taken as u64 });
                change.is_new = true;
            }
            change.is_urgent |= taken < length;
        }
        change.is_urgent |= had_holes || self.has_holes() || data.end > at;
        change
    }

    /// Remembers the first duplicate part of a segment, for a DSACK.
    fn note_duplicate(&mut self, data: Range) {
        if data.start < self.nxt {
            self.duplicate = Some(Range { start: data.start, end: data.end.min(self.nxt) });
            return;
        }
        let overlaps = |kept: &&Range| kept.start < data.end && data.start < kept.end;
        if let Some(kept) = self.kept.iter().find(overlaps) {
            let range = Range { start: data.start.max(kept.start), end: data.end.min(kept.end) };
            self.duplicate = Some(range);
        }
    }

    fn touches(&self, part: Range) -> bool {
        self.kept.iter().any(|kept| kept.end == part.start || kept.start == part.end)
    }

    /// Adds a range, and joins it with the ranges that it touches.
    fn insert(&mut self, mut range: Range) {
        self.kept.retain(|kept| {
            let apart = kept.end < range.start || range.end < kept.start;
            if !apart {
                range = Range { start: range.start.min(kept.start), end: range.end.max(kept.end) };
            }
            apart
        });
        if range.start <= self.nxt {
            self.nxt = self.nxt.max(range.end);
            if self.kept.is_empty() && self.kept.capacity() > 8 {
                // An idle connection keeps no buffer for its next gap.
                self.kept = Vec::new();
            }
        } else {
            self.kept.insert(0, range);
        }
        self.finish();
    }

    /// Takes a FIN with this number, which is in the window. Returns whether it is the first and
    /// valid.
    ///
    /// A FIN before data that arrived is invalid.
    pub fn handle_fin(&mut self, fin: u64) -> bool {
        let is_first = self.fin.is_none() && fin >= self.nxt && self.kept.iter().all(|kept| kept.end <= fin);
        if is_first {
            self.fin = Some(fin);
            self.finish();
        }
        is_first
    }

    fn finish(&mut self) {
        if self.fin == Some(self.nxt) {
            self.nxt += 1;
        }
    }

    /// Returns the ranges of the next SACK option, at most `most`.
    ///
    /// A duplicate range comes first, and is reported once (RFC 2883, 4).
    pub fn sacks(&mut self, most: usize) -> impl Iterator<Item = Range> {
        let duplicate = self.duplicate.take();
        if let Some(duplicate) = duplicate
            && let Some(index) = self.kept.iter().position(|kept| kept.covers(duplicate))
        {
            // The range that contains the duplicate comes next.
            self.kept[..=index].rotate_right(1);
        }
        duplicate.into_iter().chain(self.kept.iter().copied()).take(most)
    }

    /// Returns an inconsistency, if there is one.
    pub fn fault(&self) -> Option<&'static str> {
        let mut kept = self.kept.clone();
        kept.sort_by_key(|range| range.start);
        let mut before = self.nxt;
        let highest = kept.last().map_or(0, |range| range.end).max(self.nxt).max(self.edge);
        if highest.max(self.fin.unwrap_or(0)) >= FAR {
            return Some("numbers received are out of range");
        }
        for range in kept {
            if range.start <= before || range.end <= range.start {
                return Some("stretches that arrived are empty, touch or overlap");
            }
            before = range.end;
        }
        match self.fin {
            Some(fin) if before > fin && !(self.nxt == fin + 1 && self.kept.is_empty()) => {
                Some("data arrived behind the FIN")
            }
            Some(fin) if fin == self.nxt => Some("the FIN has arrived and is not taken"),
            _ if self.nxt < FIRST => Some("the stream begins before its beginning"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: u64, to: u64) -> Range {
        Range { start: FIRST + from, end: FIRST + to }
    }

    fn open() -> Reassembly {
        let mut reassembly = Reassembly::new();
        reassembly.open(FIRST + 1000);
        reassembly
    }

    /// Offers a range of which all is taken, and returns the parts that `take` was called for.
    fn offer(reassembly: &mut Reassembly, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut asked = Vec::new();
        reassembly.handle_data(range(from, to), 8, |arrival| {
            assert_eq!(arrival.offset - from, arrival.at.start as u64);
            asked.push((arrival.offset, arrival.offset + arrival.at.len() as u64));
            arrival.at.len()
        });
        assert_eq!(reassembly.fault(), None);
        asked
    }

    fn sacks(reassembly: &mut Reassembly) -> Vec<(u64, u64)> {
        reassembly.sacks(4).map(|range| (range.start - FIRST, range.end - FIRST)).collect()
    }

    #[test]
    fn each_byte_is_handed_up_once() {
        let mut reassembly = open();
        assert_eq!(offer(&mut reassembly, 0, 10), [(0, 10)]);
        assert_eq!(offer(&mut reassembly, 20, 30), [(20, 30)]);
        assert_eq!(offer(&mut reassembly, 40, 50), [(40, 50)]);
        assert_eq!(reassembly.nxt(), FIRST + 10);
        // The segment covers ranges that have arrived.
        assert_eq!(offer(&mut reassembly, 5, 60), [(10, 20), (30, 40), (50, 60)]);
        assert_eq!(reassembly.nxt(), FIRST + 60);
        assert_eq!(offer(&mut reassembly, 0, 60), []);
        assert!(!reassembly.has_holes());
    }

    #[test]
    fn the_latest_stretch_is_told_first() {
        let mut reassembly = open();
        offer(&mut reassembly, 20, 30);
        offer(&mut reassembly, 60, 70);
        offer(&mut reassembly, 40, 50);
        assert_eq!(sacks(&mut reassembly), [(40, 50), (60, 70), (20, 30)]);
        offer(&mut reassembly, 70, 80);
        assert_eq!(sacks(&mut reassembly), [(60, 80), (40, 50), (20, 30)]);
        offer(&mut reassembly, 30, 40);
        assert_eq!(sacks(&mut reassembly), [(20, 50), (60, 80)]);
    }

    #[test]
    fn what_arrives_twice_is_told_once() {
        let mut reassembly = open();
        offer(&mut reassembly, 0, 10);
        offer(&mut reassembly, 5, 10);
        assert_eq!(sacks(&mut reassembly), [(5, 10)]);
        assert_eq!(sacks(&mut reassembly), []);
        offer(&mut reassembly, 20, 30);
        offer(&mut reassembly, 40, 50);
        offer(&mut reassembly, 22, 28);
        assert_eq!(sacks(&mut reassembly), [(22, 28), (20, 30), (40, 50)]);
        assert_eq!(sacks(&mut reassembly), [(20, 30), (40, 50)]);
    }

    #[test]
    fn what_is_refused_is_not_there() {
        let mut reassembly = open();
        let change = reassembly.handle_data(range(10, 30), 8, |_| 5);
        assert_eq!(change, Change { is_new: true, is_urgent: true });
        assert_eq!(sacks(&mut reassembly), [(10, 15)]);
        reassembly.handle_data(range(0, 10), 8, |_| 0);
        assert_eq!(reassembly.nxt(), FIRST);
        // A return value above the length is limited to it.
        reassembly.handle_data(range(0, 10), 8, |_| usize::MAX);
        assert_eq!((reassembly.nxt(), reassembly.fault()), (FIRST + 15, None));
    }

    #[test]
    fn stretches_are_bounded() {
        let mut reassembly = open();
        for n in 1..5 {
            reassembly.handle_data(range(20 * n, 20 * n + 10), 3, |arrival| arrival.at.len());
        }
        assert_eq!(sacks(&mut reassembly), [(60, 70), (40, 50), (20, 30)]);
        // A part that joins ranges is still taken, and so is one that fills the first gap.
        reassembly.handle_data(range(30, 35), 3, |arrival| arrival.at.len());
        reassembly.handle_data(range(0, 20), 3, |arrival| arrival.at.len());
        assert_eq!(reassembly.nxt(), FIRST + 35);
    }

    #[test]
    fn a_segment_over_many_stretches_is_taken_in_parts() {
        let mut reassembly = open();
        for n in 1..=20 {
            let change = reassembly.handle_data(range(20 * n, 20 * n + 10), 64, |arrival| arrival.at.len());
            assert!(change.is_new);
        }
        // Nothing is taken: eight gaps and eight ranges are visited.
        let mut asked = 0;
        let refused = reassembly.handle_data(range(10, 1000), 64, |_| {
            asked += 1;
            0
        });
        assert_eq!((asked, refused), (8, Change { is_new: false, is_urgent: true }));
        // The taken part is there when the segment comes again.
        for end in [170, 330, 1000] {
            assert!(offer(&mut reassembly, 10, 1000).len() <= 9);
            let (_, to) = sacks(&mut reassembly)[1];
            assert!(to >= end, "{to}");
        }
        assert_eq!(sacks(&mut reassembly), [(10, 1000)]);
    }

    #[test]
    fn nothing_beyond_the_window_or_the_fin_is_taken() {
        let mut reassembly = open();
        assert_eq!(offer(&mut reassembly, 990, 1010), [(990, 1000)]);
        assert!(!reassembly.handle_fin(FIRST + 995), "data is behind it");
        assert!(reassembly.handle_fin(FIRST + 1000));
        assert!(!reassembly.handle_fin(FIRST + 1001));
        reassembly.open(FIRST + 2000);
        assert_eq!(offer(&mut reassembly, 980, 1020), [(980, 990)]);
        assert!(!reassembly.is_finished());
        offer(&mut reassembly, 0, 980);
        assert!(reassembly.is_finished());
        assert_eq!(reassembly.nxt(), FIRST + 1001);
    }
}
