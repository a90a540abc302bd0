//! Offloads that a sender requested: checksums to complete, and TCP to cut into segments.
//!
//! They are those of virtio 1.2, 5.1.6.2. If both guests negotiated an offload, nothing is done:
//! the receiver's virtio-net header repeats the sender's. Otherwise the switch does it
//! (`net/finish.rs`), after it has checked the frame.
//!
//! So the offload must not change what was checked. A checksum may only go to the checksum field of
//! the packet's protocol, which no check reads. Segmentation keeps all addresses, protocols and
//! ports.

use super::headers::{Fragment, Ip};
use super::tcp::{TCP_CHECKSUM, TcpLayout};
use virtio_bindings::virtio_net as net;

/// Bytes of the virtio-net header if the driver negotiated virtio 1 or mergeable buffers.
pub const HEADER: usize = 12;

/// The offload that is left to be done to a frame. All positions have been checked against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VirtioOffload {
    /// Nothing.
    None,
    /// The checksum of all bytes from `start` on goes to `start + offset`.
    ///
    /// The sum of the pseudo-header is there when the driver sends the frame.
    Checksum {
        /// Position of the first byte that it covers.
        start: u16,
        /// Offset of the checksum from `start` on.
        offset: u16,
    },
    /// TCP with more payload than fits into a packet. It is to be cut, and each piece needs its
    /// checksum.
    Segments {
        /// Positions of the headers.
        tcp: TcpLayout,
        /// Payload bytes of each piece, except the last.
        size: u16,
    },
}

/// Why the virtio-net header is wrong for its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// The header is impossible, or uses what the driver did not negotiate.
    Senseless,
    /// The checksum to be completed is not that of the packet's TCP, UDP or ICMP.
    Checksum,
}

impl VirtioOffload {
    /// Smallest segment size that a guest may request. It bounds the number of segments of a frame.
    ///
    /// Linux has no smaller MSS either (`tcp_min_snd_mss`).
    pub const MIN_SEGMENT: usize = 48;

    /// Parses the virtio-net header of a frame of `len` bytes that begins with `head`.
    ///
    /// `mtu` is the maximum length of a segment's IP packet in bytes.
    ///
    /// # Errors
    /// The header is wrong.
    pub fn parse(
        header: &[u8; HEADER],
        features: u64,
        head: &[u8],
        len: usize,
        mtu: usize,
    ) -> Result<VirtioOffload, BadHeader> {
        let field = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let (flags, kind, size, start, offset) = (header[0], header[1], field(4), field(6), field(8));
        if u32::from(flags) & net::VIRTIO_NET_HDR_F_NEEDS_CSUM == 0 {
            return if u32::from(kind) == net::VIRTIO_NET_HDR_GSO_NONE {
                Ok(VirtioOffload::None)
            } else {
                Err(BadHeader::Senseless)
            };
        }
        if !has(features, net::VIRTIO_NET_F_CSUM) {
            return Err(BadHeader::Senseless);
        }
        let ip = packet_of_checksum(head, len, start, offset).ok_or(BadHeader::Checksum)?;
        let v6 = match u32::from(kind) {
            net::VIRTIO_NET_HDR_GSO_NONE => return Ok(VirtioOffload::Checksum { start, offset }),
            net::VIRTIO_NET_HDR_GSO_TCPV4 if has(features, net::VIRTIO_NET_F_HOST_TSO4) => false,
            net::VIRTIO_NET_HDR_GSO_TCPV6 if has(features, net::VIRTIO_NET_F_HOST_TSO6) => true,
            _ => return Err(BadHeader::Senseless),
        };
        let tcp = TcpLayout::parse(&ip, head).ok_or(BadHeader::Senseless)?;
        let consistent = tcp.v6 == v6
            && tcp.payload() < len
            && usize::from(size) >= Self::MIN_SEGMENT
            && tcp.payload() - tcp.ip() + usize::from(size) <= mtu;
        if consistent { Ok(VirtioOffload::Segments { tcp, size }) } else { Err(BadHeader::Senseless) }
    }

    /// Whether a driver with these features accepts a frame with this offload left to be done.
    pub fn suits(&self, features: u64) -> bool {
        match self {
            VirtioOffload::None => true,
            VirtioOffload::Checksum { .. } => has(features, net::VIRTIO_NET_F_GUEST_CSUM),
            VirtioOffload::Segments { tcp, .. } => {
                let kind = if tcp.v6 { net::VIRTIO_NET_F_GUEST_TSO6 } else { net::VIRTIO_NET_F_GUEST_TSO4 };
                has(features, net::VIRTIO_NET_F_GUEST_CSUM) && has(features, kind)
            }
        }
    }

    /// Returns the virtio-net header that tells a driver of this offload.
    ///
    /// The frame is in `buffers` buffers.
    pub fn header(&self, buffers: u16) -> [u8; HEADER] {
        let (flags, kind, len, size, start, offset) = match *self {
            VirtioOffload::None => (0, net::VIRTIO_NET_HDR_GSO_NONE, 0, 0, 0, 0),
            VirtioOffload::Checksum { start, offset } => {
                (net::VIRTIO_NET_HDR_F_NEEDS_CSUM, net::VIRTIO_NET_HDR_GSO_NONE, 0, 0, start, offset)
            }
            VirtioOffload::Segments { tcp, size } => {
                let kind = if tcp.v6 { net::VIRTIO_NET_HDR_GSO_TCPV6 } else { net::VIRTIO_NET_HDR_GSO_TCPV4 };
                let (len, start) = (tcp.payload() as u16, tcp.header() as u16);
                (net::VIRTIO_NET_HDR_F_NEEDS_CSUM, kind, len, size, start, TCP_CHECKSUM as u16)
            }
        };
        let mut header = [flags as u8, kind as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for (at, field) in [(2, len), (4, size), (6, start), (8, offset), (10, buffers)] {
            header[at..at + 2].copy_from_slice(&field.to_le_bytes());
        }
        header
    }
}

/// Returns the packet whose checksum covers all bytes from `start` on, and lies at `start +
/// offset`.
///
/// `None` if the frame has no such packet.
fn packet_of_checksum(head: &[u8], len: usize, start: u16, offset: u16) -> Option<Ip> {
    let (start, offset) = (usize::from(start), usize::from(offset));
    let ip = Ip::parse(head)?;
    let right = ip.fragment == Fragment::Whole && start == ip.l4 && Some(offset) == ip.checksum_offset();
    (right && start + offset + 2 <= len).then_some(ip)
}

fn has(features: u64, bit: u32) -> bool {
    features & 1 << bit != 0
}
