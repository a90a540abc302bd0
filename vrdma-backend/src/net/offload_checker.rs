//! Tests the rule that a delivered frame is the frame that was checked.
//!
//! Offloads and switch keep this rule together. The module serves tests and the fuzz target.

use super::finish::finish;
use super::frame::FrameView;
use super::sender::MAX_FRAME;
use super::switch::{Member, Switch};
use super::verdict::{SwitchPort, Verdict};
use crate::allowed::{AllowedGid, Vlans};
use crate::frames::{HEAD, HEADER, Ip, VirtioOffload};
use vrdma_transport::Instant;
use vrdma_wire::num::Mac;

/// MAC addresses of the sender and of the other guest.
pub const MACS: [Mac; 2] = [Mac([0x52, 0x54, 0, 0, 0, 1]), Mac([0x52, 0x54, 0, 0, 0, 2])];
/// IPv4 addresses of the sender and of the other guest.
pub const ADDRESSES: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];

/// A switch with two guests that have RDMA functions and listed addresses.
#[derive(Debug)]
pub struct OffloadChecker {
    switch: Switch,
    /// Scratch space for offloads, for frames of any length.
    scratch: Box<[u8]>,
}

impl Default for OffloadChecker {
    fn default() -> OffloadChecker {
        let mut switch = Switch::default();
        for (mac, address) in MACS.into_iter().zip(ADDRESSES) {
            let gids = vec![AllowedGid { address: address.into(), vlan: None }];
            let vlans = Vlans::any();
            switch.add(Member { mac, extra_macs: vec![], any_mac: false, rdma: true, gids, vlans });
        }
        OffloadChecker { switch, scratch: vec![0xee; MAX_FRAME].into_boxed_slice() }
    }
}

impl OffloadChecker {
    /// Passes a frame from the first guest's driver through offload and switch.
    ///
    /// The driver negotiated `features`. `mtu` is the maximum length of IP packets. Returns the
    /// verdict, or `None` if the offload was refused.
    ///
    /// # Panics
    /// A delivered frame differs from the one that was checked.
    pub fn check(&mut self, header: &[u8; HEADER], features: u64, frame: &[u8], mtu: u16) -> Option<Verdict> {
        let frame = &frame[..frame.len().min(MAX_FRAME)];
        let head = &frame[..frame.len().min(HEAD)];
        let offload = VirtioOffload::parse(header, features, head, frame.len(), mtu.into()).ok()?;
        let verdict = self.verdict(frame);
        let mut sent = FrameView::bytes(frame);
        sent.offload = offload;
        let mut scratch = std::mem::take(&mut self.scratch);
        finish(&sent, &mut |len, fill| {
            let delivered = &mut scratch[..len];
            fill(delivered);
            assert_eq!(self.verdict(delivered), verdict, "{offload:?}: judged anew");
            assert_eq!(FrameView::bytes(delivered).headers(), sent.headers(), "{offload:?}: the head");
            assert_eq!(Ip::parse(&delivered[..len.min(HEAD)]), Ip::parse(head), "{offload:?}: the headers");
            let known = match offload {
                VirtioOffload::Segments { .. } => {
                    assert!(len <= usize::from(mtu) + 14 + HEAD, "{len} bytes");
                    len.min(HEAD)
                }
                VirtioOffload::None | VirtioOffload::Checksum { .. } => {
                    assert_eq!(len, frame.len(), "{offload:?}");
                    len
                }
            };
            for at in (0..known).filter(|&at| delivered[at] != frame[at]) {
                assert!(may_change(&offload, at), "{offload:?}: byte {at}");
            }
        });
        self.scratch = scratch;
        Some(verdict)
    }

    fn verdict(&mut self, frame: &[u8]) -> Verdict {
        let frame = FrameView::bytes(frame);
        self.switch.decide(Instant(1), frame.headers(), frame.head(), SwitchPort::Guest(0))
    }
}

