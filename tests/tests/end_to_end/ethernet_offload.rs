//! Checksum and segmentation offload.
//!
//! Both are left undone between guests that negotiated them, and the daemon does them for other
//! guests.
//!
//! Shows: ethernet.

use std::time::Duration;
use vrdma_tests::net::{GSO_TCPV4, GSO_TCPV6, Header, NEEDS_CSUM, NetGuest, NetOptions, feature, frame, mac};
use vrdma_tests::packets::{ID, Packet, SEQ, check};
use vrdma_tests::{Lab, LabOptions, Rng, wait};

/// Connects a sender with Linux's features, and a receiver with the options `receiver`.
fn pair(receiver: NetOptions) -> (Lab, NetGuest, NetGuest) {
    pair_on(LabOptions::default().workers, receiver)
}

/// Connects a sender with Linux's features and a receiver, on a lab with this number of workers.
///
/// Between two workers nothing is left undone, as on a wire.
fn pair_on(workers: u16, receiver: NetOptions) -> (Lab, NetGuest, NetGuest) {
    let lab = Lab::without_guests(2, LabOptions { workers, ..LabOptions::default() });
    let connect =
        |index, options| NetGuest::connect(&lab.net_socket(index), options).expect("it is accepted");
    let (a, b) = (connect(0, NetOptions::default()), connect(1, receiver));
    (lab, a, b)
}

fn packets() -> impl Iterator<Item = Packet> {
    let all = [false, true].into_iter().flat_map(|v6| [None, Some(0xabc)].map(|vlan| (v6, vlan)));
    all.flat_map(|(v6, vlan)| [false, true].map(|tcp| Packet { hosts: (1, 2), v6, tcp, vlan }))
}

#[test]
fn what_both_know_of_is_left_undone() {
    let (lab, mut a, mut b) = pair_on(1, NetOptions::default());
    let mut rng = Rng::from_env("ethernet_offload");
    for packet in packets() {
        for len in [1, 1000, 8000] {
            let (header, sent) = packet.unfinished(&rng.bytes(len));
            a.send_with(header, &sent, &[12, 26, 100]);
            let (found, bytes) = b.recv();
            assert!(bytes == sent, "{packet:?}");
            assert_eq!(Header { num_buffers: 0, ..found }, header, "{packet:?}");
        }
        if packet.tcp {
            // Up to the longest IP packet. A driver may give a wrong length of the headers.
            let most = 65535 - 60 - if packet.v6 { 0 } else { 20 };
            for (len, size) in [(2000, 1448), (most, 1448), (most, 8900), (30_000, 48)] {
                let (header, sent) = packet.uncut(&rng.bytes(len), size);
                a.send_with(Header { hdr_len: 7, ..header }, &sent, &[12, 66, 4096, 40_000]);
                let (found, bytes) = b.recv();
                assert!(bytes == sent, "{packet:?} {len}");
                assert_eq!(Header { num_buffers: 0, ..found }, header, "{packet:?} {len}");
            }
        }
    }
    assert_eq!(lab.stats().net(0, "tx_bad_header"), 0);
}

/// Sends with a window, as TCP does between two kernels, so that nothing is lost.
#[test]
fn a_stream_arrives_whole_and_in_order() {
    let wide = NetOptions { size: 1024, buffers: 1024, buffer_len: 4096, ..NetOptions::default() };
    let narrow = NetOptions { features: feature::MRG_RXBUF, ..wide.clone() };
    for (receiver, frames, what) in [(wide, 2000, "uncut"), (narrow, 200, "cut, checksums completed")] {
        let (lab, mut a, mut b) = pair(receiver);
        let packet = Packet { hosts: (1, 2), v6: false, tcp: true, vlan: None };
        let (header, mut sent) = packet.uncut(&vec![0x5a; 60_000], 8900);
        let headers = usize::from(header.hdr_len);
        let is_whole = what == "uncut" && !lab.are_apart(0, 1);
        let pieces = if is_whole { 1 } else { 60_000usize.div_ceil(8900) as u32 };
        let (mut next, mut arrived) = (0, 0);
        wait::until("all frames", || {
            // The receiver has room for some 60 frames.
            if next < frames && next * pieces < arrived + 40 * pieces {
                sent[headers..headers + 4].copy_from_slice(&next.to_be_bytes());
                next += u32::from(a.try_send(header, &sent));
            }
            while let Some((_, found)) = b.recv_within(Duration::ZERO) {
                if arrived % pieces == 0 {
                    assert_eq!(found[headers..headers + 4], (arrived / pieces).to_be_bytes(), "{what}");
                }
                if pieces > 1 && arrived % 100 == 0 {
                    check(&found);
                }
                arrived += 1;
            }
            (arrived == frames * pieces).then_some(())
        });
        assert_eq!(lab.stats().net(1, "rx_no_buffer"), 0, "{what}");
    }
}

