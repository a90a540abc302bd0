//! RoCEv2 packets as values (IBTA annex A17), read from and written to frames.

mod body;
mod part;

pub use crate::bth::Bth;
pub use crate::ext::{Aeth, AtomicEth, Credits, Deth, Feth, NakCode, Reth, RnrTimer, Syndrome};
pub use body::{AtomicKind, Body, Opcode, Rc, Uc, Xrc};
pub use part::{Part, ReadPart, SendTail, UcTail, WriteTail};

use crate::DropReason;
use crate::eth::{self, Eth};
use crate::head::{FrameKind, Head};
use crate::icrc::{self, Icrc};
use crate::ip::{self, Ip};
use crate::num::{FlowLabel, Gid, Mac, VlanTag};
use crate::rw::{Reader, Writer};
use crate::{bth, udp};

/// The UDP destination port of RoCEv2 packets.
pub const UDP_PORT: u16 = udp::ROCE_PORT;
/// Length of the longest payload of a packet: the greatest path MTU.
pub const MAX_PAYLOAD: usize = 4096;
/// Length of the longest headers, Ethernet's included: tagged, IPv6, an atomic request of XRC.
pub const MAX_HEADERS: usize = eth::MAX_LEN + ip::V6_LEN + udp::LEN + bth::LEN + body::MAX_LEN;
/// Length of the longest frame, without Ethernet's own CRC.
pub const MAX_FRAME: usize = MAX_HEADERS + MAX_PAYLOAD + icrc::LEN;

/// The headers of a packet: everything but its payload.
///
/// # Example
///
/// A WRITE of five bytes is written as a frame, and read again:
///
/// ```
/// use vrdma_wire::icrc;
/// use vrdma_wire::num::{FlowLabel, Gid, Mac, Psn, Qpn, Rkey};
/// use vrdma_wire::roce::{Body, Bth, MAX_FRAME, Packet, Part, Path, Rc, Reth, WriteTail};
///
/// let path = Path {
///     src_mac: Mac([2, 0, 0, 0, 0, 1]),
///     dst_mac: Mac([2, 0, 0, 0, 0, 2]),
///     vlan: None,
///     src: Gid::from_ipv4([10, 0, 0, 1]),
///     dst: Gid::from_ipv4([10, 0, 0, 2]),
///     traffic_class: 0,
///     flow_label: FlowLabel::default(),
///     hop_limit: 64,
///     src_port: 0xc000,
/// };
/// let (dest, psn) = (Qpn::truncate(17), Psn::truncate(100));
/// let bth = Bth { dest, psn, ack_req: true, ..Bth::default() };
/// let reth = Reth { va: 0x1000, rkey: Rkey(7), length: 5 };
/// let body = Body::Rc(Rc::Write(Part::Only(reth, WriteTail::Plain)));
/// let packet = Packet { path, bth, body };
///
/// let mut frame = [0; MAX_FRAME];
/// let headers = packet.emit(5, &mut frame);
/// frame[headers..][..5].copy_from_slice(b"hello"); // Three bytes of padding follow.
/// let length = packet.frame_len(5);
/// icrc::seal(&mut frame[..length]);
///
/// let parsed = Packet::parse(&frame[..length]).expect("a RoCE packet");
/// assert_eq!(parsed.packet, packet);
/// assert_eq!(parsed.payload, b"hello");
/// assert_eq!(parsed.check_icrc(), Ok(()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Addresses: Ethernet, IP and UDP.
    pub path: Path,
    /// The base transport header.
    pub bth: Bth,
    /// Operation of the packet, with its extended headers.
    pub body: Body,
}

/// Ethernet, IP and UDP headers of a packet, in the terms of RoCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Ethernet source.
    pub src_mac: Mac,
    /// Ethernet destination.
    pub dst_mac: Mac,
    /// 802.1Q tag.
    pub vlan: Option<VlanTag>,
    /// IP source. An IPv4-mapped address means IPv4.
    pub src: Gid,
    /// IP destination, of the same version as the source. Packets between an IPv4 and an IPv6
    /// address are written, but every receiver drops them.
    pub dst: Gid,
    /// Traffic class of IPv6, type of service of IPv4: DSCP (6 bits) and ECN (2 bits).
    pub traffic_class: u8,
    /// Flow label of IPv6. Unused in IPv4.
    pub flow_label: FlowLabel,
    /// Hop limit of IPv6, TTL of IPv4.
    pub hop_limit: u8,
    /// UDP source port: see [`entropy`](crate::entropy).
    pub src_port: u16,
}

