//! What has come in a connection of our own TCP and was not read yet.

use crate::streams::buffers::Buffers;
use std::collections::BTreeMap;
use vrdma_tcp::Arrival;

/// The window that a peer is told while all is read soon.
pub(super) const WINDOW: u32 = 1 << 20;
/// Most bytes that are kept, in order and beyond holes: what was promised, and what came before the window became smaller.
const LIMIT: usize = 2 * WINDOW as usize;
/// Most stretches that are held apart: small ones, each by itself, would cost more than their bytes.
const HELD: usize = 1024;

/// Bytes in order, and others beyond holes.
#[derive(Debug, Default)]
pub(super) struct Received {
    ready: Vec<u8>,
    /// Where the next byte in order has its place.
    next: u64,
    /// By their places; they neither overlap nor touch `next`.
    held: BTreeMap<u64, Vec<u8>>,
    held_bytes: usize,
    /// The peer was told of less than [`WINDOW`].
    is_narrow: bool,
}

impl Received {
    /// Takes what arrived, at most up to `limit` bytes in all; how many bytes. None is offered twice.
    pub fn take(&mut self, arrival: &Arrival, data: &[u8], limit: usize, buffers: &mut Buffers) -> usize {
        let bytes = &data[arrival.at.clone()];
        let room = limit.min(LIMIT).saturating_sub(self.ready.len() + self.held_bytes);
        let bytes = &bytes[..bytes.len().min(room)];
        if bytes.is_empty() {
            return 0;
        }
        if arrival.offset != self.next {
            return self.hold(arrival.offset, bytes);
        }
        if self.ready.capacity() == 0 {
            self.ready = buffers.take();
            self.ready.clear();
        }
        self.append(bytes);
        while let Some(entry) = self.held.first_entry().filter(|entry| *entry.key() == self.next) {
            let bytes = entry.remove();
            self.held_bytes -= bytes.len();
            self.append(&bytes);
        }
        bytes.len()
    }

    /// Holds what is beyond a hole, with what is right before it; how many bytes.
    fn hold(&mut self, offset: u64, bytes: &[u8]) -> usize {
        let count = self.held.len();
        match self.held.range_mut(..offset).next_back() {
            Some((start, before)) if start + before.len() as u64 == offset => before.extend_from_slice(bytes),
            _ if count == HELD => return 0,
            _ => drop(self.held.insert(offset, bytes.to_vec())),
        }
        self.held_bytes += bytes.len();
        bytes.len()
    }

    fn append(&mut self, bytes: &[u8]) {
        self.ready.extend_from_slice(bytes);
        self.next += bytes.len() as u64;
    }

    /// Whether there is something to read.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Gives all that is in order, in place of a buffer that is used again. Nothing is kept: of many connections most are idle.
    pub fn read(&mut self, buffer: &mut Vec<u8>, buffers: &mut Buffers) {
        buffers.put(std::mem::replace(buffer, std::mem::take(&mut self.ready)));
    }

    /// Bytes beyond holes.
    pub fn held(&self) -> usize {
        self.held_bytes
    }

    /// The window that the peer is to be told now, if it is another than before: what is not read soon takes from it.
    pub fn window(&mut self) -> Option<u32> {
        let is_narrow = self.ready.len() > WINDOW as usize / 2 || self.is_narrow && self.is_ready();
        let before = std::mem::replace(&mut self.is_narrow, is_narrow);
        (is_narrow || before)
            .then(|| WINDOW.saturating_sub(if is_narrow { self.ready.len() as u32 } else { 0 }))
    }

    /// Nobody reads any more.
    pub fn clear(&mut self) {
        (self.ready, self.held, self.held_bytes) = (Vec::new(), BTreeMap::new(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(received: &mut Received, offset: u64, bytes: &[u8]) -> usize {
        // It is in the midst of a segment.
        let data = [b"??", bytes, b"?"].concat();
        let arrival = Arrival { offset, at: 2..2 + bytes.len(), complete: received.next };
        received.take(&arrival, &data, LIMIT, &mut Buffers::default())
    }

    #[test]
    fn bytes_are_read_in_order_however_they_come() {
        let (mut received, mut buffer) = (Received::default(), Vec::new());
        assert_eq!(arrive(&mut received, 6, b"gh"), 2);
        assert_eq!(arrive(&mut received, 3, b"de"), 2);
        assert!(!received.is_ready() && received.held() == 4);
        assert_eq!(arrive(&mut received, 0, b"abc"), 3);
        assert_eq!(received.held(), 2);
        received.read(&mut buffer, &mut Buffers::default());
        assert_eq!(buffer, b"abcde");
        assert_eq!(arrive(&mut received, 5, b"f"), 1);
        received.read(&mut buffer, &mut Buffers::default());
        assert_eq!((&buffer[..], received.held()), (&b"fgh"[..], 0));
    }

    #[test]
    fn what_touches_is_held_together_and_what_is_apart_is_bounded() {
        let (mut received, mut buffer) = (Received::default(), Vec::new());
        for offset in 1..=3 * HELD as u64 {
            assert_eq!(arrive(&mut received, offset, b"t"), 1);
        }
        assert_eq!((received.held.len(), received.held()), (1, 3 * HELD));
        // Each by itself, from behind.
        let apart: Vec<_> = (0..HELD as u64).map(|k| arrive(&mut received, 100_000 - 2 * k, b"a")).collect();
        assert_eq!((apart.iter().sum::<usize>(), apart[HELD - 1]), (HELD - 1, 0));
        assert_eq!((received.held.len(), received.held()), (HELD, 4 * HELD - 1));
        assert_eq!(arrive(&mut received, 0, b"f"), 1);
        received.read(&mut buffer, &mut Buffers::default());
        assert_eq!((buffer.len(), received.held()), (3 * HELD + 1, HELD - 1));
    }

    #[test]
    fn no_more_is_kept_than_may_be_and_the_window_says_so() {
        let mut received = Received::default();
        let half = vec![7; WINDOW as usize / 2];
        assert_eq!((arrive(&mut received, 0, &half), received.window()), (half.len(), None));
        assert_eq!(arrive(&mut received, half.len() as u64, &half), half.len());
        assert_eq!(received.window(), Some(0));
        assert_eq!(arrive(&mut received, 4 << 20, &half), half.len());
        assert_eq!(arrive(&mut received, WINDOW.into(), &[half.clone(), half.clone()].concat()), half.len());
        assert_eq!(arrive(&mut received, WINDOW as u64 + half.len() as u64, b"x"), 0);
        received.read(&mut Vec::new(), &mut Buffers::default());
        assert_eq!((received.window(), received.window()), (Some(WINDOW), None));
    }
}
