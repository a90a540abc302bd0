//! Output of a connection of vrdma's own TCP. It is kept until the peer has acknowledged it.

use super::budget::LEAST_OUTPUT;
use crate::streams::buffers::FreeBuffers;
use crate::streams::output::TakenOutput;
use std::collections::VecDeque;
use std::ops::Range;
use vrdma_tcp::Source;

/// Bytes that may be kept before more output has to wait.
const ROOM: u64 = 1 << 20;
/// Bytes that may be kept and were never sent. Output that waits long leaves the caches before it
/// is sent.
const UNSENT: u64 = 32 << 10;
/// Number of pieces for which an empty buffer keeps its memory.
const FEW: usize = 64;
/// Output shorter than this is appended to the last buffer, if that has room.
const SHORT: usize = 4096;

/// Bytes in one buffer.
#[derive(Debug)]
struct Chunk {
    start: u64,
    /// The buffer. The bytes are at its front.
    bytes: Vec<u8>,
    length: usize,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.start + self.length as u64
    }
}

/// A range of the stream that is cut into segments separately.
#[derive(Debug)]
struct Piece {
    start: u64,
    end: u64,
    /// Length of each segment but the last. If 0, the piece is one segment.
    cut: u64,
}

impl Piece {
    /// Whether a segment may begin or end at this offset in the stream.
    fn is_cut_at(&self, place: u64) -> bool {
        place == self.end
            || place == self.start
            || self.cut > 0 && (place - self.start).is_multiple_of(self.cut)
    }

    /// Returns its length if it is one FPDU, which may share a segment with others.
    ///
    /// An MPA request or reply is not an FPDU, and shares no segment.
    fn as_fpdu(&self) -> Option<u64> {
        let length = self.end - self.start;
        (length <= self.cut).then_some(length)
    }
}

/// The output by offset in the stream, and the boundaries of its segments.
#[derive(Debug, Default)]
pub(super) struct SendBuffer {
    chunks: VecDeque<Chunk>,
    /// Bytes of memory of the buffers.
    buffers: u64,
    pieces: VecDeque<Piece>,
    /// Offset up to which the peer has acknowledged everything.
    acknowledged: u64,
    /// Offset up to which everything was sent once.
    sent: u64,
    end: u64,
    /// Offset of the first FPDU.
    first_fpdu: Option<u64>,
}

impl SendBuffer {
    /// Whether more may be added.
    ///
    /// `is_short`: the guest has no memory left for output. Then only the guaranteed amount of each
    /// connection counts. There is room again at the latest when the peer has acknowledged.
    pub fn has_room(&self, is_short: bool) -> bool {
        let is_within = self.end - self.acknowledged < ROOM && self.end - self.sent < UNSENT;
        is_within && (!is_short || self.memory() < LEAST_OUTPUT)
    }

    /// Notes that everything up to an offset was sent. Returns whether that made room.
    pub fn sent(&mut self, place: u64, is_short: bool) -> bool {
        let had_room = self.has_room(is_short);
        self.sent = self.sent.max(place);
        !had_room && self.has_room(is_short)
    }

    /// Returns the bytes of memory that everything takes.
    pub fn memory(&self) -> u64 {
        let lists = self.chunks.capacity() * size_of::<Chunk>() + self.pieces.capacity() * size_of::<Piece>();
        self.buffers + lists as u64
    }

    /// Appends output. Its pieces are cut into segments of `cut` bytes, or not at all if `cut` is
    /// 0.
    pub fn put(&mut self, taken: TakenOutput, cut: usize, buffers: &mut FreeBuffers) {
        let (start, mut at) = (self.end, self.end);
        if cut != 0 {
            self.first_fpdu.get_or_insert(start);
        }
        for length in taken.pieces {
            let end = at + length as u64;
            self.pieces.push_back(Piece { start: at, end, cut: cut as u64 });
            at = end;
        }
        self.end = at;
        let (bytes, length) = (taken.bytes, (at - start) as usize);
        if length >= SHORT {
            self.buffers += bytes.capacity() as u64;
            return self.chunks.push_back(Chunk { start, bytes, length });
        }
        let last = self.chunks.back_mut();
        let last = match last.filter(|last| last.bytes.len() - last.length >= length) {
            Some(last) => last,
            None => {
                self.buffers += SHORT as u64;
                self.chunks.push_back(Chunk { start, bytes: vec![0; SHORT], length: 0 });
                self.chunks.back_mut().expect("it was put there")
            }
        };
        last.bytes[last.length..last.length + length].copy_from_slice(&bytes[..length]);
        last.length += length;
        buffers.put(bytes);
    }

