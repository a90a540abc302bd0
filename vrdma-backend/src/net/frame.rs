//! A frame on its way through the switch.

use crate::allowed::FrameVlan;
use crate::frames::{HEAD, VirtioOffload};
use crate::memory::Buffers;
use vrdma_wire::head::Head;
use vrdma_wire::num::VlanId;

/// An Ethernet frame without its CRC, where it lies.
///
/// What was decided from the head has to stay true, so the head is a copy that its sender cannot
/// change any more.
#[derive(Clone, Copy, Debug)]
pub struct FrameView<'a> {
    /// The first [`HEAD`] bytes, or all if there are less.
    head: &'a [u8],
    /// The headers in it; `None` if it has no whole Ethernet header.
    headers: Option<Head>,
    rest: Rest<'a>,
    /// What its sender left to be done.
    pub offload: VirtioOffload,
}

#[derive(Clone, Copy, Debug)]
enum Rest<'a> {
    /// All of the frame, which is in memory of this process.
    Bytes(&'a [u8]),
    /// Bytes of a guest from an offset on, which the guest may still write to.
    Guest(&'a Buffers, usize),
}

impl<'a> FrameView<'a> {
    /// A whole frame in memory of this process.
    pub fn bytes(frame: &'a [u8]) -> FrameView<'a> {
        FrameView::with_headers(Head::parse(frame).ok(), frame)
    }

    /// A whole frame in memory of this process, whose headers are known.
    pub fn with_headers(headers: Option<Head>, frame: &'a [u8]) -> FrameView<'a> {
        let head = &frame[..frame.len().min(HEAD)];
        FrameView { head, headers, rest: Rest::Bytes(frame), offload: VirtioOffload::None }
    }

    /// Where it lies, if nothing is left to be done to it and no guest can change it.
    pub fn finished(&self) -> Option<&'a [u8]> {
        match self.rest {
            Rest::Bytes(bytes) if self.offload == VirtioOffload::None => Some(bytes),
            Rest::Bytes(_) | Rest::Guest(..) => None,
        }
    }

    /// A frame of a guest: a copy of its head, and all behind the head, which begins at `offset`.
    pub fn guest(
        head: &'a [u8],
        buffers: &'a Buffers,
        offset: usize,
        offload: VirtioOffload,
    ) -> FrameView<'a> {
        FrameView { head, headers: Head::parse(head).ok(), rest: Rest::Guest(buffers, offset), offload }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self.rest {
            Rest::Bytes(bytes) => bytes.len(),
            Rest::Guest(buffers, offset) => self.head.len() + buffers.len() - offset,
        }
    }

    /// The bytes of its headers.
    pub fn head(&self) -> &'a [u8] {
        self.head
    }

    /// Its headers; `None` for a frame without a whole Ethernet header.
    pub fn headers(&self) -> Option<&Head> {
        self.headers.as_ref()
    }

    /// Its VLAN; that of frames without a tag for what has no whole header.
    pub fn vlan(&self) -> FrameVlan {
        self.headers().map_or(FrameVlan::One(VlanId::UNTAGGED), |headers| FrameVlan::of(&headers.eth))
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Panics
    /// They are not all there: callers know the length.
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

    /// Copies all of it to buffers of a guest, from `offset` on.
    ///
    /// # Panics
    /// There is no room: callers know the length.
    pub fn copy_to(&self, to: &Buffers, offset: usize) {
        to.write(offset, self.head);
        let offset = offset + self.head.len();
        match self.rest {
            Rest::Bytes(bytes) => to.write(offset, &bytes[self.head.len()..]),
            Rest::Guest(buffers, start) => buffers.copy_to(start, to, offset, buffers.len() - start),
        }
    }
}
