//! Explicit congestion notification in IP headers (RFC 3168, 5).

use crate::eth::Eth;
use crate::ip;

/// What the IP header of a packet says of congestion: the lower two bits of its traffic class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// The ends of the connection do not understand marks.
    NotCapable,
    /// The ends understand marks: ECT(1).
    Capable1,
    /// The ends understand marks: ECT(0).
    Capable0,
    /// A switch on the way was congested: CE.
    Experienced,
}

impl Ecn {
    /// Returns what a traffic class says.
    #[inline]
    pub const fn of(traffic_class: u8) -> Ecn {
        match traffic_class & 3 {
            0 => Ecn::NotCapable,
            1 => Ecn::Capable1,
            2 => Ecn::Capable0,
            _ => Ecn::Experienced,
        }
    }
}

/// Marks a frame as a congested switch does, and mends the checksum of an IPv4 header.
///
/// Returns false and leaves the frame as it is if its ends do not understand marks, or if it is no
/// IP packet. The ICRC of RoCE does not cover the mark (IBTA annex A17).
pub fn mark(frame: &mut [u8]) -> bool {
    let Ok((eth, _)) = Eth::parse(frame) else { return false };
    frame.get_mut(eth.len()..).is_some_and(|packet| ip::mark(eth.ethertype, packet))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::{AethMsn, FlowLabel, Gid, Mac, VlanTag};
    use crate::roce::{Aeth, Body, Bth, Credits, MAX_FRAME, Packet, Path, Rc, Syndrome};
    use crate::{eth, icrc};

    /// Returns the frame of an acknowledgement.
    fn frame(v4: bool, vlan: Option<VlanTag>, traffic_class: u8) -> ([u8; MAX_FRAME], usize) {
        let gid = |last| match v4 {
            true => Gid::from_ipv4([10, 0, 0, last]),
            false => Gid([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]),
        };
        let path = Path {
            src_mac: Mac([2, 0, 0, 0, 0, 1]),
            dst_mac: Mac([2, 0, 0, 0, 0, 2]),
            vlan,
            src: gid(1),
            dst: gid(2),
            traffic_class,
            flow_label: FlowLabel::truncate(0x12345),
            hop_limit: 64,
            src_port: 0xc000,
        };
        let aeth = Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn: AethMsn::default() };
        let packet = Packet { path, bth: Bth::default(), body: Body::Rc(Rc::Ack(aeth)) };
        let mut bytes = [0; MAX_FRAME];
        packet.emit(0, &mut bytes);
        let length = packet.frame_len(0);
        icrc::seal(&mut bytes[..length]);
        (bytes, length)
    }

    #[test]
    fn a_marked_packet_is_valid_and_otherwise_the_same() {
        for v4 in [false, true] {
            for vlan in [None, Some(VlanTag(5))] {
                for dscp in 0..64 {
                    for ecn in [1, 2] {
                        let (mut bytes, length) = frame(v4, vlan, dscp << 2 | ecn);
                        let before = Packet::parse(&bytes[..length]).unwrap().packet;
                        assert!(mark(&mut bytes[..length]));
                        let after = Packet::parse(&bytes[..length]).unwrap();
                        assert_eq!(after.check_icrc(), Ok(()));
                        assert_eq!(Ecn::of(after.packet.path.traffic_class), Ecn::Experienced);
                        let path = Path { traffic_class: dscp << 2 | 3, ..before.path };
                        assert_eq!(after.packet, Packet { path, ..before });
                    }
                }
            }
        }
    }

    #[test]
    fn packets_that_cannot_be_marked_stay_as_they_are() {
        for v4 in [false, true] {
            let (mut bytes, length) = frame(v4, None, 0x40);
            let before = bytes;
            assert!(!mark(&mut bytes[..length]));
            assert!(bytes == before);
            // A marked one stays marked.
            let (mut bytes, length) = frame(v4, None, 0x43);
            let before = bytes;
            assert!(mark(&mut bytes[..length]));
            assert!(bytes == before);
        }
        let mut arp = [0; 60];
        Eth { dst: Mac([255; 6]), src: Mac([2; 6]), vlan: None, ethertype: eth::ARP }.emit(&mut arp);
        let before = arp;
        assert!(!mark(&mut arp));
        assert_eq!(arp, before);
    }

    #[test]
    fn short_frames_are_not_marked() {
        for v4 in [false, true] {
            let header = if v4 { 14 + ip::V4_LEN } else { 14 + ip::V6_LEN };
            let (mut bytes, length) = frame(v4, None, 2);
            assert!((0..header).all(|short| !mark(&mut bytes[..short])));
            assert!(mark(&mut bytes[..length]));
        }
    }
}
