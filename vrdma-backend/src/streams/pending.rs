//! Received data that the engine has not taken yet.

use vrdma_transport::PlacedFpdu;

/// Up to this length, bytes are copied, so that the read buffer can be reused.
///
/// It is what one read of a kernel socket returns.
const COPIED: usize = 64 << 10;

/// Received data of a connection that the engine has not taken.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The bytes in order. The engine has taken the first `taken` of them.
    bytes: Vec<u8>,
    taken: usize,
    /// An already placed FPDU that follows the bytes.
    pub placed: Option<PlacedFpdu>,
}

impl Pending {
    /// Whether the engine has taken everything.
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty() && self.placed.is_none()
    }

    /// Returns the bytes of memory that it takes.
    pub fn memory(&self) -> u64 {
        self.bytes.capacity() as u64
    }

    /// Returns the bytes that the engine has not taken.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// Keeps the rest of a buffer of which `taken` bytes were taken. Returns how many it copied.
    ///
    /// A long rest is kept in its buffer, and an empty one is left in its place.
    pub fn keep(&mut self, buffer: &mut Vec<u8>, taken: usize, length: usize) -> usize {
        assert!(self.is_empty(), "nothing is read before all before it was taken");
        if length - taken <= COPIED {
            (self.bytes, self.taken) = (buffer[taken..length].to_vec(), 0);
            length - taken
        } else {
            buffer.truncate(length);
            (self.bytes, self.taken) = (std::mem::take(buffer), taken);
            0
        }
    }

    /// Returns the FPDU that follows the bytes, once all of them were taken.
    pub fn take_placed(&mut self) -> Option<PlacedFpdu> {
        if self.bytes().is_empty() { self.placed.take() } else { None }
    }

    /// Notes that `count` more bytes were taken. The memory is freed with the last.
    pub fn advance(&mut self, count: usize) {
        self.taken += count;
        if self.taken == self.bytes.len() {
            (self.bytes, self.taken) = (Vec::new(), 0);
        }
    }
}
