//! Properties of every packet, and of arbitrary bytes.

mod support;

use proptest::prelude::*;
use support::{frame, packet};
use vrdma_wire::DropReason;
use vrdma_wire::roce::{self, Packet};

/// Returns bytes of a frame with masks of the bits that the ICRC does not cover.
///
/// The bytes count from the Ethernet header on.
fn variant_bits(packet: &Packet) -> Vec<(usize, u8)> {
    let ip = if packet.path.vlan.is_some() { 18 } else { 14 };
    let mut bits: Vec<(usize, u8)> = (0..ip).map(|i| (i, 0xff)).collect();
    let udp = if packet.path.is_ipv4() {
        bits.extend([1, 8, 10, 11].map(|i| (ip + i, 0xff)));
        ip + 20
    } else {
        bits.extend([(ip, 0x0f), (ip + 1, 0xff), (ip + 2, 0xff), (ip + 3, 0xff), (ip + 7, 0xff)]);
        ip + 40
    };
    bits.extend([udp + 6, udp + 7, udp + 8 + 4].map(|i| (i, 0xff)));
    bits
}

proptest! {
    #[test]
    fn packets_come_back((packet, payload) in packet(), padding in 0usize..64) {
        let mut frame = frame(&packet, &payload);
        prop_assert_eq!(frame.len(), packet.frame_len(payload.len()));
        prop_assert!(roce::is_roce(&frame));
        frame.resize(frame.len() + padding, 0x77);
        let parsed = Packet::parse(&frame).unwrap();
        prop_assert_eq!(parsed.packet, packet);
        prop_assert_eq!(parsed.payload, payload);
        prop_assert_eq!(parsed.check_icrc(), Ok(()));
    }

    #[test]
    fn what_is_cut_short_is_no_packet((packet, payload) in packet(), cut: prop::sample::Index) {
        let frame = frame(&packet, &payload);
        let short = &frame[..cut.index(frame.len())];
        prop_assert_eq!(Packet::parse(short).err(), Some(DropReason::Truncated));
        prop_assert!(!roce::check_icrc(short));
    }

    #[test]
    fn the_icrc_sees_each_bit_that_may_not_change((packet, payload) in packet(), at: prop::sample::Index, bit in 0..8u32) {
        let mut frame = frame(&packet, &payload);
        let at = at.index(frame.len());
        frame[at] ^= 1 << bit;
        if !variant_bits(&packet).iter().any(|(i, mask)| *i == at && mask >> bit & 1 == 1) {
            prop_assert!(!roce::check_icrc(&frame), "byte {at}, bit {bit}");
        }
    }

    #[test]
    fn the_icrc_lets_routers_change_what_they_may((packet, payload) in packet(), hops: u8, class: u8, label: u32, congestion: u8) {
        let original = frame(&packet, &payload);
        let mut routed = packet;
        routed.path.hop_limit = hops;
        routed.path.traffic_class = class;
        if !packet.path.is_ipv4() {
            routed.path.flow_label = vrdma_wire::num::FlowLabel::truncate(label);
        }
        routed.bth.fecn = congestion & 1 != 0;
        routed.bth.becn = congestion & 2 != 0;
        let after = frame(&routed, &payload);
        prop_assert_eq!(&original[original.len() - 4..], &after[after.len() - 4..]);
    }

    #[test]
    fn bytes_do_no_harm(bytes: Vec<u8>) {
        prop_assert!(Packet::parse(&bytes).is_err());
        prop_assert!(!roce::check_icrc(&bytes));
        roce::is_roce(&bytes);
    }

    #[test]
    fn bent_packets_do_no_harm((packet, payload) in packet(), bends in prop::collection::vec((0usize..120, any::<u8>()), 1..8)) {
        let mut frame = frame(&packet, &payload);
        for (at, value) in bends {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        if let Ok(parsed) = Packet::parse(&frame) {
            let _ = parsed.check_icrc();
            prop_assert!(roce::is_roce(&frame));
            // A parsed value can be written again, and reads the same.
            let again = support::frame(&parsed.packet, parsed.payload);
            prop_assert_eq!(Packet::parse(&again).unwrap().packet, parsed.packet);
        }
    }
}
