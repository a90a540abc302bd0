//! What arrived: up to which number all is there, what is beyond holes, and what of it the peer is
//! told.

use crate::seq::{FAR, FIRST, Range, offset};
use serde::{Deserialize, Serialize};

/// A segment lies over so many stretches and gaps between them at most. A peer's own segments do
/// not lie over more than a few; of one that does, the rest is not taken, since each step looks at
/// all stretches.
const MOST_STEPS: usize = 16;

/// New bytes of the stream, in a segment that has just arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Where the bytes are in the stream.
    pub offset: u64,
    /// Where they are in the segment's data.
    pub at: core::ops::Range<usize>,
    /// Up to here the stream is complete; if that is less than `offset`, something before them is
    /// missing.
    pub complete: u64,
    /// They are all of the segment, which came as it was sent, and the peer says that it is whole
    /// FPDUs: one may be placed beyond a hole.
    pub is_whole: bool,
}

/// What a segment changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Change {
    /// Something of it was taken.
    pub is_new: bool,
    /// It was out of order, or a duplicate, or filled a hole: the peer should know at once (RFC
    /// 5681, 4.2).
    pub is_urgent: bool,
}

/// The receiving direction of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reassembly {
    /// RCV.NXT.
    nxt: u64,
    /// The right edge of the window that the peer was told of. It never goes back.
    edge: u64,
    /// Stretches beyond holes, that which something arrived for last first (RFC 2018, 4). They do
    /// not touch.
    kept: Vec<Range>,
    /// What arrived twice, until the peer is told (RFC 2883).
    duplicate: Option<Range>,
    /// The number of the FIN, once it has arrived, also out of order.
    fin: Option<u64>,
}

impl Reassembly {
    pub fn new() -> Reassembly {
        Reassembly { nxt: FIRST, edge: FIRST, kept: Vec::new(), duplicate: None, fin: None }
    }

    /// RCV.NXT.
    pub fn nxt(&self) -> u64 {
        self.nxt
    }

    /// The right edge of the window.
    pub fn edge(&self) -> u64 {
        self.edge
    }

    /// The peer may send up to here, at least.
    pub fn open(&mut self, edge: u64) {
        self.edge = self.edge.max(edge);
    }

    /// Whether something beyond a hole is there.
    pub fn has_holes(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Whether the FIN, and all before it, has arrived.
    pub fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.nxt > fin)
    }

    /// Whether there is something for a SACK option.
    pub fn has_news(&self) -> bool {
        self.duplicate.is_some() || self.has_holes()
    }

    /// Data arrived. `take` is asked for each part that is not there and in the window, and says
    /// how many bytes of its front it has taken.
    pub fn handle_data(&mut self, data: Range, most: u16, mut take: impl FnMut(Arrival) -> usize) -> Change {
        self.note_duplicate(data);
        let had_holes = self.has_holes();
        let mut change = Change { is_new: false, is_urgent: self.duplicate.is_some() };
        let end = data.end.min(self.edge).min(self.fin.unwrap_or(u64::MAX));
        let mut at = data.start.max(self.nxt);
        for _ in 0..MOST_STEPS {
            // What was taken before may have joined with what lies here.
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

    /// Remembers the first part of what is there already, for a DSACK.
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

    /// Adds a stretch, and joins it with those that it touches.
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
                // An idle connection keeps no buffer for its next hole.
                self.kept = Vec::new();
            }
        } else {
            self.kept.insert(0, range);
        }
        self.finish();
    }

    /// A FIN with this number arrived, in the window. Whether it is the first, and can be: one
    /// behind which there is data is none.
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

    /// The stretches of the next SACK option, `most` of them: what arrived twice first (RFC 2883,
    /// 4), which is told once.
    pub fn sacks(&mut self, most: usize) -> impl Iterator<Item = Range> {
        let duplicate = self.duplicate.take();
        if let Some(duplicate) = duplicate
            && let Some(index) = self.kept.iter().position(|kept| kept.covers(duplicate))
        {
            // The stretch that it is in comes next.
            self.kept[..=index].rotate_right(1);
        }
        duplicate.into_iter().chain(self.kept.iter().copied()).take(most)
    }

    /// What cannot be, if it is.
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

    /// Offers a stretch of which all is taken: what was asked for.
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
        // Around what is there.
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
        // More than there was is not believed.
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
        // What joins others is taken still, and so is what fills the first hole.
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
        // Nothing is taken: eight gaps and eight stretches are looked at.
        let mut asked = 0;
        let refused = reassembly.handle_data(range(10, 1000), 64, |_| {
            asked += 1;
            0
        });
        assert_eq!((asked, refused), (8, Change { is_new: false, is_urgent: true }));
        // What is taken is there when it comes again.
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
