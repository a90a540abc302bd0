//! Tests what end-to-end tests do not cover: packets from the engine to guests, and offloads of an
//! uplink.

use super::outlets::MIN_FRAME;
use super::turn::{FRAME, STEP, TURN};
use super::verdict::Reason;
use super::*;
use crate::allowed::{AllowedGid, Vlans};
use crate::capture::{CaptureEnd, CapturedGuest, Filter, JoinedGroups, tap_of};
use crate::memory::tests::memory;
use crate::memory::{Extent, Shared};
use crate::port;
use crate::queue::VirtqueueSetup;
use std::sync::atomic::Ordering;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;
use vmm_sys_util::epoll::Epoll;
use vrdma_wire::checksum::Sum;
use vrdma_wire::head::Head;
use vrdma_wire::num::{Gid, Mac};
use vrdma_wire::tcp::{Flags, Options, TcpHeader, TcpPacket};

const A: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
const B: Mac = Mac([0x52, 0x54, 0, 0, 0, 2]);
/// So low that each test has only its first burst of 64.
const FLOOD_RATE: u32 = 1;
const REMOTE: Mac = Mac([2, 0, 0, 0, 0, 7]);

/// An uplink that keeps each frame, and whether its checksum was left to the uplink.
///
/// It completes checksums of UDP.
#[derive(Default)]
struct Wire(Vec<(Vec<u8>, bool)>);

impl SwitchUplink for Wire {
    fn completes(&self, head: &[u8], start: u16, offset: u16) -> Option<port::Offload> {
        let can = port::Checksums { udp: true, ..port::Checksums::default() };
        port::Offload::of(head, start, offset, can)
    }

    fn room(&mut self) -> Option<usize> {
        None
    }

    fn transmit(&mut self, len: usize, left: Option<port::Offload>, fill: Fill<'_>) -> Result<(), Lost> {
        let mut frame = vec![0xff; len];
        fill(&mut frame);
        self.0.push((frame, left.is_some()));
        Ok(())
    }
}

/// Returns a switch with two guests. Guest 0 has an RDMA function.
///
/// Guest 1 has no RDMA function, but a receive queue with one buffer of 2 KiB at 0x1000. The
/// queue's rings are at 0x100 and 0x200.
fn net() -> (Net, Shared) {
    let memory = memory(&[(0, 0x4000)]);
    let words = Shared::<16>::new(&memory, Extent { gpa: 0, len: 0x4000 }).unwrap();
    words.store64(0, 0x1000, Ordering::Relaxed);
    words.store64(8, 2 << 32 | 2048, Ordering::Relaxed);
    words.store16(0x102, 1, Ordering::Relaxed);
    let mut net = Net::new(1500);
    for (name, mac, rdma) in [("a", A, true), ("b", B, false)] {
        net.add(
            name,
            Member { mac, extra_macs: vec![], any_mac: false, rdma, gids: vec![], vlans: Vlans::any() },
            FLOOD_RATE,
        );
    }
    let setup = VirtqueueSetup {
        index: RECEIVE,
        size: 4,
        desc: 0,
        avail: 0x100,
        used: 0x200,
        event_idx: false,
        kick: None,
        call: None,
    };
    net.start(1, &memory, (setup, 0, 1 << VIRTIO_F_VERSION_1), &Epoll::new().unwrap(), 1);
    (net, words)
}

/// Returns a UDP packet to port 4791.
fn packet(dst: Mac) -> Vec<u8> {
    let mut ip = [0u8; 28];
    (ip[0], ip[3], ip[9]) = (0x45, 28, 17);
    ip[22..24].copy_from_slice(&4791u16.to_be_bytes());
    [&dst.0[..], &A.0, &[0x08, 0x00], &ip, &[0x5a; 58]].concat()
}

fn headers(frame: &[u8]) -> Head {
    Head::parse(frame).unwrap()
}

