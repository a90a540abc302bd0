//! ICMP's report that a TCP segment is too long for a path.
//!
//! It is "fragmentation needed" (RFC 792, RFC 1191), or "packet too big" (RFC 4443, 3.2). Anybody
//! can send such a report. So it counts only if it quotes facts that only hosts on the path know
//! (RFC 5927, 4).

use crate::checksum::{Sum, pseudo_header};
use crate::eth::{self, Eth};
use crate::ip::{self, Ip};
use crate::num::Gid;
use crate::tcp;

/// Protocol numbers of ICMP and ICMPv6 in IP.
pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMPV6: u8 = 58;
/// Type and code of "destination unreachable, fragmentation needed", and of "packet too big".
const V4_TOO_LONG: [u8; 2] = [3, 4];
const V6_TOO_LONG: [u8; 2] = [2, 0];
/// Length of the header before the quoted packet.
const HEADER_LEN: usize = 8;

/// A report that a router cannot forward a TCP segment whole.
///
/// The report goes to the segment's sender. The ends are named from the sender's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketTooBig {
    /// The Ethernet header of the report.
    pub eth: Eth,
    /// Address of the segment's sender. An IPv4 address is mapped.
    pub local: Gid,
    /// Address of the segment's receiver. An IPv4 address is mapped.
    pub remote: Gid,
    /// Port of the segment's sender.
    pub local_port: u16,
    /// Port of the segment's receiver.
    pub remote_port: u16,
    /// Sequence number of the segment.
    pub seq: u32,
    /// Longest IP packet that the router can forward, in bytes. 0 if the router does not say
    /// (before RFC 1191).
    pub mtu: u16,
}

/// Returns whether the bytes behind an Ethernet header with this EtherType look like such a report.
///
/// It must come over IPv4 or IPv6, without options or extension headers, and not fragmented.
pub(crate) fn seems_too_long(ethertype: u16, packet: &[u8]) -> bool {
    let (protocol, kind) = of(ethertype);
    ip::plain_of(ethertype, packet, protocol).is_some_and(|(_, _, message)| message.starts_with(&kind))
}

/// Returns ICMP's protocol number for this EtherType, and the report's type and code.
fn of(ethertype: u16) -> (u8, [u8; 2]) {
    if ethertype == eth::IPV6 { (ICMPV6, V6_TOO_LONG) } else { (ICMP, V4_TOO_LONG) }
}

impl PacketTooBig {
    /// Reads a frame. Returns `None` if it is anything else, or its checksum is wrong.
    ///
    /// The segment may be quoted in part: only the returned fields must be there.
    pub fn parse(frame: &[u8]) -> Option<PacketTooBig> {
        let (eth, packet) = Eth::parse(frame).ok()?;
        let (protocol, kind) = of(eth.ethertype);
        let (ip, message) = Ip::parse(eth.ethertype, packet, protocol).ok()?;
        if !message.starts_with(&kind) || !is_sound(&ip, message) {
            return None;
        }
        let (head, quoted) = message.split_first_chunk::<HEADER_LEN>()?;
        let mtu = if protocol == ICMP {
            u16::from_be_bytes([head[6], head[7]])
        } else {
            u32::from_be_bytes([head[4], head[5], head[6], head[7]]).try_into().unwrap_or(u16::MAX)
        };
        let (local, remote, segment) = ip::plain_of(eth.ethertype, quoted, tcp::PROTOCOL)?;
        let [a, b, c, d, seq @ ..] = *segment.first_chunk::<8>()?;
        let (local_port, remote_port) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        // The report must be addressed to the segment's sender.
        let complaint =
            PacketTooBig { eth, local, remote, local_port, remote_port, seq: u32::from_be_bytes(seq), mtu };
        (ip.dst == local).then_some(complaint)
    }
}

