//! Finds the headers of a frame, behind all tags, options and extension headers.
//!
//! This is how the frame's receiver sees them.

use crate::allowed::OTHER_TAGS;
use vrdma_wire::eth;
use vrdma_wire::num::Mac;

/// Protocol numbers (IANA).
pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMPV6: u8 = 58;
/// Extension headers of IPv6 that name the header after them (RFC 8200, 4).
///
/// They are hop-by-hop options, routing, fragment, and destination options.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// The headers of an IP packet.
///
/// Positions are in bytes from the beginning of the frame. `l4` is inside of the parsed head, or at
/// its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// Whether it is IPv6 rather than IPv4.
    pub v6: bool,
    /// Position of the IP header.
    pub start: usize,
    /// Protocol number of the payload. For a fragment, that of the whole packet's payload.
    pub protocol: u8,
    /// Position behind the IP header and its options or extension headers.
    pub l4: usize,
    /// Which part of the packet the frame has.
    pub fragment: Fragment,
}

/// Which part of an IP packet a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// The whole packet.
    Whole,
    /// The first fragment.
    First,
    /// A later fragment: there is no header at `l4`.
    Later,
}

/// Returns the EtherType behind all tags, and the position behind it.
///
/// `None` if the head ends before.
pub fn untag(head: &[u8]) -> Option<(u16, usize)> {
    let mut at = 12;
    loop {
        match word(head, at)? {
            ethertype if ethertype == eth::VLAN || OTHER_TAGS.contains(&ethertype) => at += 4,
            ethertype => return Some((ethertype, at + 2)),
        }
    }
}

/// Whether a group address is one of IPv4 (RFC 1112, 6.4) or IPv6 (RFC 2464, 7).
pub fn is_ip_group(dst: Mac) -> bool {
    dst.0[..3] == [0x01, 0x00, 0x5e] && dst.0[3] < 0x80 || dst.0[..2] == [0x33, 0x33]
}

/// Whether a destination is reserved for bridges: 01:80:c2:00:00:00 to 0f.
pub fn is_reserved(dst: Mac) -> bool {
    dst.0[..5] == [0x01, 0x80, 0xc2, 0, 0] && dst.0[5] < 0x10
}

impl Ip {
    /// Finds the headers in the head of a frame.
    ///
    /// Returns `None` if the frame is not an IP packet, its header has an invalid length, or the
    /// head ends before the payload begins.
    pub fn parse(head: &[u8]) -> Option<Ip> {
        match untag(head)? {
            (eth::IPV4, start) => Ip::parse_v4(head, start),
            (eth::IPV6, start) => Ip::parse_v6(head, start),
            _ => None,
        }
    }

    fn parse_v4(head: &[u8], start: usize) -> Option<Ip> {
        let words = usize::from(*head.get(start)? & 0xf);
        let (l4, flags) = (start + 4 * words, word(head, start + 6)?);
        let fragment = Fragment::new(flags & 0x1fff, flags & 0x2000 != 0);
        let protocol = *head.get(start + 9)?;
        (words >= 5 && l4 <= head.len()).then_some(Ip { v6: false, start, protocol, l4, fragment })
    }

    fn parse_v6(head: &[u8], start: usize) -> Option<Ip> {
        let (mut protocol, mut l4, mut fragment) = (*head.get(start + 6)?, start + 40, Fragment::Whole);
        loop {
            let next = match protocol {
                HOP_BY_HOP | ROUTING | DESTINATION => l4 + 8 * (1 + usize::from(*head.get(l4 + 1)?)),
                FRAGMENT => {
                    let field = word(head, l4 + 2)?;
                    fragment = Fragment::new(field >> 3, field & 1 != 0);
                    l4 + 8
                }
                _ => break,
            };
            (protocol, l4) = (*head.get(l4)?, next);
            if fragment == Fragment::Later {
                break;
            }
        }
        (l4 <= head.len()).then_some(Ip { v6: true, start, protocol, l4, fragment })
    }

    /// Whether there are no extension headers of IPv6. Options of IPv4 are allowed.
    pub fn is_plain(&self) -> bool {
        !self.v6 || self.l4 == self.start + 40
    }