#[test]
fn packets_of_the_engine_go_to_soft_roce_in_a_guest_or_out() {
    let (mut net, words) = net();
    let mut wire = Wire::default();
    let mut send = |dst| {
        let packet = packet(dst);
        let headers = headers(&packet);
        let verdict = net.route_packet(Instant(1), &headers);
        net.forward_packet(Instant(1), verdict, (&headers, &packet), &mut wire, &mut |_: &[u8]| {});
        net.flush();
        verdict
    };
    assert_eq!(send(B), Verdict::To(SwitchPort::Guest(1)));
    // One chain is used. It has the header and 100 bytes.
    let used = [0x200, 0x204, 0x208].map(|at| words.load32(at, Ordering::Acquire));
    assert_eq!([used[0] >> 16, used[1], used[2]], [1, 0, 112]);
    assert_eq!(words.load16(0x1000 + 10, Ordering::Relaxed), 1, "one buffer");
    let found = words.read_words::<4>(0x1000 + 16).map(u64::to_ne_bytes).concat();
    assert_eq!(found, packet(B)[4..36]);
    assert_eq!(send(REMOTE), Verdict::Unknown);
    assert_eq!(send(A), Verdict::Drop(Reason::Hairpin), "guests of one engine meet in it");
    assert_eq!(wire.0, [(packet(REMOTE), false)]);
}

#[test]
fn packets_from_the_wire_go_to_the_engine_of_guests_that_have_one() {
    let (mut net, words) = net();
    let mut engine = Vec::new();
    for dst in [A, B] {
        let mut packet = packet(dst);
        packet[6..12].copy_from_slice(&REMOTE.0);
        net.receive(Instant(1), &packet, SwitchPort::Uplink, &mut Wire::default(), &mut |packet: &[u8]| {
            engine.push(packet.to_vec())
        });
    }
    net.flush();
    assert_eq!((engine.len(), &engine[0][..6]), (1, &A.0[..]));
    assert_eq!(words.load16(0x202, Ordering::Acquire), 1, "guest b runs soft-RoCE");
    assert_eq!(
        net.route_packet(Instant(2), &headers(&packet(REMOTE))),
        Verdict::To(SwitchPort::Uplink),
        "it was heard of"
    );
}

/// Another worker shows its copy, and what is dropped reaches nobody.
#[test]
fn a_frame_from_the_wire_is_captured_once_and_by_those_that_it_reaches() {
    let guest = CapturedGuest {
        name: "b".into(),
        macs: vec![B],
        vlans: Vlans::any(),
        has_net: true,
        has_rdma: false,
        joined: JoinedGroups::default(),
    };
    let frame = |src: Mac| [&B.0[..], &src.0, &[8, 6], &[0; 46]].concat();
    for (filter, wanted) in [(Filter::default(), 2), (Filter { guest: Some(guest), ..Filter::default() }, 1)]
    {
        let (mut net, _memory) = net();
        let (tap, queue) = tap_of(filter);
        net.tap = tap;
        let (mut wire, engine) = (Wire::default(), &mut |_: &[u8]| ());
        net.receive(Instant(1), &frame(REMOTE), SwitchPort::Uplink, &mut wire, engine);
        net.receive_copy(Instant(1), &frame(REMOTE), &mut wire, engine);
        net.receive(Instant(1), &frame(A), SwitchPort::Worker, &mut wire, engine);
        // Its source address is a guest's.
        net.receive(Instant(1), &frame(A), SwitchPort::Uplink, &mut wire, engine);
        assert_eq!(net.stats().switch.drop_own_source, 2);
        queue.end(CaptureEnd::Asked);
        assert_eq!(queue.progress().0.missed, wanted, "nobody writes them");
    }
}

