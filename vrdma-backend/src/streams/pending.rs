//! What has come in a connection and was not taken by the engine.

use vrdma_transport::PlacedFpdu;

/// Bytes that are copied, so that the buffer is used again: what a read of a kernel's socket
/// brings.
const COPIED: usize = 64 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Bytes in order, of which so many at the front were taken,
    bytes: Vec<u8>,
    taken: usize,
    /// and what follows them, if it was placed before its turn.
    pub placed: Option<PlacedFpdu>,
}

impl Pending {
    /// Whether the engine has all that has come.
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty() && self.placed.is_none()
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> u64 {
        self.bytes.capacity() as u64
    }

    /// Bytes that the engine has not taken.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// Keeps what is left of a buffer of which so many bytes were taken; how many are copied. A
    /// long one is kept itself, and leaves an empty one.
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

    /// What follows the bytes, once all of them were taken.
    pub fn take_placed(&mut self) -> Option<PlacedFpdu> {
        if self.bytes().is_empty() { self.placed.take() } else { None }
    }

    /// So many more were taken. The memory goes with the last.
    pub fn advance(&mut self, count: usize) {
        self.taken += count;
        if self.taken == self.bytes.len() {
            (self.bytes, self.taken) = (Vec::new(), 0);
        }
    }
}