    /// Returns the offset of the payload's checksum from `l4` on.
    ///
    /// `None` if the protocol has no checksum of RFC 1071.
    pub fn checksum_offset(&self) -> Option<usize> {
        match self.protocol {
            TCP => Some(16),
            UDP => Some(6),
            ICMP if !self.v6 => Some(2),
            ICMPV6 if self.v6 => Some(2),
            _ => None,
        }
    }
}

impl Fragment {
    fn new(offset: u16, more: bool) -> Fragment {
        match (offset, more) {
            (0, false) => Fragment::Whole,
            (0, true) => Fragment::First,
            _ => Fragment::Later,
        }
    }
}

/// Reads a 16-bit field in network byte order.
pub fn word(head: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(tags: &[u16], ethertype: u16, packet: &[u8]) -> Vec<u8> {
        let tags = tags.iter().flat_map(|kind| [kind.to_be_bytes(), [0, 7]]).flatten();
        [2; 12].into_iter().chain(tags).chain(ethertype.to_be_bytes()).chain(packet.iter().copied()).collect()
    }

    fn v4(words: u8, flags: u16, protocol: u8) -> Vec<u8> {
        let mut header = vec![0; 4 * usize::from(words)];
        header.resize(header.len().max(20), 0);
        (header[0], header[9]) = (0x40 | words, protocol);
        header[6..8].copy_from_slice(&flags.to_be_bytes());
        header
    }

    fn v6(next: u8, rest: &[&[u8]]) -> Vec<u8> {
        let mut header = vec![0; 40];
        (header[0], header[6]) = (0x60, next);
        [header, rest.concat()].concat()
    }

    #[test]
    fn the_payload_is_found_behind_tags_options_and_extensions() {
        let ip = |v6, start, protocol, l4, fragment| Some(Ip { v6, start, protocol, l4, fragment });
        use Fragment::{First, Later, Whole};
        let (hop, fragment) =
            ([17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], |field: u8| [17, 0, 0, field, 0, 0, 0, 0]);
        let mut routed = hop;
        routed[0] = FRAGMENT;
        let cases = [
            (frame(&[], eth::IPV4, &v4(5, 0x4000, 17)), ip(false, 14, 17, 34, Whole)),
            (frame(&[], eth::IPV4, &v4(15, 0, 6)), ip(false, 14, 6, 74, Whole)),
            (frame(&[], eth::IPV4, &v4(4, 0, 6)), None),
            (frame(&[], eth::IPV4, &v4(6, 0, 6)[..23]), None),
            (frame(&[], eth::IPV4, &v4(5, 0x2000, 17)), ip(false, 14, 17, 34, First)),
            (frame(&[], eth::IPV4, &v4(5, 0x2001, 17)), ip(false, 14, 17, 34, Later)),
            (frame(&[], eth::IPV4, &v4(5, 1, 17)), ip(false, 14, 17, 34, Later)),
            (
                frame(&[eth::VLAN, OTHER_TAGS[0], OTHER_TAGS[1]], eth::IPV4, &v4(5, 0, 1)),
                ip(false, 26, 1, 46, Whole),
            ),
            (frame(&[], eth::IPV6, &v6(58, &[])), ip(true, 14, 58, 54, Whole)),
            (frame(&[eth::VLAN], eth::IPV6, &v6(HOP_BY_HOP, &[&hop])), ip(true, 18, 17, 74, Whole)),
            (frame(&[], eth::IPV6, &v6(FRAGMENT, &[&fragment(0)])), ip(true, 14, 17, 62, Whole)),
            (frame(&[], eth::IPV6, &v6(FRAGMENT, &[&fragment(1)])), ip(true, 14, 17, 62, First)),
            (frame(&[], eth::IPV6, &v6(FRAGMENT, &[&fragment(8)])), ip(true, 14, 17, 62, Later)),
            (frame(&[], eth::IPV6, &v6(ROUTING, &[&routed, &fragment(0)])), ip(true, 14, 17, 78, Whole)),
            (frame(&[], eth::IPV6, &v6(DESTINATION, &[&hop[..15]])), None),
            (frame(&[], eth::IPV6, &v6(DESTINATION, &[])), None),
            (frame(&[], eth::ARP, &[0; 28]), None),
            (frame(&[eth::VLAN; 40], eth::VLAN, &[]), None),
        ];
        for (frame, wanted) in cases {
            assert_eq!(Ip::parse(&frame), wanted, "{frame:x?}");
        }
    }
}