#[test]
fn checksums_are_completed_for_those_who_want_them_whole() {
    for features in [0, feature::MRG_RXBUF, feature::MRG_RXBUF | feature::INDIRECT] {
        let (lab, mut a, mut b) = pair(NetOptions { features, buffer_len: 12_000, ..NetOptions::default() });
        let mut rng = Rng::from_env("ethernet_offload");
        for packet in packets() {
            // This payload's checksum comes out as 0, which UDP encodes differently.
            let (header, _) = packet.unfinished(&[0; 2]);
            let at = usize::from(header.csum_start + header.csum_offset);
            let zero = packet.frame(&[0; 2])[at..at + 2].to_vec();
            for payload in [0, 1, 3, 17, 1000, 8000].map(|len| rng.bytes(len)).into_iter().chain([zero]) {
                let len = payload.len();
                let (header, sent) = packet.unfinished(&payload);
                a.send_with(header, &sent, &[12, 30]);
                let (found, bytes) = b.recv();
                assert_eq!(found, Header { num_buffers: 1, ..Header::default() });
                let whole = packet.frame(&payload);
                assert!(bytes == lab.arrives(0, 1, &whole), "{packet:?} {len}");
                assert_eq!(check(&bytes[..whole.len()]).payload, payload);
            }
        }
    }
}

#[test]
fn tcp_is_cut_for_those_who_want_it_so() {
    let both = feature::MRG_RXBUF | feature::GUEST_CSUM;
    // A receiver that accepts only the other IP version unsegmented does not accept this one.
    for (features, v6) in [
        (0, false),
        (both, false),
        (both | feature::GUEST_TSO6, false),
        (0, true),
        (both | feature::GUEST_TSO4, true),
    ] {
        let (lab, mut a, mut b) =
            pair(NetOptions { features, buffer_len: 2048, size: 256, ..NetOptions::default() });
        let mut rng = Rng::from_env("ethernet_offload");
        let mut frames = 0;
        for vlan in [None, Some(7)] {
            let packet = Packet { hosts: (1, 2), v6, tcp: true, vlan };
            for (len, size) in
                [(1, 1448), (1448, 1448), (1449, 1448), (60_001, 1448), (10_000, 48), (9999, 1001)]
            {
                let payload = rng.bytes(len);
                let (header, sent) = packet.uncut(&payload, size);
                a.send_with(header, &sent, &[12, 26, 70, 4000]);
                let count = len.div_ceil(size.into());
                for index in 0..count {
                    let done = index * usize::from(size);
                    let last = index + 1 == count;
                    let (found, bytes) = b.recv();
                    assert_eq!((found.flags & NEEDS_CSUM, found.gso_type), (0, 0));
                    let found = check(&bytes);
                    assert_eq!(found.seq, SEQ.wrapping_add(done as u32));
                    let id = if v6 { 0 } else { ID.wrapping_add(index as u16) };
                    assert_eq!((found.id, found.flags), (id, [last, last, index == 0]));
                    assert!(found.payload == payload[done..(done + usize::from(size)).min(len)]);
                }
                frames += count;
            }
        }
        b.expect_nothing();
        assert_eq!((lab.stats().net(0, "tx_frames"), lab.stats().net(1, "rx_frames")), (12, frames as u64));
    }
}

