//! Coalesced segments pass a stand-in for the kernel, and have to come out unchanged.

use super::header::{HEADER, from_virtio, shift, to_virtio};
use super::join::{Candidate, JoinedHead, run};
use super::segment_checks::{check, cut, joined};
use crate::frames::{HEAD, VirtioOffload};
use proptest::collection::vec;
use proptest::prelude::*;
use vrdma_wire::checksum::Sum;
use vrdma_wire::num::{Gid, Mac, VlanTag};
use vrdma_wire::tcp::{Flags, Options, TcpHeader, TcpPacket};

const MTU: usize = 1500;

/// What the segments of a connection have in common.
#[derive(Clone, Copy, Debug)]
struct Shape {
    v6: bool,
    tag: Option<u16>,
    /// The number of tags before that one.
    outer: usize,
    has_timestamps: bool,
}

fn shape() -> impl Strategy<Value = Shape> {
    let tag = prop::option::of(1..4095u16);
    (any::<bool>(), tag, 0..3usize, any::<bool>()).prop_map(|(v6, tag, outer, has_timestamps)| Shape {
        v6,
        tag,
        outer,
        has_timestamps,
    })
}

impl Shape {
    fn packet(self, seq: u32, flags: Flags) -> TcpPacket {
        let gid = |last: u8| {
            if self.v6 {
                Gid([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last])
            } else {
                Gid::from_ipv4([10, 0, 0, last])
            }
        };
        let timestamps = self.has_timestamps.then_some((7, 9));
        let header = TcpHeader {
            src_port: 4420,
            dst_port: 50_000,
            seq,
            ack: 77,
            flags,
            window: 500,
            urgent: 0,
            options: Options { timestamps, ..Options::default() },
        };
        let vlan = self.tag.map(VlanTag);
        let (src_mac, dst_mac) = (Mac([2; 6]), Mac([4; 6]));
        TcpPacket { src_mac, dst_mac, vlan, src: gid(1), dst: gid(2), traffic_class: 0, header }
    }

    /// Returns consecutive segments with these numbers of data bytes.
    fn segments(self, seq: u32, lengths: &[usize]) -> Vec<Vec<u8>> {
        let mut at = seq;
        let segments = lengths.iter().enumerate().map(|(index, &length)| {
            let flags =
                if index + 1 == lengths.len() { Flags(Flags::ACK.0 | Flags::PSH.0) } else { Flags::ACK };
            let mut frame = frame(&self.packet(at, flags), length);
            frame.splice(12..12, [0x88, 0xa8, 0, 9].repeat(self.outer));
            at = at.wrapping_add(length as u32);
            frame
        });
        segments.collect()
    }
}

/// Returns a segment with data that depends on its sequence number.
fn frame(packet: &TcpPacket, length: usize) -> Vec<u8> {
    let seq = packet.header.seq;
    let begin = packet.len();
    let mut frame = vec![0; begin];
    frame.extend((0..length).map(|i| ((seq as usize).wrapping_add(i) * 31 % 251) as u8));
    let sum = Sum::of(&frame[begin..]);
    packet.emit(sum, &mut frame);
    frame
}

proptest! {
    /// Full segments and a last one of any length are coalesced, and come out unchanged.
    ///
    /// The first place holds the headers, or more, or exactly the first segment.
    #[test]
    fn a_run_comes_out_as_it_was(
        shape in shape(), seq in any::<u32>(), size in prop_oneof![48..1400usize, 1420..1460usize], count in 1..40usize, last in 1..1400usize, held in 0..4000usize,
    ) {
        let last = last.min(size);
        let frames = shape.segments(seq, &[vec![size; count], vec![last]].concat());
        let held = if held > 3000 { frames[0].len() } else { held };
        prop_assert_eq!(check(&frames, held, MTU), count + 1);
    }

    /// Segments of any lengths come out unchanged, too.
    #[test]
    fn segments_of_any_lengths_come_out(shape in shape(), seq in any::<u32>(), lengths in vec(0..200usize, 1..20)) {
        check(&shape.segments(seq, &lengths), 0, MTU);
    }

    /// Any peer's kernel might send any bytes.
    #[test]
    fn no_bytes_break_it(header in any::<[u8; HEADER]>(), whole in vec(any::<u8>(), 0..300)) {
        cut(header, &whole, 100, 4, MTU);
        let mut out: JoinedHead = [0; HEADER + HEAD];
        let candidate = Candidate { bytes: &whole, is_open: true };
        prop_assert!(run([candidate; 2].into_iter(), &mut out).is_none(), "none follows itself");
    }
}

