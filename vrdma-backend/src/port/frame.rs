//! Frames on their way between a port and those who make and read them.

use super::Offload;
use super::dpdk::Mbuf;
use std::ops::Deref;

/// An Ethernet frame without FCS; its buffer goes back to where it came from when this is dropped.
///
/// What was received is one piece. What is to be sent may have pieces of memory of others after its
/// first ([`External`](super::External)).
#[derive(Debug)]
pub struct Frame {
    storage: Storage,
    origin: Origin,
}

#[derive(Debug)]
enum Storage {
    Heap(Vec<u8>),
    Mbuf(Mbuf),
    Buffer(Buffer),
}

/// Who made a frame. What a driver receives is [`Origin::Wire`], unless another worker of this
/// process sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Another host.
    #[default]
    Wire,
    /// A guest of this process, by its Ethernet function or its TCP. Its source MAC address was
    /// checked.
    Guest,
    /// The same, and it is more than its guest may send to several ports: it goes to other hosts
    /// alone.
    Flooder,
    /// An engine of this process. Its source is that of one of the engine's devices, the GID too.
    Engine,
}

/// A buffer for frames between workers, which goes back to the worker that made it.
#[derive(Debug)]
pub(super) struct Buffer {
    /// Room for the longest frame,
    pub bytes: Box<[u8]>,
    /// of which so much is used.
    pub len: usize,
    /// The worker that made it.
    pub home: usize,
}

impl Frame {
    /// A frame of these bytes, of no driver: it is copied once more when it is sent.
    pub fn new(bytes: Vec<u8>) -> Frame {
        Frame { storage: Storage::Heap(bytes), origin: Origin::Wire }
    }

    pub(super) fn from_buffer(buffer: Buffer, origin: Origin) -> Frame {
        Frame { storage: Storage::Buffer(buffer), origin }
    }

    /// The buffer, or itself back.
    pub(super) fn into_buffer(self) -> Result<Buffer, Frame> {
        match self.storage {
            Storage::Buffer(buffer) => Ok(buffer),
            storage => Err(Frame { storage, ..self }),
        }
    }

    /// Who made it.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    pub(super) fn set_origin(&mut self, origin: Origin) {
        self.origin = origin;
    }

    pub(super) fn from_mbuf(mbuf: Mbuf) -> Frame {
        Frame { storage: Storage::Mbuf(mbuf), origin: Origin::Wire }
    }

    /// The mbuf, or itself back.
    pub(super) fn into_mbuf(self) -> Result<Mbuf, Frame> {
        match self.storage {
            Storage::Mbuf(mbuf) => Ok(mbuf),
            storage => Err(Frame { storage, ..self }),
        }
    }

    pub(super) fn as_mbuf(&mut self) -> Option<&mut Mbuf> {
        match &mut self.storage {
            Storage::Mbuf(mbuf) => Some(mbuf),
            Storage::Heap(_) | Storage::Buffer(_) => None,
        }
    }

    /// Asks a driver for checksums; only a frame of its own can.
    pub(super) fn ask(&mut self, offload: Offload) {
        if let Storage::Mbuf(mbuf) = &mut self.storage {
            mbuf.ask(offload);
        }
    }

    /// The checksum that a driver was asked to fill in: see [`Mbuf::open_checksum`].
    pub(super) fn open_checksum(&self) -> Option<(u16, u16)> {
        match &self.storage {
            Storage::Mbuf(mbuf) => mbuf.open_checksum(),
            Storage::Heap(_) | Storage::Buffer(_) => None,
        }
    }

    /// Everything that fits into the first piece, from the Ethernet header on.
    #[inline]
    pub(super) fn room(&mut self) -> &mut [u8] {
        match &mut self.storage {
            Storage::Heap(bytes) => bytes,
            Storage::Mbuf(mbuf) => mbuf.room(),
            Storage::Buffer(buffer) => &mut buffer.bytes,
        }
    }

    /// Makes the first `len` bytes of the room the frame.
    #[inline]
    pub(super) fn set_len(&mut self, len: usize) {
        match &mut self.storage {
            Storage::Heap(bytes) => bytes.truncate(len),
            Storage::Mbuf(mbuf) => mbuf.set_len(len),
            Storage::Buffer(buffer) => buffer.len = len,
        }
    }

    /// Makes a frame of no driver longer by `len` bytes, which `fill` writes; false for others.
    pub(super) fn extend(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let Storage::Heap(bytes) = &mut self.storage else { return false };
        let before = bytes.len();
        bytes.resize(before + len, 0);
        fill(&mut bytes[before..]);
        true
    }

    /// Bytes of all pieces.
    #[inline]
    pub fn total_len(&self) -> usize {
        match &self.storage {
            Storage::Heap(bytes) => bytes.len(),
            Storage::Mbuf(mbuf) => mbuf.total_len(),
            Storage::Buffer(buffer) => buffer.len,
        }
    }

    /// Appends a copy of all pieces to `out`.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        match &self.storage {
            Storage::Heap(bytes) => out.extend_from_slice(bytes),
            Storage::Mbuf(mbuf) => mbuf.copy_to(out),
            Storage::Buffer(buffer) => out.extend_from_slice(&buffer.bytes[..buffer.len]),
        }
    }

    /// Puts a copy in the place of pieces that are memory of others. Such a frame has nothing left
    /// to be filled in.
    pub(super) fn own(&mut self) {
        if self.total_len() != self.len() {
            *self = self.to_heap();
        }
    }

    /// All pieces in one, of no driver.
    pub fn to_heap(&self) -> Frame {
        let mut bytes = Vec::with_capacity(self.total_len());
        self.copy_to(&mut bytes);
        Frame { storage: Storage::Heap(bytes), origin: self.origin }
    }

    /// Copies all pieces into the beginning of `out`, which has room for them; how many bytes.
    pub(super) fn copy_into(&self, out: &mut [u8]) -> usize {
        match &self.storage {
            Storage::Mbuf(mbuf) => mbuf.copy_into(out),
            Storage::Heap(_) | Storage::Buffer(_) => {
                out[..self.len()].copy_from_slice(self);
                self.len()
            }
        }
    }
}

/// The first piece: all there is of a frame that was received.
impl Deref for Frame {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.storage {
            Storage::Heap(bytes) => bytes,
            Storage::Mbuf(mbuf) => mbuf.bytes(),
            Storage::Buffer(buffer) => &buffer.bytes[..buffer.len],
        }
    }
}