#[test]
fn headers_that_make_no_sense_cost_the_frame_alone() {
    let (lab, mut a, mut b) = pair(NetOptions { features: feature::MRG_RXBUF, ..NetOptions::default() });
    let v4 = Packet { hosts: (1, 2), v6: false, tcp: true, vlan: None };
    let (good, sent) = v4.uncut(&[5; 3000], 1448);
    let v6 = Packet { v6: true, ..v4 };
    let (_, other) = v6.uncut(&[5; 3000], 1448);
    let udp = Packet { tcp: false, ..v4 }.frame(&[5; 3000]);
    let mut fragment = sent.clone();
    fragment[14 + 6] |= 0x20;
    let mut short_ip = sent.clone();
    short_ip[14] = 0x44;
    let mut long_tcp = sent.clone();
    long_tcp[14 + 20 + 12] = 0xf0;
    let cut = sent[..14 + 20 + 20].to_vec();
    let cases = [
        (Header { flags: 0, ..good }, &sent, "segments without a checksum"),
        (Header { gso_type: 2, ..good }, &sent, "an unknown kind"),
        (Header { gso_type: 0x81, ..good }, &sent, "ECN, which was not negotiated"),
        (Header { gso_type: GSO_TCPV6, ..good }, &sent, "the other IP"),
        (Header { gso_type: GSO_TCPV4, ..good }, &other, "the other IP"),
        (Header { gso_size: 0, ..good }, &sent, "no bytes each"),
        (Header { gso_size: 47, ..good }, &sent, "few bytes each"),
        (Header { gso_size: 9000, ..good }, &sent, "more than the MTU each"),
        (Header { csum_start: 35, ..good }, &sent, "the checksum of something else"),
        (Header { csum_offset: 6, ..good }, &sent, "the checksum elsewhere"),
        (good, &udp, "UDP"),
        (good, &fragment, "a fragment"),
        (good, &short_ip, "an IP header of 16 bytes"),
        (good, &cut, "no payload"),
        (Header { gso_type: 0, csum_start: 13, ..good }, &sent, "a checksum of the Ethernet header"),
        (
            Header { gso_type: 0, csum_start: 3000, csum_offset: 100, ..good },
            &sent,
            "a checksum behind the end",
        ),
        (Header { gso_type: 0, csum_start: u16::MAX, csum_offset: u16::MAX, ..good }, &sent, "far behind it"),
        (
            Header { gso_type: 0, csum_start: 28, csum_offset: 0, ..good },
            &sent,
            "a checksum of the IP header",
        ),
        (Header { gso_type: 0, csum_offset: 2, ..good }, &sent, "the port for the checksum"),
        (Header { gso_type: 0, ..good }, &udp, "the checksum of TCP in UDP"),
    ];
    let refused = |lab: &Lab| ["tx_bad_header", "tx_bad_checksum"].map(|name| lab.stats().net(0, name));
    for (count, (header, bytes, what)) in cases.iter().enumerate() {
        a.send_with(*header, bytes, &[12]);
        assert_eq!(refused(&lab).iter().sum::<u64>(), count as u64 + 1, "{what}");
    }
    let [headers, checksums] = refused(&lab);
    assert_eq!((headers, checksums), (8, 12), "of {} cases", cases.len());
    // A TCP header may have any length, up to the payload.
    a.send_with(good, &long_tcp, &[12]);
    assert_eq!(b.recv().1.len(), 14 + 20 + 60 + 1448);
    // One frame longer than the MTU, and one longer than any packet.
    a.send(&frame(mac(2), mac(1), 0x88b5, &[0; 9009]));
    a.send_with(good, &[&sent[..], &[0; 65000]].concat(), &[]);
    assert_eq!((refused(&lab), lab.stats().net(0, "tx_oversize")), ([headers, checksums], 2));
    assert_eq!(b.recv().1.len(), 14 + 20 + 60 + 1448);
    while b.recv_within(Duration::ZERO).is_some() {}
    a.send_with(good, &sent, &[]);
    assert_eq!(check(&b.recv().1).payload, [5; 1448]);
}
