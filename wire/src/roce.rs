//! A RoCEv2 packet as a value (IBTA annex A17), read from and written to frames.

mod body;
mod part;

pub use crate::bth::Bth;
pub use crate::ext::{Aeth, AtomicEth, Credits, Deth, Feth, NakCode, Reth, RnrTimer, Syndrome};
pub use body::{Body, Rc, Uc, Xrc};
pub use part::{Part, ReadPart, SendTail, UcTail, WriteTail};

use crate::Drop;
use crate::eth::{self, Eth};
use crate::head::{Head, Kind};
use crate::icrc::{self, Icrc};
use crate::ip::{self, Ip};
use crate::num::{FlowLabel, Gid, Mac, VlanTag};
use crate::rw::{Reader, Writer};
use crate::{bth, udp};

/// The UDP port that RoCEv2 packets go to.
pub const UDP_PORT: u16 = udp::ROCE_PORT;
/// Longest payload of a packet: the greatest path MTU.
pub const MAX_PAYLOAD: usize = 4096;
/// Longest headers, from Ethernet's on: tagged, IPv6, an atomic request of XRC.
pub const MAX_HEADERS: usize = eth::MAX_LEN + ip::V6_LEN + udp::LEN + bth::LEN + body::MAX_LEN;
/// Longest frame, without Ethernet's own CRC.
pub const MAX_FRAME: usize = MAX_HEADERS + MAX_PAYLOAD + icrc::LEN;

/// A packet: everything but its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// From where to where.
    pub path: Path,
    /// The base transport header.
    pub bth: Bth,
    /// What it is, with its extended headers.
    pub body: Body,
}

/// Ethernet, IP and UDP of a packet, in terms of RoCE.
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
    /// IP destination, of the same kind as the source: packets between an IPv4 and an IPv6 address
    /// are written, but no one takes them.
    pub dst: Gid,
    /// Traffic class of IPv6, type of service of IPv4: DSCP (6 bits) and ECN (2 bits).
    pub traffic_class: u8,
    /// Flow label of IPv6; nothing in IPv4.
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

    /// Length of Ethernet, IP and UDP headers.
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

    /// Whether it goes over IPv4.
    #[inline]
    pub fn is_ipv4(&self) -> bool {
        Ip::is_v4(self.src, self.dst)
    }
}

/// A packet as it was read from a frame. Its ICRC has not been checked.
#[derive(Clone, Copy, Debug)]
pub struct Parsed<'a> {
    /// The packet.
    pub packet: Packet,
    /// Its payload, without padding.
    pub payload: &'a [u8],
    /// From the IP header to the padding: what the ICRC covers.
    covered: &'a [u8],
    icrc: [u8; icrc::LEN],
}

impl<'a> Parsed<'a> {
    /// Checks the ICRC; wrong is [`Drop::Icrc`].
    #[inline]
    pub fn check_icrc(&self) -> Result<(), Drop> {
        let right = Icrc::of_ip(self.packet.path.is_ipv4(), self.covered).finish();
        if right == self.icrc { Ok(()) } else { Err(Drop::Icrc) }
    }

    /// The IP header as it came, 20 or 40 bytes: what a UD receive shows as GRH.
    #[inline]
    pub fn ip_header(&self) -> &'a [u8] {
        &self.covered[..self.packet.path.ip_len()]
    }
}

/// Whether a frame is of [`Kind::Roce`].
pub fn is_roce(frame: &[u8]) -> bool {
    Head::parse(frame).is_ok_and(|head| head.kind == Kind::Roce)
}

/// Whether a frame is a RoCE packet with the right ICRC. Who needs the packet too asks
/// [`Parsed::check_icrc`].
pub fn check_icrc(frame: &[u8]) -> bool {
    Packet::parse(frame).is_ok_and(|parsed| parsed.check_icrc().is_ok())
}

impl Packet {
    /// Reads a frame, from the Ethernet header on, without Ethernet's own CRC; what Ethernet padded
    /// it with does not matter. Everything is checked that needs no state, but for the ICRC
    /// ([`Parsed::check_icrc`]).
    pub fn parse(frame: &[u8]) -> Result<Parsed<'_>, Drop> {
        let (eth, packet) = Eth::parse(frame)?;
        Packet::parse_ip(&eth, packet)
    }

    /// Reads a frame whose head was read before, as [`Packet::parse`] does.
    #[inline]
    pub fn parse_behind<'a>(head: &Head, frame: &'a [u8]) -> Result<Parsed<'a>, Drop> {
        Packet::parse_ip(&head.eth, head.packet(frame))
    }

    #[inline]
    fn parse_ip<'a>(eth: &Eth, packet: &'a [u8]) -> Result<Parsed<'a>, Drop> {
        let (ip, datagram) = Ip::parse(eth.ethertype, packet, ip::UDP)?;
        let (src_port, ib) = udp::parse(datagram)?;

        let (ib, trailer) = ib.split_last_chunk::<{ icrc::LEN }>().ok_or(Drop::Truncated)?;
        let mut reader = Reader(ib);
        let head = Bth::parse(&mut reader)?;
        let body = Body::parse(head.opcode, &mut reader)?;
        let padded = reader.0;
        if padded.len() % 4 != 0 {
            return Err(Drop::Pad);
        }
        let payload = padded.len().checked_sub(head.pad).ok_or(Drop::Pad)?;
        if !body.may_carry(payload) {
            return Err(Drop::PayloadLength);
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
        // IP header, UDP header and IB packet lie one after the other.
        let covered = &packet[..path.ip_len() + udp::LEN + ib.len()];
        Ok(Parsed {
            packet: Packet { path, bth: head.bth, body },
            payload: &padded[..payload],
            covered,
            icrc: *trailer,
        })
    }

    /// The head of its frame.
    #[inline]
    pub fn head(&self) -> Head {
        Head { eth: self.path.eth(), kind: Kind::Roce }
    }

    /// Length of the headers, from Ethernet's on.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.path.len() + bth::LEN + self.body.len()
    }

    /// Length of the frame, from the Ethernet header to the ICRC, with that much payload.
    #[inline]
    pub fn frame_len(&self, payload: usize) -> usize {
        self.header_len() + payload + pad(payload) + icrc::LEN
    }

    /// Writes all headers of a packet with that much payload into `buf`; returns their length.
    /// Payload, [`pad`] bytes of zero and [`Icrc`] are the caller's.
    ///
    /// # Panics
    /// If `buf` is shorter than the headers ([`MAX_HEADERS`] is always enough), or `payload`
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

    /// Writes the IP header alone of a packet with that much payload into `buf`: what a UD receive
    /// shows as GRH of one that is never written. Returns its length.
    ///
    /// # Panics
    /// As [`Packet::emit`].
    pub fn emit_ip(&self, payload: usize, buf: &mut [u8]) -> usize {
        let (_, ib) = self.ib_len(payload);
        let mut writer = Writer::new(buf);
        self.path.ip().put(udp::LEN as u16 + ib, ip::UDP, &mut writer);
        writer.len()
    }

    /// Bytes of padding behind that much payload, and of all that follows the UDP header.
    fn ib_len(&self, payload: usize) -> (usize, u16) {
        assert!(payload <= MAX_PAYLOAD, "a payload is within the greatest path MTU");
        let pad = pad(payload);
        (pad, (bth::LEN + self.body.len() + payload + pad + icrc::LEN) as u16)
    }
}

/// Bytes of padding after a payload of that length: up to a multiple of 4 (IBTA 9.2.3).
pub const fn pad(payload: usize) -> usize {
    payload.wrapping_neg() & 3
}