    /// Frees what the peer has acknowledged, up to an offset.
    pub fn acknowledge(&mut self, place: u64, buffers: &mut FreeBuffers) {
        self.acknowledged = self.acknowledged.max(place);
        while self.pieces.front().is_some_and(|piece| piece.end <= place) {
            self.pieces.pop_front();
        }
        while self.chunks.front().is_some_and(|chunk| chunk.end() <= place) {
            let chunk = self.chunks.pop_front().expect("it was looked at");
            self.buffers -= chunk.bytes.capacity() as u64;
            // A buffer for short messages is cheaper to allocate again than to reuse.
            if chunk.bytes.len() > SHORT {
                buffers.put(chunk.bytes);
            }
        }
        if self.pieces.is_empty() && self.pieces.capacity() > FEW {
            // Short FPDUs need many pieces. An idle connection keeps no memory for them.
            self.pieces = VecDeque::new();
        }
    }

    /// Copies a range of the output.
    ///
    /// # Panics
    /// A part of it was acknowledged already. TCP never retransmits such a part.
    pub fn copy(&self, stretch: Range<u64>, out: &mut [u8]) {
        let first = self.chunks.partition_point(|chunk| chunk.end() <= stretch.start);
        let mut done = 0;
        for chunk in self.chunks.range(first..) {
            if done == out.len() {
                break;
            }
            let from = (stretch.start + done as u64 - chunk.start) as usize;
            let length = (chunk.length - from).min(out.len() - done);
            out[done..done + length].copy_from_slice(&chunk.bytes[from..from + length]);
            done += length;
        }
        assert_eq!(done, out.len(), "what is not acknowledged is kept");
    }
}

impl Source for SendBuffer {
    /// Returns the length of the segment at an offset.
    ///
    /// Short FPDUs that are queued share a segment, as many as fit whole. The first FPDU shares
    /// none. Linux's siw learns from it that the connection is established. Its kernel fails if
    /// data in the same segment ends the connection before that.
    fn segment_at(&mut self, offset: u64, most: u32) -> u32 {
        let at = self.pieces.partition_point(|piece| piece.end <= offset);
        let mut pieces = self.pieces.range(at..);
        let Some(piece) = pieces.next() else { return 0 };
        let (left, most) = (piece.end - offset, u64::from(most));
        let to_cut = if piece.cut == 0 { left } else { piece.cut - (offset - piece.start) % piece.cut };
        let mut length = to_cut.min(left).min(most);
        let is_first = self.first_fpdu == Some(piece.start);
        if length == left && !is_first && piece.cut > 0 && piece.is_cut_at(offset) {
            for more in pieces.map_while(Piece::as_fpdu) {
                if length + more > most {
                    break;
                }
                length += more;
            }
        }
        length as u32
    }

