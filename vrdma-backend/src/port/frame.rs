//! Frames on their way between a port and the code that makes and reads them.

use super::Offload;
use super::dpdk::Mbuf;
use std::ops::Deref;

/// An Ethernet frame without FCS. Dropping it returns its buffer to where it came from.
///
/// A received frame is in one piece. A frame to send may have pieces of external memory after its
/// first piece ([`External`](super::External)).
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

/// Who made a frame.
///
/// A frame that a driver receives is [`Origin::Wire`], unless another worker of this process sent
/// or copied it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Another host.
    #[default]
    Wire,
    /// Another host, as for [`Origin::Wire`]. This is a copy: the worker that received the frame
    /// from the NIC has it, too, and shows it to captures.
    WireCopy,
    /// A guest of this process, by its Ethernet function or its TCP. Its source MAC address was
    /// checked.
    Guest,
    /// A guest, as for [`Origin::Guest`], that has exceeded its limit of flooded frames.
    ///
    /// The frame goes to other hosts only.
    Flooder,
    /// An engine of this process. The source MAC address and GID belong to one of its devices.
    Engine,
}

/// A buffer for frames between workers. It goes back to the worker that made it.
#[derive(Debug)]
pub(super) struct Buffer {
    /// Room for the longest frame.
    pub bytes: Box<[u8]>,
    /// The number of bytes that are used.
    pub len: usize,
    /// The worker that made the buffer.
    pub home: usize,
}

impl Frame {
    /// Makes a frame of these bytes, in no driver's buffer. Sending it costs one more copy.
    pub fn new(bytes: Vec<u8>) -> Frame {
        Frame { storage: Storage::Heap(bytes), origin: Origin::Wire }
    }

    pub(super) fn from_buffer(buffer: Buffer, origin: Origin) -> Frame {
        Frame { storage: Storage::Buffer(buffer), origin }
    }

    /// Returns the buffer, or the frame itself if it is in another kind of storage.
    pub(super) fn into_buffer(self) -> Result<Buffer, Frame> {
        match self.storage {
            Storage::Buffer(buffer) => Ok(buffer),
            storage => Err(Frame { storage, ..self }),
        }
    }

    /// Returns who made the frame.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    pub(super) fn set_origin(&mut self, origin: Origin) {
        self.origin = origin;
    }

    pub(super) fn from_mbuf(mbuf: Mbuf) -> Frame {
        Frame { storage: Storage::Mbuf(mbuf), origin: Origin::Wire }
    }

    /// Returns the mbuf, or the frame itself if it is in another kind of storage.
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

    /// Requests checksums from the driver. This has an effect only if the frame is in an mbuf.
    pub(super) fn ask(&mut self, offload: Offload) {
        if let Storage::Mbuf(mbuf) = &mut self.storage {
            mbuf.ask(offload);
        }
    }

    /// Returns the checksum that the driver was asked to fill in, as [`Mbuf::open_checksum`] does.
    pub(super) fn open_checksum(&self) -> Option<(u16, u16)> {
        match &self.storage {
            Storage::Mbuf(mbuf) => mbuf.open_checksum(),
            Storage::Heap(_) | Storage::Buffer(_) => None,
        }
    }

    /// Returns the whole first piece, from the Ethernet header on.
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

    /// Extends a frame in no driver's buffer by `len` bytes, which `fill` writes. Returns false for
    /// other frames.
    pub(super) fn extend(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let Storage::Heap(bytes) = &mut self.storage else { return false };
        let before = bytes.len();
        bytes.resize(before + len, 0);
        fill(&mut bytes[before..]);
        true
    }

    /// Returns the number of bytes in all pieces.
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

    /// Replaces external memory by a copy. Such a frame has no checksum left to fill in.
    pub(super) fn own(&mut self) {
        if self.total_len() != self.len() {
            *self = self.to_heap();
        }
    }

    /// Returns a copy of all pieces in one, in no driver's buffer.
    pub fn to_heap(&self) -> Frame {
        let mut bytes = Vec::with_capacity(self.total_len());
        self.copy_to(&mut bytes);
        Frame { storage: Storage::Heap(bytes), origin: self.origin }
    }

    /// Copies all pieces to the beginning of `out`, which has room for them. Returns the number of
    /// bytes.
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

/// Dereferences to the first piece. A received frame has no other.
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
