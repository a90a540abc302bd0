//! Frames on their way between a port and those who make and read them.

use super::dpdk::Mbuf;
use std::ops::Deref;

/// An Ethernet frame without FCS; its buffer goes back to where it came from when this is dropped.
///
/// What was received is one piece. What is to be sent may have pieces of memory of others after its first ([`External`](super::External)).
#[derive(Debug)]
pub struct Frame(Storage);

#[derive(Debug)]
enum Storage {
    Heap(Vec<u8>),
    Mbuf(Mbuf),
}

impl Frame {
    /// A frame of these bytes, of no driver: it is copied once more when it is sent.
    pub fn new(bytes: Vec<u8>) -> Frame {
        Frame(Storage::Heap(bytes))
    }

    pub(super) fn from_mbuf(mbuf: Mbuf) -> Frame {
        Frame(Storage::Mbuf(mbuf))
    }

    /// The mbuf, or itself back.
    pub(super) fn into_mbuf(self) -> Result<Mbuf, Frame> {
        match self.0 {
            Storage::Mbuf(mbuf) => Ok(mbuf),
            heap @ Storage::Heap(_) => Err(Frame(heap)),
        }
    }

    pub(super) fn as_mbuf(&mut self) -> Option<&mut Mbuf> {
        match &mut self.0 {
            Storage::Mbuf(mbuf) => Some(mbuf),
            Storage::Heap(_) => None,
        }
    }

    /// Everything that fits into the first piece, from the Ethernet header on.
    #[inline]
    pub(super) fn room(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Storage::Heap(bytes) => bytes,
            Storage::Mbuf(mbuf) => mbuf.room(),
        }
    }

    /// Makes the first `len` bytes of the room the frame.
    #[inline]
    pub(super) fn set_len(&mut self, len: usize) {
        match &mut self.0 {
            Storage::Heap(bytes) => bytes.truncate(len),
            Storage::Mbuf(mbuf) => mbuf.set_len(len),
        }
    }

    /// Makes a frame of no driver longer by `len` bytes, which `fill` writes; false for others.
    pub(super) fn extend(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let Storage::Heap(bytes) = &mut self.0 else { return false };
        let before = bytes.len();
        bytes.resize(before + len, 0);
        fill(&mut bytes[before..]);
        true
    }

    /// Bytes of all pieces.
    #[inline]
    pub fn total_len(&self) -> usize {
        match &self.0 {
            Storage::Heap(bytes) => bytes.len(),
            Storage::Mbuf(mbuf) => mbuf.total_len(),
        }
    }

    /// Appends a copy of all pieces to `out`.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Storage::Heap(bytes) => out.extend_from_slice(bytes),
            Storage::Mbuf(mbuf) => mbuf.copy_to(out),
        }
    }

    /// Puts a copy in the place of pieces that are memory of others. Such a frame has nothing left to be filled in.
    pub(super) fn own(&mut self) {
        if self.total_len() != self.len() {
            *self = self.to_heap();
        }
    }

    /// All pieces in one, of no driver.
    pub fn to_heap(&self) -> Frame {
        let mut bytes = Vec::with_capacity(self.total_len());
        self.copy_to(&mut bytes);
        Frame::new(bytes)
    }
}

/// The first piece: all there is of a frame that was received.
impl Deref for Frame {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Storage::Heap(bytes) => bytes,
            Storage::Mbuf(mbuf) => mbuf.bytes(),
        }
    }
}