/// Whether doing the offload may change this byte.
fn may_change(offload: &VirtioOffload, at: usize) -> bool {
    match *offload {
        VirtioOffload::None => false,
        VirtioOffload::Checksum { start, offset } => {
            (0..2).contains(&at.wrapping_sub(usize::from(start + offset)))
        }
        VirtioOffload::Segments { tcp, .. } => {
            let (ip, tcp, payload) = (tcp.ip(), tcp.header(), tcp.payload());
            // IPv4: total length, identification and checksum. IPv6: payload length. TCP: sequence
            // number, flags and checksum.
            let v4 = at < tcp && [2, 3, 4, 5, 10, 11].contains(&at.wrapping_sub(ip));
            let v6 = at < tcp && [4, 5].contains(&at.wrapping_sub(ip));
            let own = [4, 5, 6, 7, 13, 16, 17].contains(&at.wrapping_sub(tcp));
            v4 || v6 || own || at >= payload
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use vrdma_wire::num::Gid;

    /// All features that Linux negotiates.
    const FEATURES: u64 = u64::MAX;
    const TYPES: [u16; 6] = [0x8100, 0x88a8, 0x9100, 0x0800, 0x86dd, 0x0806];
    const PROTOCOLS: [u8; 12] = [1, 6, 17, 58, 0, 43, 44, 60, 51, 41, 47, 136];

    /// Generates an Ethernet frame with tags, an IP packet with options or extension headers, and a
    /// payload.
    fn packet() -> impl Strategy<Value = Vec<u8>> {
        let option = (0..12usize, 0..3u8).prop_map(|(kind, len)| (PROTOCOLS[kind], len));
        let parts = (vec(0..3usize, 0..4), 3..6usize, vec(option, 0..4), 0..12usize, any::<u16>());
        let tail = (0..4usize, vec(any::<u8>(), 0..300), any::<bool>());
        (parts, tail).prop_map(|((tags, kind, extensions, protocol, word), (port, rest, own))| {
            let mut frame = [&MACS[1].0[..], &MACS[0].0].concat();
            tags.iter().for_each(|&tag| frame.extend([TYPES[tag].to_be_bytes(), [0, 7]].concat()));
            frame.extend(TYPES[kind].to_be_bytes());
            let source = ADDRESSES[usize::from(!own)];
            if kind == 3 {
                let words = 5 + extensions.len() as u8;
                let fragment = (word & 0x6003 & (word >> 2)).to_be_bytes();
                frame.extend([
                    0x40 | words,
                    0,
                    0,
                    0,
                    0,
                    0,
                    fragment[0],
                    fragment[1],
                    64,
                    PROTOCOLS[protocol],
                ]);
                frame.extend([&[0, 0][..], &source, &ADDRESSES[1], &vec![1; 4 * extensions.len()]].concat());
            } else if kind == 4 {
                let after =
                    |at: usize| extensions.get(at).map_or(PROTOCOLS[protocol], |extension| extension.0);
                let mapped = Gid::from_ipv4(source).0;
                frame.extend([&[0x60, 0, 0, 0, 0, 0, after(0), 64], &mapped[..], &mapped].concat());
                for (at, (kind, len)) in extensions.iter().enumerate() {
                    let len = if *kind == 44 { 0 } else { *len };
                    frame.extend([after(at + 1), len, 0, word as u8 & 1, 0, 0, 0, 0]);
                    frame.extend(vec![0; 8 * usize::from(len)]);
                }
            }
            // The payload may begin with ports, and with TCP's header length at its place.
            frame.extend(rest);
            if let Some(ip) = Ip::parse(&frame)
                && let Some(l4) = frame.get_mut(ip.l4..ip.l4 + 13)
            {
                l4[2..4].copy_from_slice(&[4791u16, 1234, 5001, word][port].to_be_bytes());
                l4[12] = 0x50 | (word as u8 & 0x30);
            }
            frame
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn what_is_delivered_is_what_was_judged(
            frame in packet(),
            start in -3..4i32,
            offset in prop_oneof![Just(16u16), Just(6), Just(2), Just(0), any::<u16>()],
            anywhere: Option<u16>,
            (flags, kind, size) in (0..4u8, prop_oneof![Just(0u8), Just(1), Just(4), any::<u8>()], 40..200u16),
        ) {
            let near = Ip::parse(&frame).map_or(14, |ip| ip.l4) as i32 + if start % 2 == 0 { 0 } else { start };
            let start = anywhere.unwrap_or(near as u16).to_le_bytes();
            let (offset, size) = (offset.to_le_bytes(), size.to_le_bytes());
            let header =
                [flags, kind, 0, 0, size[0], size[1], start[0], start[1], offset[0], offset[1], 0, 0];
            OffloadChecker::default().check(&header, FEATURES, &frame, 1500);
        }

        #[test]
        fn no_bytes_at_all_break_the_rule(header: [u8; HEADER], frame in vec(any::<u8>(), 0..300)) {
            OffloadChecker::default().check(&header, FEATURES, &frame, 1500);
        }
    }

    /// Returns an IPv4 frame of the first guest, and a virtio-net header for it.
    ///
    /// The header requests a checksum at `offset`.
    fn unfinished(protocol: u8, offset: u8, len: usize) -> ([u8; HEADER], Vec<u8>) {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
        packet.extend([ADDRESSES[0], ADDRESSES[1]].concat());
        packet.resize(20 + len, 0x50);
        let frame = [&MACS[1].0[..], &MACS[0].0, &[8, 0], &packet].concat();
        ([1, 0, 0, 0, 100, 0, 34, 0, offset, 0, 0, 0], frame)
    }

    #[test]
    fn the_checksums_of_tcp_udp_and_icmp_are_completed_and_no_others() {
        let mut checker = OffloadChecker::default();
        let to = Some(Verdict::To(SwitchPort::Guest(1)));
        for (protocol, right) in
            [(6, Some(16)), (17, Some(6)), (1, Some(2)), (58, None), (136, None), (132, None)]
        {
            for offset in 0..20 {
                let (header, frame) = unfinished(protocol, offset, 100);
                let wanted = if Some(offset) == right { to } else { None };
                assert_eq!(checker.check(&header, FEATURES, &frame, 1500), wanted, "{protocol} {offset}");
                for start in [0, 12, 13, 14, 26, 28, 33, 35, 36, 134] {
                    let mut elsewhere = header;
                    elsewhere[6] = start;
                    assert_eq!(
                        checker.check(&elsewhere, FEATURES, &frame, 1500),
                        None,
                        "{protocol} {start} {offset}"
                    );
                }
            }
        }
        for (protocol, offset) in [(6, 16), (17, 6), (1, 2)] {
            let (header, mut frame) = unfinished(protocol, offset, usize::from(offset) + 2);
            assert_eq!(checker.check(&header, FEATURES, &frame, 1500), to, "just enough");
            frame.pop();
            assert_eq!(checker.check(&header, FEATURES, &frame, 1500), None, "the checksum is not there");
            frame.push(0);
            frame[20] |= 0x20;
            assert_eq!(
                checker.check(&header, FEATURES, &frame, 1500),
                None,
                "a fragment has no checksum of its own"
            );
        }
        // A hop-by-hop header of 128 bytes puts the checksum behind the checked part.
        let mut packet = vec![0x60, 0, 0, 0, 1, 0, 0, 64];
        packet.extend([0xfd; 32]);
        packet.extend([6, 15]);
        packet.resize(40 + 256, 0);
        let long = [&MACS[1].0[..], &MACS[0].0, &[0x86, 0xdd], &packet].concat();
        let header = [1, 0, 0, 0, 100, 0, 182, 0, 16, 0, 0, 0];
        assert!(
            checker.check(&header, FEATURES, &long, 1500).is_some(),
            "the checksum of a packet with a long header"
        );
        let (mut header, frame) = unfinished(6, 16, 1000);
        header[1] = 1;
        assert_eq!(checker.check(&header, FEATURES, &frame, 1500), to, "cut into pieces");
    }
}
