//! A TCP segment with its IP and Ethernet headers: a whole frame.

use super::{Malformed, PROTOCOL, TcpHeader, is_sum_sound};
use crate::DropReason;
use crate::checksum::Sum;
use crate::eth::{self, Eth};
use crate::head::{Endpoints, FrameKind, Head};
use crate::ip::{self, Ip};
use crate::num::{FlowLabel, Gid, Mac, VlanTag};
use crate::rw::Writer;
use core::fmt;

/// Hop limit or TTL of each packet.
const HOP_LIMIT: u8 = 64;

/// Reason why a frame is not a valid segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpDrop {
    /// The headers before TCP's are invalid.
    Ip(DropReason),
    /// TCP's header is invalid.
    Tcp(Malformed),
    /// The checksum is wrong.
    Checksum,
}

impl fmt::Display for TcpDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TcpDrop::Ip(drop) => drop.fmt(f),
            TcpDrop::Tcp(malformed) => malformed.fmt(f),
            TcpDrop::Checksum => f.write_str("checksum"),
        }
    }
}

impl core::error::Error for TcpDrop {}

/// The headers of a segment, from Ethernet's to TCP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpPacket {
    /// Ethernet source.
    pub src_mac: Mac,
    /// Ethernet destination.
    pub dst_mac: Mac,
    /// 802.1Q tag.
    pub vlan: Option<VlanTag>,
    /// Address of the sender. An IPv4 address is mapped.
    pub src: Gid,
    /// Address of the receiver, of the same version.
    pub dst: Gid,
    /// DS field and ECN of the IP header (RFC 2474, RFC 3168): type of service, or traffic class.
    pub traffic_class: u8,
    /// TCP's header.
    pub header: TcpHeader,
}

impl TcpPacket {
    /// Reads a frame, and checks its checksums. Returns the headers, and the segment's data.
    pub fn parse(frame: &[u8]) -> Result<(TcpPacket, &[u8]), TcpDrop> {
        let head = Head::parse(frame).map_err(TcpDrop::Ip)?;
        TcpPacket::parse_behind(&head, frame, Sum::of)
    }