const PLAIN: Shape = Shape { v6: false, tag: None, outer: 0, has_timestamps: true };

/// Returns how many of the first frames are coalesced.
fn together(frames: &[Vec<u8>]) -> usize {
    joined(frames).map_or(1, |(run, ..)| run.frames)
}

#[test]
fn what_says_more_than_its_data_goes_alone() {
    let good = || PLAIN.segments(1000, &[500, 500, 500, 500]);
    assert_eq!(together(&good()), 4);
    let flags = |flags: u8| frame(&PLAIN.packet(2000, Flags(flags)), 500);
    for bits in [Flags::FIN, Flags::SYN, Flags::RST, Flags::URG, Flags::ECE, Flags::CWR] {
        let mut frames = good();
        frames[2] = flags(Flags::ACK.0 | bits.0);
        assert_eq!(together(&frames), 2, "{bits:?}");
        frames.remove(0);
        frames.remove(0);
        assert_eq!(together(&frames), 1, "{bits:?}");
    }
    // A segment with PSH is the last of the coalesced segments.
    let mut frames = good();
    frames[1] = frame(&PLAIN.packet(1500, Flags(Flags::ACK.0 | Flags::PSH.0)), 500);
    assert_eq!(together(&frames), 2);
}

#[test]
fn what_is_of_something_else_ends_a_run() {
    let with = |change: &dyn Fn(&mut TcpPacket)| {
        let mut packet = PLAIN.packet(1500, Flags::ACK);
        change(&mut packet);
        vec![PLAIN.segments(1000, &[500, 1]).remove(0), frame(&packet, 500)]
    };
    assert_eq!(together(&with(&|_| {})), 2);
    let changes: [&dyn Fn(&mut TcpPacket); 10] = [
        &|packet| packet.src_mac = Mac([6; 6]),
        &|packet| packet.vlan = Some(VlanTag(5)),
        &|packet| packet.src = Gid::from_ipv4([10, 0, 0, 9]),
        &|packet| packet.header.src_port += 1,
        &|packet| packet.header.seq += 1,
        &|packet| packet.header.seq -= 1,
        &|packet| packet.header.ack += 1,
        &|packet| packet.header.window += 1,
        &|packet| packet.header.options.timestamps = Some((8, 9)),
        &|packet| packet.header.options.fpdus = Some(500),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert_eq!(together(&with(change)), 1, "{number}");
    }
    // A segment that is longer than the first, and one behind a shorter segment.
    assert_eq!(together(&PLAIN.segments(0, &[500, 501])), 1);
    assert_eq!(together(&PLAIN.segments(0, &[500, 499, 499])), 2);
    // Shorter than any kernel's segments.
    assert_eq!(together(&PLAIN.segments(0, &[47, 47])), 1);
}

#[test]
fn what_joining_would_mend_goes_alone() {
    let spoil = |at: usize| {
        let mut frames = PLAIN.segments(1000, &[500, 500]);
        frames[1][at] ^= 1;
        together(&frames)
    };
    // The IPv4 checksum, the TCP checksum, a data byte, the packet's length, and the bit that
    // allows fragmentation.
    for at in [24, 50, 300, 17, 20] {
        assert_eq!(spoil(at), 1, "{at}");
    }
    let mut padded = PLAIN.segments(1000, &[500, 500]);
    padded[1].push(0);
    assert_eq!(together(&padded), 1);
    // If the checksum is left to the port, the contents of its field do not matter.
    let mut frames = PLAIN.segments(1000, &[500, 500]);
    frames[1][50] ^= 1;
    let mut head: JoinedHead = [0; HEADER + HEAD];
    let candidates = frames.iter().map(|bytes| Candidate { bytes, is_open: true });
    assert_eq!(run(candidates, &mut head).map(|run| run.frames), Some(2));
}

#[test]
fn a_run_is_no_longer_than_a_packet() {
    let frames = PLAIN.segments(0, &[1400; 64]);
    let (run, _, whole) = joined(&frames).unwrap();
    assert_eq!(run.frames, (65535 - 52) / 1400);
    assert!(whole.len() <= 65535 + 14);
}

#[test]
fn a_header_says_the_same_in_the_order_of_this_host() {
    let checksum = VirtioOffload::Checksum { start: 34, offset: 16 };
    let header = from_virtio(&checksum);
    assert_eq!((header[0], header[1]), (1, 0));
    assert_eq!(header[6..8], 34u16.to_ne_bytes());
    assert_eq!(to_virtio(&header), checksum.header(0));
    let mut virtio = to_virtio(&header);
    shift(&mut virtio, 4);
    assert_eq!(virtio[6..8], 38u16.to_le_bytes());
}