#[test]
fn packets_to_a_group_go_to_the_engine_and_to_guests_that_have_none() {
    let (mut net, words) = net();
    let mut engine = Vec::new();
    let mut packet = packet(Mac([1, 0, 0x5e, 0, 0, 1]));
    packet[6..12].copy_from_slice(&REMOTE.0);
    net.receive(Instant(1), &packet, SwitchPort::Uplink, &mut Wire::default(), &mut |packet: &[u8]| {
        engine.push(packet.to_vec())
    });
    net.flush();
    assert_eq!(engine, [packet.clone()]);
    assert_eq!(words.load16(0x202, Ordering::Acquire), 1, "guest b runs soft-RoCE");
    // A packet that the engine sent does not come back to it.
    packet[6..12].copy_from_slice(&A.0);
    let headers = headers(&packet);
    let (mut wire, verdict) = (Wire::default(), net.route_packet(Instant(1), &headers));
    assert_eq!(verdict, Verdict::RoceGroup);
    net.forward_packet(Instant(1), verdict, (&headers, &packet), &mut wire, &mut |_: &[u8]| {});
    assert_eq!(wire.0, [(packet, false)]);
}

#[test]
fn a_checksum_is_left_to_a_nic_that_knows_its_kind() {
    for (len, protocol, offset, left) in
        [(MIN_FRAME, 17, 6, true), (MIN_FRAME - 1, 17, 6, false), (54, 17, 6, false), (64, 6, 16, false)]
    {
        let mut bytes = vec![2; len];
        bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
        bytes[23] = protocol;
        let mut frame = FrameView::bytes(&bytes);
        frame.offload = crate::frames::VirtioOffload::Checksum { start: 34, offset };
        let (mut net, mut wire) = (Net::new(1500), Wire::default());
        net.outlets.transmit(&frame, &mut wire);
        let (sent, was_left) = wire.0.pop().expect("one frame");
        assert_eq!((was_left, sent.len()), (left, len.max(MIN_FRAME)));
        assert_eq!(sent[..len] == bytes, left, "{sent:x?}");
        assert!(sent[len..].iter().all(|byte| *byte == 0), "{sent:x?}");
    }
}

/// An uplink that drops all frames.
struct Nowhere;

impl SwitchUplink for Nowhere {
    fn completes(&self, _: &[u8], _: u16, _: u16) -> Option<port::Offload> {
        None
    }

    fn room(&mut self) -> Option<usize> {
        None
    }

    fn transmit(&mut self, _: usize, _: Option<port::Offload>, _: Fill<'_>) -> Result<(), Lost> {
        Err(Lost)
    }
}

/// Entries of the queues of [`sender_and_receiver`].
const SIZE: u16 = 64;

/// Returns a switch with two guests. Guest 0's transmit queue is full of frames of `len` bytes to
/// `dst`.
///
/// Guest 1 may have any address, and its chains have `descriptors` buffers each. The available
/// rings are at 0x1000 and 0x3000.
fn sender_and_receiver(dst: Mac, len: u32, descriptors: usize) -> (Net, Shared) {
    let memory = memory(&[(0, 0x40000)]);
    let words = Shared::<16>::new(&memory, Extent { gpa: 0, len: 0x40000 }).unwrap();
    let describe = |at: usize, gpa: u64, len: u64, flags: u64, next: u64| {
        words.store64(at, gpa, Ordering::Relaxed);
        words.store64(at + 8, len | flags << 32 | next << 48, Ordering::Relaxed);
    };
    let mut net = Net::new(9000);
    let (queues, (frame, buffer, table)) = ([0, 0x2000], (0x10000, 0x20000, 0x30000));
    for (guest, mac) in [A, B].into_iter().enumerate() {
        let vlans = Vlans::any();
        net.add(
            "",
            Member { mac, extra_macs: vec![], any_mac: guest == 1, rdma: false, gids: vec![], vlans },
            FLOOD_RATE,
        );
        let at = queues[guest];
        for entry in 0..usize::from(SIZE) {
            // All chains of a queue have the same frame, or the same buffers in an indirect table.
            match guest {
                0 => describe(at + 16 * entry, frame, u64::from(len) + 12, 0, 0),
                _ => describe(at + 16 * entry, table, 16 * descriptors as u64, 4, 0),
            }
            words.store16(at + 0x1004 + 2 * entry, entry as u16, Ordering::Relaxed);
        }
        words.store16(at + 0x1002, SIZE, Ordering::Release);
        let (desc, used) = (at as u64, at as u64 + 0x1800);
        let setup = VirtqueueSetup {
            index: if guest == 0 { TRANSMIT } else { RECEIVE },
            size: SIZE,
            desc,
            avail: desc + 0x1000,
            used,
            event_idx: false,
            kick: None,
            call: None,
        };
        let features = 1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_INDIRECT_DESC;
        net.start(guest, &memory, (setup, 0, features), &Epoll::new().unwrap(), 1);
    }
    let piece = (u64::from(len) + 12).div_ceil(descriptors as u64);
    for entry in 0..descriptors {
        let last = entry + 1 == descriptors;
        describe(table as usize + 16 * entry, buffer, piece, if last { 2 } else { 3 }, entry as u64 + 1);
    }
    let head = [&dst.0[..], &A.0, &[0x88, 0xb5]].concat();
    for (at, word) in head.chunks(2).enumerate() {
        words.store16(
            frame as usize + 12 + 2 * at,
            u16::from_ne_bytes([word[0], word[1]]),
            Ordering::Relaxed,
        );
    }
    (net, words)
}