impl Path {
    #[inline]
    fn ip(&self) -> Ip {
        Ip {
            src: self.src,
            dst: self.dst,
            traffic_class: self.traffic_class,
            flow_label: self.flow_label,
            hop_limit: self.hop_limit,
        }
    }

    /// Returns the length of the Ethernet, IP and UDP headers.
    #[inline]
    fn len(&self) -> usize {
        self.eth().len() + self.ip_len() + udp::LEN
    }

    #[inline]
    fn ip_len(&self) -> usize {
        if self.is_ipv4() { ip::V4_LEN } else { ip::V6_LEN }
    }

    #[inline]
    fn eth(&self) -> Eth {
        let ethertype = if self.is_ipv4() { eth::IPV4 } else { eth::IPV6 };
        Eth { dst: self.dst_mac, src: self.src_mac, vlan: self.vlan, ethertype }
    }

    /// Returns whether the packet goes over IPv4.
    #[inline]
    pub fn is_ipv4(&self) -> bool {
        Ip::is_v4(self.src, self.dst)
    }
}

/// A packet as read from a frame. Its ICRC is not checked yet.
#[derive(Clone, Copy, Debug)]
pub struct Parsed<'a> {
    /// The packet.
    pub packet: Packet,
    /// Its payload, without padding.
    pub payload: &'a [u8],
    /// The bytes that the ICRC covers: from the IP header to the padding.
    covered: &'a [u8],
    icrc: [u8; icrc::LEN],
}

impl<'a> Parsed<'a> {
    /// Checks the ICRC.
    ///
    /// # Errors
    /// [`DropReason::Icrc`]: the ICRC is wrong.
    #[inline]
    pub fn check_icrc(&self) -> Result<(), DropReason> {
        let right = Icrc::of_ip(self.packet.path.is_ipv4(), self.covered).finish();
        if right == self.icrc { Ok(()) } else { Err(DropReason::Icrc) }
    }

    /// Returns the IP header as received, 20 or 40 bytes. A UD receive shows it as the GRH.
    #[inline]
    pub fn ip_header(&self) -> &'a [u8] {
        &self.covered[..self.packet.path.ip_len()]
    }
}

/// Returns whether a frame is of [`FrameKind::Roce`].
pub fn is_roce(frame: &[u8]) -> bool {
    Head::parse(frame).is_ok_and(|head| head.kind == FrameKind::Roce)
}

/// Returns whether a frame is a RoCE packet with a correct ICRC.
///
/// Callers that also need the packet use [`Parsed::check_icrc`].
pub fn check_icrc(frame: &[u8]) -> bool {
    Packet::parse(frame).is_ok_and(|parsed| parsed.check_icrc().is_ok())
}