    /// Whether a range is whole FPDUs, as segments are cut at the bounds of FPDUs.
    ///
    /// An MPA request or reply counts as well, although it is not an FPDU. Its receiver places no
    /// FPDUs yet.
    fn is_whole(&mut self, stretch: Range<u64>) -> bool {
        let first = self.pieces.partition_point(|piece| piece.end <= stretch.start);
        let last = self.pieces.partition_point(|piece| piece.end < stretch.end);
        let begins = self.pieces.get(first).is_some_and(|piece| piece.is_cut_at(stretch.start));
        begins && self.pieces.get(last).is_some_and(|piece| piece.is_cut_at(stretch.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(buffer: &mut SendBuffer, pieces: &[usize], cut: usize, first: u8) {
        let length: usize = pieces.iter().sum();
        let bytes = (0..length).map(|i| first.wrapping_add(i as u8)).collect();
        let pieces = pieces.iter().copied().collect();
        buffer.put(TakenOutput { bytes, pieces }, cut, &mut FreeBuffers::default());
    }

    #[test]
    fn segments_begin_where_fpdus_do_also_when_the_path_takes_less() {
        let mut buffer = SendBuffer::default();
        put(&mut buffer, &[20], 0, 0);
        put(&mut buffer, &[3000, 100, 2500], 1000, 20);
        let mut cuts = Vec::new();
        let mut at = 0;
        loop {
            let length = buffer.segment_at(at, 1000);
            if length == 0 {
                break;
            }
            cuts.push(length);
            at += u64::from(length);
        }
        assert_eq!(cuts, [20, 1000, 1000, 1000, 100, 1000, 1000, 500]);
        let mut at = 0;
        for length in cuts {
            let end = at + u64::from(length);
            assert!(
                buffer.is_whole(at..end) && !buffer.is_whole(at..end - 4) && !buffer.is_whole(at + 4..end)
            );
            at = end;
        }
        assert!(buffer.is_whole(20..2020) && !buffer.is_whole(10..1020) && !buffer.is_whole(at..at + 4));
        // Inside of an FPDU, the rest of it follows.
        assert_eq!(
            (buffer.segment_at(620, 1000), buffer.segment_at(20, 536), buffer.segment_at(556, 536)),
            (400, 536, 464)
        );
    }

    #[test]
    fn short_fpdus_that_wait_go_together() {
        let mut buffer = SendBuffer::default();
        // An MPA reply shares no segment, and neither does the first FPDU. A segment that begins
        // with a long FPDU ends where that is cut. The end of a long FPDU shares no segment with
        // what follows.
        put(&mut buffer, &[20], 0, 0);
        put(&mut buffer, &[300, 300, 400, 300], 1000, 0);
        put(&mut buffer, &[4, 2100, 200, 800, 1000, 8], 1000, 0);
        let mut at = 0;
        for expected in [20, 300, 1000, 4, 1000, 1000, 300, 800, 1000, 8] {
            assert_eq!(buffer.segment_at(at, 1000), expected, "{at}");
            let end = at + u64::from(expected);
            assert!(buffer.is_whole(at..end), "{at}");
            at = end;
        }
        assert_eq!(buffer.segment_at(at, 1000), 0);
        // On a path with smaller segments, an FPDU that does not fit is sent alone, and in parts.
        // The rest of an FPDU is sent alone.
        assert_eq!((buffer.segment_at(320, 999), buffer.segment_at(320, 299)), (700, 299));
        assert_eq!((buffer.segment_at(420, 1000), buffer.is_whole(420..620)), (200, false));
        // Acknowledged output is gone.
        buffer.acknowledge(620, &mut FreeBuffers::default());
        assert_eq!(buffer.segment_at(620, 1000), 704);
    }

    #[test]
    fn what_is_kept_is_what_was_put_in_and_no_longer_than_needed() {
        let mut buffer = SendBuffer::default();
        for (n, length) in [10, 5000, 7, 7, 9000, 3].into_iter().enumerate() {
            put(&mut buffer, &[length], 0, n as u8);
        }
        let mut all = vec![0; 14027];
        buffer.copy(0..14027, &mut all);
        assert_eq!((all[0], all[10], all[5010], all[5017], all[5024], all[14024]), (0, 1, 2, 3, 4, 5));
        buffer.acknowledge(5020, &mut FreeBuffers::default());
        let mut part = vec![0; 9007];
        buffer.copy(5020..14027, &mut part);
        assert_eq!(part, all[5020..]);
        buffer.acknowledge(14027, &mut FreeBuffers::default());
        assert!(buffer.chunks.is_empty() && buffer.pieces.is_empty());
        assert_eq!(buffer.segment_at(14027, 1000), 0);
    }

    #[test]
    fn buffers_are_used_again_and_what_was_in_them_is_not_sent() {
        let (mut buffer, mut buffers) = (SendBuffer::default(), FreeBuffers::default());
        let put = |buffer: &mut SendBuffer, buffers: &mut FreeBuffers, byte, length| {
            let mut output = crate::streams::output::Output::default();
            output.provide_buffer(buffers.take());
            output.push(&vec![byte; length]);
            buffer.put(output.take(), 1000, buffers);
        };
        put(&mut buffer, &mut buffers, 1, 8000);
        buffer.acknowledge(8000, &mut buffers);
        put(&mut buffer, &mut buffers, 2, 5000);
        put(&mut buffer, &mut buffers, 3, 100);
        let mut all = vec![0; 5100];
        buffer.copy(8000..13_100, &mut all);
        assert!(all[..5000].iter().all(|byte| *byte == 2) && all[5000..].iter().all(|byte| *byte == 3));
        // The short output is in the long buffer, behind its contents. Its own buffer came back.
        assert_eq!((buffer.chunks.len(), buffers.take().len()), (1, 100));
    }

    #[test]
    fn so_much_is_kept_as_the_peer_has_not_acknowledged() {
        let mut buffer = SendBuffer::default();
        put(&mut buffer, &[ROOM as usize], 1000, 0);
        assert!(!buffer.has_room(false));
        assert!(!buffer.sent(ROOM, false), "all of it is kept still");
        buffer.acknowledge(1, &mut FreeBuffers::default());
        assert!(buffer.has_room(false));
    }

    #[test]
    fn little_waits_to_be_sent() {
        let mut buffer = SendBuffer::default();
        put(&mut buffer, &[UNSENT as usize], 1000, 0);
        assert!(!buffer.has_room(false));
        assert!(buffer.sent(1000, false) && buffer.has_room(false));
        assert!(!buffer.sent(500, false) && !buffer.sent(2000, false), "there was room before");
    }

    #[test]
    fn what_is_kept_is_known_and_where_memory_is_short_little_more_is() {
        let (mut buffer, mut buffers) = (SendBuffer::default(), FreeBuffers::default());
        assert!(buffer.memory() == 0 && buffer.has_room(true));
        let mut end = 0;
        while buffer.has_room(true) {
            put(&mut buffer, &[100], 1000, 0);
            buffer.sent(end + 100, true);
            end += 100;
        }
        assert!((LEAST_OUTPUT..LEAST_OUTPUT + 8192).contains(&buffer.memory()) && buffer.has_room(false));
        // A long buffer with few bytes counts as a whole.
        let bytes = vec![0; 100_000];
        buffer.put(TakenOutput { bytes, pieces: [5000].into() }, 1000, &mut buffers);
        assert!(buffer.memory() >= LEAST_OUTPUT + 100_000);
        buffer.acknowledge(end, &mut buffers);
        assert!(buffer.memory() >= 100_000 && !buffer.has_room(true));
        buffer.acknowledge(end + 5000, &mut buffers);
        assert!(buffer.buffers == 0 && buffer.pieces.capacity() == 0 && buffer.has_room(true));
    }
}