/// Returns how many frames of `len` bytes a guest can send in one round.
///
/// The chains of the receiver have `descriptors` buffers each.
fn frames_of_a_turn(len: u32, descriptors: usize) -> u16 {
    let (mut net, _) = sender_and_receiver(B, len, descriptors);
    net.turn(Instant(1), &mut Nowhere, &mut |_: &[u8]| {});
    let frames = net.senders[0].counters.tx_frames;
    assert_eq!(net.outlets.receivers[1].counters.rx_frames, frames, "all arrive");
    frames as u16
}

/// Returns the cost of a frame of `len` bytes to a receiver that needs `descriptors` descriptors.
///
/// The sender has one descriptor, and one frame is made.
fn cost(len: u32, descriptors: usize) -> u64 {
    FRAME + u64::from(len) + STEP * (descriptors as u64 + 2)
}

#[test]
fn a_turn_pays_for_frames_their_bytes_and_the_descriptors_of_receivers() {
    for (len, descriptors) in [(60, 1), (1000, 1), (1000, 32), (5000, 100), (9000, 1)] {
        let expected = TURN.div_ceil(cost(len, descriptors));
        assert_eq!(u64::from(frames_of_a_turn(len, descriptors)), expected, "{len} {descriptors}");
    }
}

#[test]
fn what_a_turn_took_too_much_is_missing_in_the_next() {
    let (mut net, _) = sender_and_receiver(B, 9000, 100);
    let mut frames = 0;
    for turn in 1..=3 {
        net.turn(Instant(1), &mut Nowhere, &mut |_: &[u8]| {});
        frames = net.senders[0].counters.tx_frames;
        assert_eq!(frames, (turn * TURN).div_ceil(cost(9000, 100)), "turn {turn}");
    }
    // While it sends nothing, its debt decreases.
    net.spent[0] = 3 * TURN;
    assert!(net.turn(Instant(1), &mut Nowhere, &mut |_: &[u8]| {}), "it is not asleep");
    assert_eq!(net.senders[0].counters.tx_frames, frames);
    assert_eq!(net.spent[0], 2 * TURN);
}

#[test]
fn what_the_engine_sends_to_all_is_limited_but_for_the_uplink() {
    let (mut net, words) = net();
    let mut wire = Wire::default();
    for _ in 0..70 {
        let packet = packet(Mac([0xff; 6]));
        let headers = headers(&packet);
        let verdict = net.route_packet(Instant(1), &headers);
        assert_eq!(verdict, Verdict::Group);
        net.forward_packet(Instant(1), verdict, (&headers, &packet), &mut wire, &mut |_: &[u8]| {});
    }
    net.flush();
    assert_eq!(wire.0.len(), 70);
    assert_eq!(words.load16(0x202, Ordering::Acquire), 1, "guest b had one buffer");
    let counters =
        |guest: usize| (net.senders[guest].counters.tx_flood_limited, &net.outlets.receivers[guest].counters);
    assert_eq!((counters(0).0, counters(1).0, counters(1).1.rx_no_buffer), (6, 0, 63));
}