impl Packet {
    /// Reads a frame, from the Ethernet header on, without Ethernet's own CRC.
    ///
    /// Ethernet's padding is ignored. Everything that needs no state is checked, except for the
    /// ICRC ([`Parsed::check_icrc`]).
    pub fn parse(frame: &[u8]) -> Result<Parsed<'_>, DropReason> {
        let (eth, packet) = Eth::parse(frame)?;
        Packet::parse_ip(&eth, packet)
    }

    /// Reads a frame whose first headers were read before, with the checks of [`Packet::parse`].
    #[inline]
    pub fn parse_behind<'a>(head: &Head, frame: &'a [u8]) -> Result<Parsed<'a>, DropReason> {
        Packet::parse_ip(&head.eth, head.packet(frame))
    }

    #[inline]
    fn parse_ip<'a>(eth: &Eth, packet: &'a [u8]) -> Result<Parsed<'a>, DropReason> {
        let (ip, datagram) = Ip::parse(eth.ethertype, packet, ip::UDP)?;
        let (src_port, ib) = udp::parse(datagram)?;

        let (ib, trailer) = ib.split_last_chunk::<{ icrc::LEN }>().ok_or(DropReason::Truncated)?;
        let mut reader = Reader(ib);
        let head = Bth::parse(&mut reader)?;
        let body = Body::parse(head.opcode, &mut reader)?;
        let padded = reader.0;
        if padded.len() % 4 != 0 {
            return Err(DropReason::Pad);
        }
        let payload = padded.len().checked_sub(head.pad).ok_or(DropReason::Pad)?;
        if !body.may_carry(payload) {
            return Err(DropReason::PayloadLength);
        }

        let path = Path {
            src_mac: eth.src,
            dst_mac: eth.dst,
            vlan: eth.vlan,
            src: ip.src,
            dst: ip.dst,
            traffic_class: ip.traffic_class,
            flow_label: ip.flow_label,
            hop_limit: ip.hop_limit,
            src_port,
        };
        // The IP header, the UDP header and the IB packet are adjacent.
        let covered = &packet[..path.ip_len() + udp::LEN + ib.len()];
        Ok(Parsed {
            packet: Packet { path, bth: head.bth, body },
            payload: &padded[..payload],
            covered,
            icrc: *trailer,
        })
    }

    /// Returns the first headers of the frame.
    #[inline]
    pub fn head(&self) -> Head {
        Head { eth: self.path.eth(), kind: FrameKind::Roce }
    }

    /// Returns the length of the headers, Ethernet's included.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.path.len() + bth::LEN + self.body.len()
    }

    /// Returns the length of the frame with `payload` bytes of payload, from the Ethernet header to
    /// the ICRC.
    #[inline]
    pub fn frame_len(&self, payload: usize) -> usize {
        self.header_len() + payload + pad(payload) + icrc::LEN
    }

    /// Writes all headers of a packet with `payload` bytes of payload into `buf`. Returns their
    /// length.
    ///
    /// The caller adds the payload, [`pad`] bytes of zero, and the [`Icrc`].
    ///
    /// # Panics
    /// If `buf` is shorter than the headers ([`MAX_HEADERS`] is always enough). If `payload`
    /// exceeds [`MAX_PAYLOAD`]: no path MTU is greater.
    pub fn emit(&self, payload: usize, buf: &mut [u8]) -> usize {
        let (pad, ib) = self.ib_len(payload);
        let mut writer = Writer::new(buf);
        self.path.eth().put(&mut writer);
        self.path.ip().put(udp::LEN as u16 + ib, ip::UDP, &mut writer);
        udp::put(self.path.src_port, ib, &mut writer);
        self.bth.put(self.body.number(), pad, &mut writer);
        self.body.put(&mut writer);
        writer.len()
    }

    /// Writes only the IP header of a packet with `payload` bytes of payload into `buf`. Returns
    /// its length.
    ///
    /// A UD receive shows it as the GRH, if the packet itself is never written.
    ///
    /// # Panics
    /// If `buf` is shorter than the header, or `payload` exceeds [`MAX_PAYLOAD`].
    pub fn emit_ip(&self, payload: usize, buf: &mut [u8]) -> usize {
        let (_, ib) = self.ib_len(payload);
        let mut writer = Writer::new(buf);
        self.path.ip().put(udp::LEN as u16 + ib, ip::UDP, &mut writer);
        writer.len()
    }

    /// Returns the number of padding bytes behind the payload, and the number of bytes behind the
    /// UDP header.
    fn ib_len(&self, payload: usize) -> (usize, u16) {
        assert!(payload <= MAX_PAYLOAD, "a payload is within the greatest path MTU");
        let pad = pad(payload);
        (pad, (bth::LEN + self.body.len() + payload + pad + icrc::LEN) as u16)
    }
}

/// Returns the number of padding bytes behind a payload of this length.
///
/// Together they are a multiple of 4 (IBTA 9.2.3).
pub const fn pad(payload: usize) -> usize {
    payload.wrapping_neg() & 3
}
