//! The sending end of a guest: its transmit queue, and each frame taken out of it.

use super::frame::FrameView;
use super::rings::Rings;
use crate::frames::{BadHeader, HEAD, HEADER, VirtioOffload};
use crate::queue::chains::ChainError;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;

/// Longest Ethernet header in bytes, with two tags.
pub const MAX_ETHERNET: usize = 22;
/// Most bytes of a frame that is to be cut into segments.
///
/// They are the Ethernet header, the IPv6 header, and the longest payload that it can have.
pub const MAX_FRAME: usize = MAX_ETHERNET + 40 + 65535;

/// The counters of frames that a guest sent.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct SenderCounters {
    /// Frames that the guest sent.
    pub tx_frames: u64,
    /// Bytes of those frames.
    pub tx_bytes: u64,
    /// Dropped: from a MAC or IP address that the guest may not use.
    pub tx_spoofed: u64,
    /// Dropped: in a VLAN that the guest may not use, or with several tags.
    pub tx_vlan: u64,
    /// Dropped: the virtio-net header is missing or wrong.
    pub tx_bad_header: u64,
    /// Dropped: the checksum to be completed is not that of the packet's TCP, UDP or ICMP.
    pub tx_bad_checksum: u64,
    /// Dropped: longer than the MTU allows.
    pub tx_oversize: u64,
    /// Sent to the uplink only, not to other guests.
    ///
    /// These are flooded frames (broadcast, multicast, unknown destination) beyond
    /// `limits.flood_rate`, or one frame that would become too many frames.
    pub tx_flood_limited: u64,
    /// Dropped by the switch for another reason.
    pub tx_refused: u64,
    /// Transmit queues that broke, because the driver broke the rules.
    pub tx_broken: u64,
    /// Panics in its session, or in a step of its worker that concerned it. Each ended its
    /// connection.
    pub panics: u64,
    /// Number of times that a kick woke the worker.
    pub kicks: u64,
}

/// The sending end of a guest.
#[derive(Debug)]
pub struct Sender {
    /// Its transmit queue.
    pub rings: Rings,
    /// The counters of sent frames.
    pub counters: SenderCounters,
    head: [u8; HEAD],
    mtu: usize,
}

/// A frame taken out of a transmit queue.
#[derive(Debug)]
pub struct TakenFrame {
    /// Head of its descriptor chain.
    pub chain: u16,
    /// Position of the frame, unless it was refused.
    frame: Option<Layout>,
}

#[derive(Debug)]
struct Layout {
    head: usize,
    /// Bytes of the virtio-net header before the frame.
    header: usize,
    offload: VirtioOffload,
}

impl Sender {
    /// Returns a sender of IP packets of up to `mtu` bytes.
    pub fn new(mtu: usize) -> Sender {
        Sender { rings: Rings::default(), counters: SenderCounters::default(), head: [0; HEAD], mtu }
    }

    /// Takes the next frame that the queue's `refresh` found.
    ///
    /// # Errors
    /// The queue is broken. It takes no more frames.
    pub fn take(&mut self) -> Result<Option<TakenFrame>, ChainError> {
        let Some(queue) = &mut self.rings.queue else { return Ok(None) };
        queue.buffers.clear();
        let Some(chain) = queue.pop()? else { return Ok(None) };
        let frame = self.parse();
        match frame {
            Ok(_) => self.counters.tx_frames += 1,
            Err(Refusal::Header(BadHeader::Senseless)) => self.counters.tx_bad_header += 1,
            Err(Refusal::Header(BadHeader::Checksum)) => self.counters.tx_bad_checksum += 1,
            Err(Refusal::Length) => self.counters.tx_oversize += 1,
        }
        Ok(Some(TakenFrame { chain, frame: frame.ok() }))
    }

    /// Returns the frame. It is valid until the next frame is taken.
    pub fn frame(&self, taken: &TakenFrame) -> Option<FrameView<'_>> {
        let (layout, queue) = (taken.frame.as_ref()?, self.rings.queue.as_ref()?);
        let offset = layout.header + layout.head;
        Some(FrameView::guest(&self.head[..layout.head], &queue.buffers, offset, layout.offload))
    }

    fn parse(&mut self) -> Result<Layout, Refusal> {
        let buffers = &self.rings.queue.as_ref().expect("a chain was taken out of it").buffers;
        let features = self.rings.features;
        let header = header_len(features);
        let len = buffers.len().checked_sub(header).ok_or(Refusal::Header(BadHeader::Senseless))?;
        if len > MAX_FRAME {
            return Err(Refusal::Length);
        }
        let mut bytes = [0; HEADER];
        buffers.read(0, &mut bytes[..header]);
        let head = len.min(HEAD);
        buffers.read(header, &mut self.head[..head]);
        let offload = VirtioOffload::parse(&bytes, features, &self.head[..head], len, self.mtu);
        let offload = offload.map_err(Refusal::Header)?;
        if !matches!(offload, VirtioOffload::Segments { .. }) && len > self.mtu + MAX_ETHERNET {
            return Err(Refusal::Length);
        }
        self.counters.tx_bytes += len as u64;
        Ok(Layout { head, header, offload })
    }
}

enum Refusal {
    Header(BadHeader),
    Length,
}

/// Returns the bytes of the virtio-net header before each frame (virtio 1.2, 5.1.6.1).
///
/// Legacy drivers without mergeable buffers have a shorter header.
pub fn header_len(features: u64) -> usize {
    let long = features & (1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_NET_F_MRG_RXBUF) != 0;
    if long { HEADER } else { HEADER - 2 }
}