#[test]
fn what_a_guest_sends_to_several_ports_is_limited_but_for_the_uplink() {
    for (dst, verdict) in [(REMOTE, "unknown"), (Mac([0xff; 6]), "group")] {
        let (mut net, words) = sender_and_receiver(dst, 100, 1);
        let mut wire = Wire::default();
        for turn in 0..4 {
            if turn == 2 {
                // The driver offers the same frames again, and no further buffers.
                words.store16(0x1002, 2 * SIZE, Ordering::Release);
            }
            net.turn(Instant(1), &mut wire, &mut |_: &[u8]| {});
        }
        assert_eq!(wire.0.len(), 2 * usize::from(SIZE), "{verdict}");
        let (sender, receiver) = (&net.senders[0].counters, &net.outlets.receivers[1].counters);
        assert_eq!((sender.tx_frames, sender.tx_flood_limited), (128, 64), "{verdict}");
        assert_eq!((receiver.rx_frames, receiver.rx_no_buffer), (64, 0), "{verdict}");
    }
}

/// An uplink that has room for a number of frames.
struct Narrow(usize);

impl SwitchUplink for Narrow {
    fn completes(&self, _: &[u8], _: u16, _: u16) -> Option<port::Offload> {
        None
    }

    fn room(&mut self) -> Option<usize> {
        Some(self.0)
    }

    fn transmit(&mut self, _: usize, _: Option<port::Offload>, _: Fill<'_>) -> Result<(), Lost> {
        self.0 = self.0.checked_sub(1).ok_or(Lost)?;
        Ok(())
    }
}

#[test]
fn a_guest_that_floods_the_uplink_leaves_room_for_others_and_loses_nothing() {
    let (mut net, _) = sender_and_receiver(REMOTE, 100, 1);
    let mut port = Narrow(20);
    net.turn(Instant(1), &mut port, &mut |_: &[u8]| {});
    assert_eq!((port.0, net.senders[0].counters.tx_frames), (10, 10), "half is for packets of the engine");
    // The NIC takes three of them in each round.
    for _ in 0..5 {
        port.0 += 3;
        net.turn(Instant(1), &mut port, &mut |_: &[u8]| {});
        assert!(port.0 >= 3);
    }
    assert_eq!(net.outlets.uplink.uplink_lost, 0);
    let sent = net.outlets.uplink.uplink_sent;
    // Without room, frames wait in the guest's queue. They are lost once the port seems to be
    // stuck.
    port.0 = 0;
    net.turn(Instant(2), &mut port, &mut |_: &[u8]| {});
    assert_eq!((net.outlets.uplink.uplink_sent, net.outlets.uplink.uplink_lost), (sent, 0));
    net.turn(Instant(2_000_000), &mut port, &mut |_: &[u8]| {});
    assert!(net.outlets.uplink.uplink_lost > 0);
}

