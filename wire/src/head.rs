//! The first headers of a frame, read once for all users.

use crate::DropReason;
use crate::eth::Eth;
use crate::num::Gid;
use crate::{icmp, ip, tcp, udp};

/// The first headers of a frame, by which a switch decides.
///
/// Readers of the frame continue behind the Ethernet header, for example with
/// [`roce::Packet::parse_behind`](crate::roce::Packet::parse_behind).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The Ethernet header.
    pub eth: Eth,
    /// Content of the frame.
    pub kind: FrameKind,
}

/// Content of a frame, as its first headers show it. The frame may still turn out to be malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// RoCEv2: UDP to port 4791 over IPv4 or IPv6, not fragmented.
    Roce,
    /// TCP over IPv4 or IPv6, not fragmented, without IP options or extension headers.
    Tcp(Endpoints),
    /// ICMP's report that a packet was too long ([`icmp`]). It comes over IPv4 or IPv6, not
    /// fragmented, without IP options or extension headers.
    TooLong,
    /// Anything else.
    Other,
}

/// Addresses and ports of a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Address of the sender. An IPv4 address is mapped.
    pub src: Gid,
    /// Address of the receiver. An IPv4 address is mapped.
    pub dst: Gid,
    /// Port of the sender.
    pub src_port: u16,
    /// Port of the receiver.
    pub dst_port: u16,
}

impl Head {
    /// Reads the front of a frame, from the Ethernet header on.
    ///
    /// # Errors
    /// [`DropReason::Truncated`]: there is no whole Ethernet header.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Head, DropReason> {
        let (eth, packet) = Eth::parse(frame)?;
        Ok(Head { eth, kind: FrameKind::of(eth.ethertype, packet) })
    }

    /// Returns the bytes behind the Ethernet header; none if the frame ends earlier.
    #[inline]
    pub(crate) fn packet<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.eth.len()..).unwrap_or_default()
    }

    /// Returns addresses and ports, if the frame is a TCP segment.
    #[inline]
    pub fn ends(&self) -> Option<&Endpoints> {
        match &self.kind {
            FrameKind::Tcp(ends) => Some(ends),
            _ => None,
        }
    }
}

impl FrameKind {
    /// Returns the kind of the bytes behind an Ethernet header with this EtherType.
    #[inline]
    fn of(ethertype: u16, packet: &[u8]) -> FrameKind {
        match ip::protocol_of(ethertype, packet) {
            Some(ip::UDP) if ip::udp_of(ethertype, packet).is_some_and(udp::is_roce) => FrameKind::Roce,
            Some(tcp::PROTOCOL) => match ip::plain_of(ethertype, packet, tcp::PROTOCOL) {
                Some((src, dst, &[a, b, c, d, ..])) => {
                    let (src_port, dst_port) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
                    FrameKind::Tcp(Endpoints { src, dst, src_port, dst_port })
                }
                _ => FrameKind::Other,
            },
            Some(icmp::ICMP | icmp::ICMPV6) if icmp::seems_too_long(ethertype, packet) => FrameKind::TooLong,
            _ => FrameKind::Other,
        }
    }
}