    /// Reads a frame whose first headers were read before.
    ///
    /// `sum` returns the sum of a segment. Callers may have a faster way to add than [`Sum::of`].
    pub fn parse_behind<'a>(
        head: &Head,
        frame: &'a [u8],
        sum: impl FnOnce(&[u8]) -> Sum,
    ) -> Result<(TcpPacket, &'a [u8]), TcpDrop> {
        let eth = head.eth;
        let (ip, segment) = Ip::parse(eth.ethertype, head.packet(frame), PROTOCOL).map_err(TcpDrop::Ip)?;
        let (header, data) = TcpHeader::parse(segment).map_err(TcpDrop::Tcp)?;
        if !is_sum_sound(ip.src, ip.dst, sum(segment)) {
            return Err(TcpDrop::Checksum);
        }
        let Eth { src: src_mac, dst: dst_mac, vlan, .. } = eth;
        let Ip { src, dst, traffic_class, .. } = ip;
        Ok((TcpPacket { src_mac, dst_mac, vlan, src, dst, traffic_class, header }, data))
    }

    /// Returns the length of all headers.
    #[allow(clippy::len_without_is_empty, reason = "headers are never empty")]
    pub fn len(&self) -> usize {
        self.eth().len() + self.ip_len() + self.header.len()
    }

    /// Returns the first headers of the frame.
    pub fn head(&self) -> Head {
        let TcpPacket { src, dst, header: TcpHeader { src_port, dst_port, .. }, .. } = *self;
        Head { eth: self.eth(), kind: FrameKind::Tcp(Endpoints { src, dst, src_port, dst_port }) }
    }

    fn is_ipv4(&self) -> bool {
        Ip::is_v4(self.src, self.dst)
    }

    fn ip_len(&self) -> usize {
        if self.is_ipv4() { ip::V4_LEN } else { ip::V6_LEN }
    }

    fn eth(&self) -> Eth {
        let ethertype = if self.is_ipv4() { eth::IPV4 } else { eth::IPV6 };
        Eth { dst: self.dst_mac, src: self.src_mac, vlan: self.vlan, ethertype }
    }

    /// Writes the headers of a segment to the front of `buf`. Returns their length.
    ///
    /// `data` is the sum of the segment's data.
    ///
    /// # Panics
    /// If `buf` is shorter than the headers, or the data is too long for an IP packet.
    pub fn emit(&self, data: Sum, buf: &mut [u8]) -> usize {
        let at = self.emit_ip(data.len(), buf);
        at + self.header.emit(self.src, self.dst, data, &mut buf[at..])
    }

    /// Writes the headers of a segment with `data` bytes of data, with an open TCP checksum.
    /// Returns their length.
    ///
    /// See [`TcpHeader::emit_open`].
    ///
    /// # Panics
    /// If `buf` is shorter than the headers, or the data is too long for an IP packet.
    pub fn emit_open(&self, data: usize, buf: &mut [u8]) -> usize {
        let at = self.emit_ip(data, buf);
        at + self.header.emit_open(self.src, self.dst, data, &mut buf[at..])
    }

    /// Writes the headers before TCP's. Returns their length.
    fn emit_ip(&self, data: usize, buf: &mut [u8]) -> usize {
        let length = u16::try_from(self.header.len() + data).expect("a segment fits an IP packet");
        let mut writer = Writer::new(buf);
        self.eth().put(&mut writer);
        let ip = Ip {
            src: self.src,
            dst: self.dst,
            traffic_class: self.traffic_class,
            flow_label: FlowLabel::default(),
            hop_limit: HOP_LIMIT,
        };
        ip.put(length, PROTOCOL, &mut writer);
        writer.len()
    }

    /// Returns the lengths of the Ethernet header and of the IP header.
    pub fn layers(&self) -> (usize, usize) {
        (self.eth().len(), self.ip_len())
    }

    /// Returns whether the packet goes over IPv6.
    pub fn is_ipv6(&self) -> bool {
        !self.is_ipv4()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::tcp::{Flags, Options};
    use std::vec;
    use std::vec::Vec;

    fn packet(src: Gid, dst: Gid, vlan: Option<VlanTag>) -> TcpPacket {
        let header = TcpHeader {
            src_port: 1234,
            dst_port: 80,
            seq: 7,
            ack: 9,
            flags: Flags::ACK,
            window: 100,
            urgent: 0,
            options: Options { timestamps: Some((1, 2)), ..Options::default() },
        };
        TcpPacket { src_mac: Mac([2; 6]), dst_mac: Mac([4; 6]), vlan, src, dst, traffic_class: 0x68, header }
    }

    fn frame(packet: &TcpPacket, data: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; packet.len() + data.len()];
        let at = packet.emit(Sum::of(data), &mut frame);
        frame[at..].copy_from_slice(data);
        frame
    }

    #[test]
    fn packets_come_back_and_say_whose_they_are() {
        let v4 = |last| Gid::from_ipv4([10, 0, 0, last]);
        let v6 = |last| Gid([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        for (src, dst) in [(v4(1), v4(2)), (v6(1), v6(2))] {
            for vlan in [None, Some(VlanTag(0x2005))] {
                let packet = packet(src, dst, vlan);
                let mut frame = frame(&packet, b"odd");
                assert_eq!(TcpPacket::parse(&frame), Ok((packet, &b"odd"[..])));
                let head = Head::parse(&frame[..packet.len()]).unwrap();
                let ends = Endpoints { src, dst, src_port: 1234, dst_port: 80 };
                assert_eq!((head.ends(), head), (Some(&ends), packet.head()));
                assert_eq!((head.eth.dst, head.eth.vlan), (Mac([4; 6]), vlan));
                // The padding of a short frame is ignored.
                let length = frame.len();
                frame.extend([0xaa; 9]);
                assert_eq!(TcpPacket::parse(&frame), Ok((packet, &b"odd"[..])));
                frame[length - 1] ^= 1;
                assert_eq!(TcpPacket::parse(&frame), Err(TcpDrop::Checksum));
            }
        }
    }

    #[test]
    fn what_is_no_whole_segment_has_no_ends() {
        let packet = packet(Gid::from_ipv4([10, 0, 0, 1]), Gid::from_ipv4([10, 0, 0, 2]), None);
        let whole = frame(&packet, b"");
        let spoil = |at: usize, value: u8| {
            let mut frame = whole.clone();
            frame[at] = value;
            frame
        };
        let ends = |frame: &[u8]| Head::parse(frame).unwrap().ends().copied();
        assert!(ends(&whole).is_some());
        // IP options, a first fragment, a later fragment, UDP, another EtherType, a truncated
        // header.
        let none = [
            spoil(14, 0x46),
            spoil(20, 0x20),
            spoil(21, 1),
            spoil(23, 17),
            spoil(13, 6),
            whole[..37].to_vec(),
        ];
        for frame in none {
            assert_eq!(ends(&frame), None, "{frame:x?}");
        }
        assert_eq!(TcpPacket::parse(&spoil(20, 0x60)), Err(TcpDrop::Ip(DropReason::IpChecksum)));
        assert_eq!(TcpPacket::parse(&whole[..50]), Err(TcpDrop::Ip(DropReason::Truncated)));
    }
}