#[test]
fn frames_beyond_a_rate_wait_in_the_queue_or_are_dropped_at_the_receiver() {
    let qos = |tx_messages, rx_messages| Qos { tx_messages, rx_messages, ..Qos::default() };
    let counters = |net: &Net| (net.counters(0).held, net.counters(1).held);
    let (mut net, _) = sender_and_receiver(B, 100, 1);
    let turn = |net: &mut Net, now| net.turn(now, &mut Wire::default(), &mut |_: &[u8]| {});
    // Those of 10 ms go at once.
    net.set_qos(0, &qos(1000, 0));
    assert!(turn(&mut net, Instant(1)));
    assert_eq!(net.senders[0].counters.tx_frames, 10);
    // The others are no work, and no reason to stay awake until their time has come.
    assert!(!turn(&mut net, Instant(1)) && !net.arm() && !net.is_kicked_late());
    let next = net.next_time().expect("frames wait");
    assert_eq!(next, Instant(1_000_001));
    assert!(turn(&mut net, next));
    assert_eq!(net.senders[0].counters.tx_frames, 11);
    let (held, of_receiver) = counters(&net);
    assert_eq!((held.tx_held, held.tx_held_us, of_receiver.rx_limited), (1, 1000, 0));
    // Without a rate all go.
    net.set_qos(0, &Qos::default());
    assert_eq!(net.next_time(), None);
    // The receiver's rate drops what is too much.
    net.set_qos(1, &qos(0, 1000));
    assert!(turn(&mut net, Instant(2_000_000)));
    let sent = net.senders[0].counters.tx_frames;
    let (_, of_receiver) = counters(&net);
    assert!(sent > 30, "{sent}");
    assert_eq!(of_receiver.rx_limited, sent - 11 - 10);
}

#[test]
fn a_guest_that_has_emptied_its_queue_and_its_rate_at_once_is_looked_at_again() {
    let (mut net, words) = sender_and_receiver(B, 100, 1);
    let turn = |net: &mut Net, now| net.turn(now, &mut Wire::default(), &mut |_: &[u8]| {});
    // The rate allows all frames of the queue in a burst, and no more.
    net.set_qos(0, &Qos { tx_messages: u64::from(SIZE) * 100, ..Qos::default() });
    while turn(&mut net, Instant(1)) {}
    assert_eq!(net.senders[0].counters.tx_frames, u64::from(SIZE));
    assert!(!net.arm(), "there is nothing, and no kick is wanted");
    let next = net.next_time().expect("the guest may send later");
    // Without a kick, the guest sends more.
    words.store16(0x1002, SIZE + 1, Ordering::Release);
    assert!(turn(&mut net, next));
    assert_eq!(net.senders[0].counters.tx_frames, u64::from(SIZE) + 1);
}

/// A guest's own TCP, which takes segments to port 700.
#[derive(Default)]
struct Tcp {
    asked: std::cell::Cell<u32>,
    taken: Vec<(usize, Vec<u8>)>,
    complaints: Vec<(usize, Vec<u8>)>,
}

impl LocalReceivers for Tcp {
    fn packet(&mut self, _: &Head, packet: &[u8]) {
        panic!("a segment is no RoCE packet: {packet:x?}");
    }

    fn takes(&self, _: usize, headers: &Head) -> bool {
        self.asked.set(self.asked.get() + 1);
        headers.ends().is_some_and(|ends| ends.dst_port == 700)
    }

    fn segment(&mut self, guest: usize, _: &Head, frame: &[u8]) {
        self.taken.push((guest, frame.to_vec()));
    }

    fn too_long(&mut self, guest: usize, frame: &[u8]) {
        self.complaints.push((guest, frame.to_vec()));
    }
}

/// Returns a segment from the uplink to port 700 of guest a.
fn segment() -> TcpPacket {
    let header = TcpHeader {
        src_port: 9,
        dst_port: 700,
        seq: 1,
        ack: 2,
        flags: Flags::ACK,
        window: 3,
        urgent: 0,
        options: Options::default(),
    };
    let [src, dst] = [9, 1].map(|host| Gid::from_ipv4([10, 0, 0, host]));
    TcpPacket { src_mac: REMOTE, dst_mac: A, vlan: None, src, dst, traffic_class: 0, header }
}

fn frame(packet: &TcpPacket) -> Vec<u8> {
    let mut frame = vec![0; packet.len()];
    packet.emit(Sum::default(), &mut frame);
    frame
}

