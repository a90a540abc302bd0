//! A frame on its way through the switch.

use crate::allowed::FrameVlan;
use crate::frames::{HEAD, VirtioOffload};
use crate::memory::Buffers;
use vrdma_wire::head::Head;
use vrdma_wire::num::VlanId;

/// An Ethernet frame without its CRC, and where its bytes are.
///
/// The head is a copy that the sender cannot change. So decisions that were made from it stay true.
#[derive(Clone, Copy, Debug)]
pub struct FrameView<'a> {
    /// The first [`HEAD`] bytes, or all if there are fewer.
    head: &'a [u8],
    /// The headers in `head`; `None` if the Ethernet header is not complete.
    headers: Option<Head>,
    rest: Rest<'a>,
    /// The offload that its sender requested.
    pub offload: VirtioOffload,
}

#[derive(Clone, Copy, Debug)]
enum Rest<'a> {
    /// The whole frame, in memory of this process.
    Bytes(&'a [u8]),
    /// The guest's bytes from an offset on. The guest may still write to them.
    Guest(&'a Buffers, usize),
}

impl<'a> FrameView<'a> {
    /// Returns a view of a whole frame in memory of this process.
    pub fn bytes(frame: &'a [u8]) -> FrameView<'a> {
        FrameView::with_headers(Head::parse(frame).ok(), frame)
    }

    /// Returns a view of a whole frame in memory of this process, with known headers.
    pub fn with_headers(headers: Option<Head>, frame: &'a [u8]) -> FrameView<'a> {
        let head = &frame[..frame.len().min(HEAD)];
        FrameView { head, headers, rest: Rest::Bytes(frame), offload: VirtioOffload::None }
    }

    /// Returns the frame's bytes if no offload is left to be done and no guest can change them.
    pub fn finished(&self) -> Option<&'a [u8]> {
        match self.rest {
            Rest::Bytes(bytes) if self.offload == VirtioOffload::None => Some(bytes),
            Rest::Bytes(_) | Rest::Guest(..) => None,
        }
    }

    /// Returns a view of a guest's frame.
    ///
    /// `head` is a copy of its head. The rest begins at `offset` in the buffers.
    pub fn guest(
        head: &'a [u8],
        buffers: &'a Buffers,
        offset: usize,
        offload: VirtioOffload,
    ) -> FrameView<'a> {
        FrameView { head, headers: Head::parse(head).ok(), rest: Rest::Guest(buffers, offset), offload }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        match self.rest {
            Rest::Bytes(bytes) => bytes.len(),
            Rest::Guest(buffers, offset) => self.head.len() + buffers.len() - offset,
        }
    }

    /// Returns the bytes of its head.
    pub fn head(&self) -> &'a [u8] {
        self.head
    }

    /// Returns its headers; `None` if the Ethernet header is not complete.
    pub fn headers(&self) -> Option<&Head> {
        self.headers.as_ref()
    }

    /// Returns its VLAN. A frame without a complete header counts as untagged.
    pub fn vlan(&self) -> FrameVlan {
        self.headers().map_or(FrameVlan::One(VlanId::UNTAGGED), |headers| FrameVlan::of(&headers.eth))
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Panics
    /// The frame is shorter. Callers know its length.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        let from_head = self.head.len().saturating_sub(offset).min(out.len());
        let (first, second) = out.split_at_mut(from_head);
        if !first.is_empty() {
            first.copy_from_slice(&self.head[offset..offset + from_head]);
        }
        if second.is_empty() {
            return;
        }
        let offset = offset + from_head - self.head.len();
        match self.rest {
            Rest::Bytes(bytes) => second.copy_from_slice(&bytes[self.head.len() + offset..][..second.len()]),
            Rest::Guest(buffers, start) => buffers.read(start + offset, second),
        }
    }

    /// Copies the whole frame to a guest's buffers, from `offset` on.
    ///
    /// # Panics
    /// There is no room. Callers know the length.
    pub fn copy_to(&self, to: &Buffers, offset: usize) {
        to.write(offset, self.head);
        let offset = offset + self.head.len();
        match self.rest {
            Rest::Bytes(bytes) => to.write(offset, &bytes[self.head.len()..]),
            Rest::Guest(buffers, start) => buffers.copy_to(start, to, offset, buffers.len() - start),
        }
    }
}
