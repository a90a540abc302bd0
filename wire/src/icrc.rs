//! The invariant CRC of RoCEv2 (IBTA 7.8.1, annex A17).
//!
//! It is the CRC-32 of Ethernet over 8 bytes of ones (in place of InfiniBand's LRH), the IP, UDP and IB headers, payload and padding,
//! where every field that a router may change counts as ones: traffic class, flow label, TTL or hop limit, the checksums of IP and UDP, and
//! the byte of the BTH with FECN and BECN. It goes on the wire least significant byte first.

use crate::{bth, eth, ip, udp};
use crc32fast::Hasher;

/// Bytes of an ICRC.
pub const LEN: usize = 4;

/// The CRC of 8 bytes of ones, with which each ICRC begins.
const AFTER_ONES: u32 = !0xdebb_20e3;
/// The BTH's byte with FECN, BECN and 6 reserved bits.
const BTH_CONGESTION: usize = 4;
/// At most so much of a packet is copied and masked at once: of a short one all, as the CRC takes one stretch faster than two.
const HEAD: usize = 128;
/// Of a long packet the CRC takes the rest fastest in whole strides, which payloads of a path MTU are.
const STRIDE: usize = 256;

/// An ICRC in the making.
#[derive(Clone, Debug)]
pub struct Icrc(Hasher);

impl Icrc {
    /// Begins with a packet's headers, from the Ethernet header on, up to where its payload begins (or further).
    ///
    /// # Panics
    /// If `headers` are not those of a RoCE packet up to the BTH at least: [`Packet::emit`](crate::roce::Packet::emit) wrote them.
    pub fn new(headers: &[u8]) -> Icrc {
        let (eth, rest) = eth::Eth::parse(headers).expect("emitted headers begin with Ethernet's");
        Icrc::of_ip(eth.ethertype == eth::IPV4, rest)
    }

    /// Begins with what follows the Ethernet header: IP, UDP and BTH at least.
    pub(crate) fn of_ip(v4: bool, packet: &[u8]) -> Icrc {
        let shortest = if v4 { ip::V4_LEN } else { ip::V6_LEN } + udp::LEN + bth::LEN;
        let beyond_strides = packet.len() % STRIDE;
        let head =
            if (shortest..=HEAD).contains(&beyond_strides) { beyond_strides } else { HEAD.min(packet.len()) };
        let (head, rest) = packet.split_at(head);
        let mut buffer = [0; HEAD];
        let masked = &mut buffer[..head.len()];
        masked.copy_from_slice(head);
        let udp = if v4 {
            masked[1] = 0xff; // type of service
            masked[8] = 0xff; // TTL
            masked[10..12].fill(0xff); // header checksum
            ip::V4_LEN
        } else {
            masked[0] |= 0x0f; // traffic class, flow label
            masked[1..4].fill(0xff);
            masked[7] = 0xff; // hop limit
            ip::V6_LEN
        };
        masked[udp + 6..udp + 8].fill(0xff); // UDP checksum
        masked[udp + udp::LEN + BTH_CONGESTION] = 0xff;
        let mut hasher = Hasher::new_with_initial(AFTER_ONES);
        hasher.update(masked);
        hasher.update(rest);
        Icrc(hasher)
    }

    /// Goes on with payload, and at its end with padding.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The ICRC as it goes on the wire.
    pub fn finish(self) -> [u8; LEN] {
        self.0.finalize().to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_eight_bytes_of_ones() {
        assert_eq!(crc32fast::hash(&[0xff; 8]), AFTER_ONES);
    }
}