#[test]
fn segments_go_to_the_tcp_of_a_guest_that_has_one_and_takes_them() {
    let (mut net, _) = net();
    let mut tcp = Tcp::default();
    let receive = |net: &mut Net, tcp: &mut Tcp, frame: &[u8]| {
        net.receive(Instant(1), frame, SwitchPort::Uplink, &mut Wire::default(), tcp);
    };
    let right = frame(&segment());
    receive(&mut net, &mut tcp, &right);
    assert_eq!(tcp.asked.get(), 0, "nobody is asked for a guest without one");
    net.set_tcp(0);
    receive(&mut net, &mut tcp, &right);
    assert_eq!(tcp.taken, [(0, right.clone())]);
    let mut other = segment();
    other.header.dst_port = 701;
    receive(&mut net, &mut tcp, &frame(&other));
    assert_eq!((tcp.asked.get(), tcp.taken.len()), (2, 1));
    // IP options, a fragment, UDP: these go to the netdev.
    for (at, value) in [(14, 0x46), (20, 0x20), (23, 17)] {
        let mut spoilt = right.clone();
        spoilt[at] = value;
        receive(&mut net, &mut tcp, &spoilt);
    }
    assert_eq!(tcp.asked.get(), 2);
    // To an address that another guest lists.
    let gids = vec![AllowedGid { address: [10, 0, 0, 1].into(), vlan: None }];
    let mac = Mac([0x52, 0x54, 0, 0, 0, 3]);
    net.add(
        "c",
        Member { mac, extra_macs: vec![], any_mac: false, rdma: true, gids, vlans: Vlans::any() },
        1,
    );
    receive(&mut net, &mut tcp, &right);
    assert_eq!((tcp.asked.get(), tcp.taken.len()), (2, 1));
}

/// Returns an ICMP message of a router to guest b, with the fields that the switch reads.
fn complaint() -> Vec<u8> {
    let mut frame = frame(&TcpPacket { dst_mac: B, ..segment() });
    // ICMP instead of TCP: destination unreachable, fragmentation needed.
    frame[23] = 1;
    frame[34..36].copy_from_slice(&[3, 4]);
    frame
}

#[test]
fn what_routers_complain_of_goes_to_the_netdev_and_is_heard_by_its_tcp() {
    let (mut net, _memory) = net();
    let mut tcp = Tcp::default();
    // The netdev has one buffer.
    let receive = |net: &mut Net, tcp: &mut Tcp, frame: &[u8]| {
        net.receive(Instant(1), frame, SwitchPort::Uplink, &mut Wire::default(), tcp);
        let counters = &net.outlets.receivers[1].counters;
        (counters.rx_frames, counters.rx_no_buffer)
    };
    let right = complaint();
    assert_eq!(receive(&mut net, &mut tcp, &right), (1, 0));
    assert!(tcp.complaints.is_empty(), "a guest without one hears nothing");
    net.set_tcp(1);
    assert_eq!(receive(&mut net, &mut tcp, &right), (1, 1));
    assert_eq!(tcp.complaints, [(1, right.clone())]);
    // Other ICMP messages, and a message to no guest.
    for (at, value) in [(35, 1), (34, 8), (23, 17), (0, 0x0e)] {
        let mut other = right.clone();
        other[at] = value;
        receive(&mut net, &mut tcp, &other);
    }
    assert_eq!((tcp.complaints.len(), tcp.taken.len()), (1, 0));
}

#[test]
fn segments_of_one_guest_reach_the_tcp_of_another() {
    let (mut net, _) = net();
    net.set_tcp(0);
    let (mut tcp, mut wire) = (Tcp::default(), Wire::default());
    let frame = frame(&TcpPacket { src_mac: B, ..segment() });
    let headers = headers(&frame);
    let verdict = net.route_packet(Instant(1), &headers);
    assert_eq!(verdict, Verdict::To(SwitchPort::Guest(0)));
    net.forward_packet(Instant(1), verdict, (&headers, &frame), &mut wire, &mut tcp);
    assert_eq!((&tcp.taken[..], wire.0.len()), (&[(0, frame)][..], 0));
}