/// Returns whether the checksum of a message is correct.
///
/// ICMPv6's checksum includes a pseudo header (RFC 4443, 2.3).
fn is_sound(ip: &Ip, message: &[u8]) -> bool {
    let mut sum = match Ip::is_v4(ip.src, ip.dst) {
        true => Sum::default(),
        false => pseudo_header(ip.src, ip.dst, ICMPV6, message.len()),
    };
    sum.add(message);
    sum.finish() == 0
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::head::{FrameKind, Head};
    use crate::num::{FlowLabel, Mac, VlanTag};
    use crate::rw::Writer;
    use crate::tcp::{Flags, Options, TcpHeader, TcpPacket};
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    const V4: [Gid; 3] = [gid4(1), gid4(2), gid4(254)];
    const V6: [Gid; 3] = [gid6(1), gid6(2), gid6(254)];

    const fn gid4(last: u8) -> Gid {
        Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last])
    }

    const fn gid6(last: u8) -> Gid {
        Gid([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last])
    }

    /// Returns the IP packet of a segment with some data.
    fn segment([local, remote, _]: [Gid; 3]) -> Vec<u8> {
        let header = TcpHeader {
            src_port: 1234,
            dst_port: 80,
            seq: 0x1234_5678,
            ack: 9,
            flags: Flags::ACK,
            window: 100,
            urgent: 0,
            options: Options::default(),
        };
        let packet = TcpPacket {
            src_mac: Mac([2; 6]),
            dst_mac: Mac([4; 6]),
            vlan: None,
            src: local,
            dst: remote,
            traffic_class: 0,
            header,
        };
        let mut frame = vec![0; packet.len() + 5];
        packet.emit(Sum::of(&[0; 5]), &mut frame);
        frame.split_off(14)
    }

    /// Returns a router's report about a packet.
    fn complaint([local, _, router]: [Gid; 3], vlan: Option<VlanTag>, mtu: u32, quoted: &[u8]) -> Vec<u8> {
        let is_v4 = Ip::is_v4(local, router);
        let ethertype = if is_v4 { eth::IPV4 } else { eth::IPV6 };
        let (protocol, kind) = of(ethertype);
        let mut message = kind.to_vec();
        message.extend([0, 0]);
        message.extend(mtu.to_be_bytes());
        message.extend(quoted);
        let mut sum = Sum::default();
        if !is_v4 {
            sum = pseudo_header(router, local, protocol, message.len());
        }
        sum.add(&message);
        message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        let mut frame = vec![0; 100];
        let mut writer = Writer::new(&mut frame);
        Eth { dst: Mac([2; 6]), src: Mac([6; 6]), vlan, ethertype }.put(&mut writer);
        let ip =
            Ip { src: router, dst: local, traffic_class: 0, flow_label: FlowLabel::default(), hop_limit: 64 };
        ip.put(message.len() as u16, protocol, &mut writer);
        let length = writer.len();
        frame.truncate(length);
        frame.extend(message);
        frame
    }

    fn seems_too_long(frame: &[u8]) -> bool {
        Head::parse(frame).is_ok_and(|head| head.kind == FrameKind::TooLong)
    }

    #[test]
    fn complaints_name_the_segment_and_the_mtu() {
        for who in [V4, V6] {
            for vlan in [None, Some(VlanTag(0x2005))] {
                let segment = segment(who);
                let headers = if who == V4 { 20 } else { 40 };
                // Quote all of the segment, or the minimum of RFC 792.
                for length in [segment.len(), headers + 8] {
                    let frame = complaint(who, vlan, 1400, &segment[..length]);
                    assert!(seems_too_long(&frame));
                    let told = PacketTooBig::parse(&frame).unwrap();
                    assert_eq!((told.local, told.remote), (who[0], who[1]));
                    assert_eq!((told.local_port, told.remote_port, told.seq), (1234, 80, 0x1234_5678));
                    assert_eq!((told.mtu, told.eth.vlan, told.eth.dst), (1400, vlan, Mac([2; 6])));
                }
            }
        }
        assert_eq!(PacketTooBig::parse(&complaint(V6, None, 70_000, &segment(V6))).unwrap().mtu, u16::MAX);
    }

    #[test]
    fn what_is_none_or_damaged_says_nothing() {
        for who in [V4, V6] {
            let segment = segment(who);
            let headers = if who == V4 { 20 } else { 40 };
            let whole = complaint(who, None, 1400, &segment);
            let begin = 14 + headers;
            for at in begin..whole.len() {
                let mut frame = whole.clone();
                frame[at] ^= 0x10;
                assert_eq!(PacketTooBig::parse(&frame), None, "byte {at}");
                assert_eq!(seems_too_long(&frame), at >= begin + 2, "byte {at}");
            }
            for length in 0..whole.len() {
                assert_eq!(PacketTooBig::parse(&whole[..length]), None, "{length} bytes");
            }
            // Too few bytes of the segment, another protocol, or a report for another host.
            let protocol = if who == V4 { 9 } else { 6 };
            let mut udp = segment.clone();
            udp[protocol] = 17;
            let others = [who[1], who[0], who[2]];
            for frame in [
                complaint(who, None, 1400, &segment[..headers + 7]),
                complaint(who, None, 1400, &udp),
                complaint(others, None, 1400, &segment),
            ] {
                assert_eq!(PacketTooBig::parse(&frame), None);
            }
            // The segment itself is not a report.
            assert!(!seems_too_long(&[&whole[..14], &segment].concat()));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_not(mut quoted: Vec<u8>, six: bool, mtu: u32) {
            let who = if six { V6 } else { V4 };
            let whole = segment(who);
            if quoted.len() % 3 == 0 {
                quoted.splice(0..0, whole);
            }
            let frame = complaint(who, None, mtu, &quoted);
            if let Some(told) = PacketTooBig::parse(&frame) {
                prop_assert_eq!(told.local, who[0]);
            }
        }
    }
}
