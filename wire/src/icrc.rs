//! The invariant CRC of RoCEv2 (IBTA 7.8.1, annex A17).
//!
//! It is the CRC-32 of Ethernet. It covers 8 bytes of ones (in place of InfiniBand's LRH), then the
//! IP, UDP and IB headers, payload and padding. The CRC goes on the wire least significant byte
//! first. Every field that a router may change counts as ones:
//!
//! * traffic class and flow label;
//! * TTL or hop limit;
//! * the checksums of IP and UDP;
//! * the byte of the BTH with FECN and BECN.

use crate::{bth, eth, ip, udp};
use crc32fast::Hasher;

/// Length of an ICRC in bytes.
pub const LEN: usize = 4;

/// CRC of 8 bytes of ones, the initial state of each ICRC.
const AFTER_ONES: u32 = !0xdebb_20e3;
/// Most bytes of a packet that are copied and masked at once.
const HEAD: usize = 128;
/// Masked bits lie in this many first bytes of a packet.
const MASKED: usize = 64;
/// Bytes that are copied of a short packet.
const SHORT: usize = 64;
/// Stride of the rest of a long packet. The CRC is fastest over whole strides, and the payload of a
/// full packet is a multiple of it.
const STRIDE: usize = 256;

/// Returns the mask of the bits that count as ones, from the IP header on.
const fn mask(v4: bool) -> [u8; MASKED] {
    let mut mask = [0; MASKED];
    let udp = if v4 {
        mask[1] = 0xff; // type of service
        mask[8] = 0xff; // TTL
        (mask[10], mask[11]) = (0xff, 0xff); // header checksum
        ip::V4_LEN
    } else {
        mask[0] = 0x0f; // traffic class, flow label
        (mask[1], mask[2], mask[3]) = (0xff, 0xff, 0xff);
        mask[7] = 0xff; // hop limit
        ip::V6_LEN
    };
    (mask[udp + 6], mask[udp + 7]) = (0xff, 0xff); // UDP checksum
    mask[udp + udp::LEN + BTH_CONGESTION] = 0xff;
    mask
}

/// Offset of the BTH's byte with FECN, BECN and 6 reserved bits.
const BTH_CONGESTION: usize = 4;
const MASKS: [[u8; MASKED]; 2] = [mask(false), mask(true)];

/// Writes the ICRC to the last bytes of a frame that is otherwise complete.
///
/// `frame` begins with the Ethernet header.
///
/// # Panics
/// If the frame is not a RoCE packet with room for an ICRC.
pub fn seal(frame: &mut [u8]) {
    let (covered, trailer) = frame.split_last_chunk_mut::<LEN>().expect("a frame has room for its ICRC");
    *trailer = Icrc::new(covered).finish();
}

/// An ICRC in computation.
#[derive(Clone, Debug)]
pub struct Icrc(Hasher);

impl Icrc {
    /// Begins with a packet's headers, from the Ethernet header to the payload or further.
    ///
    /// # Panics
    /// If `headers` are not those of a RoCE packet, up to the BTH at least.
    /// [`Packet::emit`](crate::roce::Packet::emit) writes such headers.
    pub fn new(headers: &[u8]) -> Icrc {
        let (eth, rest) = eth::Eth::parse(headers).expect("emitted headers begin with Ethernet's");
        Icrc::of_ip(eth.ethertype == eth::IPV4, rest)
    }

    /// Begins with the bytes behind the Ethernet header: IP, UDP and BTH at least.
    pub(crate) fn of_ip(v4: bool, packet: &[u8]) -> Icrc {
        let shortest = if v4 { ip::V4_LEN } else { ip::V6_LEN } + udp::LEN + bth::LEN;
        assert!(packet.len() >= shortest, "a packet has a BTH");
        let mask = &MASKS[usize::from(v4)];
        let mut hasher = Hasher::new_with_initial(AFTER_ONES);
        // Mask whole words while copying. Loading a word right after a store to one of its bytes
        // stalls.
        if let Some(head) = packet.first_chunk::<HEAD>() {
            let mut masked = *head;
            masked.iter_mut().zip(mask).for_each(|(byte, mask)| *byte |= mask);
            let beyond_strides = packet.len() % STRIDE;
            let head = if (shortest..=HEAD).contains(&beyond_strides) { beyond_strides } else { HEAD };
            hasher.update(&masked[..head]);
            hasher.update(&packet[head..]);
        } else if let Some((head, rest)) = packet.split_first_chunk::<SHORT>() {
            let mut masked = *head;
            masked.iter_mut().zip(mask).for_each(|(byte, mask)| *byte |= mask);
            hasher.update(&masked);
            hasher.update(rest);
        } else {
            let mut masked = [0; SHORT];
            masked.iter_mut().zip(packet).zip(mask).for_each(|((to, byte), mask)| *to = byte | mask);
            hasher.update(&masked[..packet.len()]);
        }
        Icrc(hasher)
    }

    /// Continues with payload, and at its end with padding.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the ICRC as it goes on the wire.
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
