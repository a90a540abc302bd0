//! Packets that come ahead of a gap are held, and executed in order.

mod ends;
mod flood;
mod naks;

use super::*;
use crate::agenda::reorder::{DEVICE_BYTES, ENGINE_BYTES};
use crate::engine::reorder::EXECUTED;
use crate::objects::roce::reorder::{REORDER_BYTES, REORDER_WINDOW};
use WcStatus::{RemAccess, Success};
use vrdma_wire::roce::{Aeth, NakCode, Part, Reth, Syndrome, WriteTail};

const MTU: usize = 1024;
const SEQUENCE: Syndrome = Syndrome::Nak(NakCode::PsnSequenceError);

/// Returns what host `at` holds: packets and bytes.
fn held(net: &Net, at: usize) -> (u32, u64) {
    net.hosts[at].engine.held_early(net.hosts[at].end.device)
}

/// Returns the frames of a WRITE of `packets` packets from A to the beginning of B's memory.
fn write(net: &mut Net, packets: usize) -> Vec<Frame> {
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let data: Vec<u8> = (0..packets * MTU).map(|at| (at / MTU) as u8 + 1).collect();
    a.memory.fill(0, &data);
    let length = data.len() as u32;
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, length)]));
    net.work(A);
    let frames: Vec<_> = net.hosts[A].cable.frames.drain(..).collect();
    assert_eq!(frames.len(), packets);
    frames
}

/// Returns how many packets of [`write`] are in B's memory, from the first on.
fn stored(net: &Net) -> usize {
    let memory = net.hosts[B].end.memory.bytes(0, 1 << 19);
    memory.chunks(MTU).zip(0..).take_while(|(chunk, at)| **chunk == [*at as u8 + 1; MTU]).count()
}

/// Delivers some of A's frames to B.
fn bring(net: &mut Net, frames: &[Frame], which: impl IntoIterator<Item = usize>) {
    for at in which {
        net.deliver(A, &frames[at]);
    }
}

/// Returns B's NAKs and acknowledges so far, as distances from the first PSN of `frames`.
fn answers(net: &mut Net, frames: &[Frame]) -> Vec<(i32, bool)> {
    let first = parse(&frames[0]).bth.psn;
    let told = net.answers(B).into_iter().map(|(psn, body)| match body {
        Body::Rc(Rc::Ack(Aeth { syndrome, .. })) => {
            (Psn::truncate(psn).distance(first), syndrome == SEQUENCE)
        }
        other => panic!("{other:?}"),
    });
    told.collect()
}

#[test]
fn packets_behind_a_gap_are_executed_when_it_is_filled() {
    let mut net = Net::connected();
    let frames = write(&mut net, 10);
    bring(&mut net, &frames, (0..10).filter(|&at| at != 4));
    assert_eq!((held(&net, B).0, stored(&net)), (5, 4), "nothing is stored before its turn");
    assert!(held(&net, B).1 > 5 * MTU as u64);
    assert_eq!(answers(&mut net, &frames), [(4, true)]);
    bring(&mut net, &frames, [4]);
    assert_eq!(answers(&mut net, &frames), [(9, false)], "all are acknowledged at once");
    assert_eq!((held(&net, B), stored(&net)), ((0, 0), 10));
    let counters = net.hosts[B].counters();
    assert_eq!((counters.out_of_sequence, counters.packets_in, counters.duplicates), (5, 10, 0));
    assert_eq!((counters.naks_sequence, counters.bytes_in), (1, 10 * MTU as u64));
}

#[test]
fn any_order_of_packets_is_put_right() {
    let mut rng = crate::base::rng::Rng::new(5);
    for _ in 0..50 {
        let mut net = Net::connected();
        let frames = write(&mut net, 40);
        let mut order: Vec<usize> = (0..40).collect();
        for at in (1..40).rev() {
            order.swap(at, rng.next() as usize % (at + 1));
        }
        for at in order {
            bring(&mut net, &frames, [at]);
            if rng.next().is_multiple_of(4) {
                bring(&mut net, &frames, [rng.next() as usize % 40]);
            }
            if rng.next().is_multiple_of(4) {
                net.work(B);
            }
        }
        net.run();
        assert_eq!((stored(&net), held(&net, B)), (40, (0, 0)));
        assert_eq!(net.hosts[A].statuses(), [(1, Success)]);
    }
}

#[test]
fn a_held_packet_is_checked_when_it_is_executed() {
    let mut net = Net::connected();
    let frames = write(&mut net, 3);
    bring(&mut net, &frames, [0, 2]);
    let b = net.hosts[B].end.clone();
    net.hosts[B].engine.dereg_mr(b.device, b.key).unwrap();
    let other = Mem::new(MEMORY);
    let Host { engine, end, .. } = &mut net.hosts[B];
    engine.reg_mr(end.device, end.pd, OF_REGION, IOVA, MEMORY as u64, other.clone()).unwrap();
    net.work(B);
    net.hosts[B].cable.frames.clear();
    bring(&mut net, &frames, [1]);
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, RemAccess)]);
    assert_eq!((stored(&net), other.bytes(0, MEMORY)), (1, vec![0; MEMORY]));
    assert_eq!((held(&net, B), net.hosts[B].state()), ((0, 0), QpState::Err));
}

#[test]
fn duplicates_of_held_packets_are_not_copied_again() {
    let mut net = Net::connected();
    let frames = write(&mut net, 10);
    bring(&mut net, &frames, 1..10);
    let before = held(&net, B);
    for _ in 0..20 {
        bring(&mut net, &frames, 1..10);
    }
    assert_eq!(held(&net, B), before);
    bring(&mut net, &frames, [0]);
    net.work(B);
    assert_eq!((stored(&net), held(&net, B)), (10, (0, 0)));
    assert_eq!(net.hosts[B].counters().bytes_in, 10 * MTU as u64);
}

#[test]
fn held_packets_are_executed_in_slices() {
    for (path_mtu, most) in [(Mtu::M1024, EXECUTED), (Mtu::M4096, 29)] {
        slices(path_mtu, most);
    }
}

/// Executes held packets of this length. At most `most` are executed in a turn.
fn slices(path_mtu: Mtu, most: usize) {
    // Copies of much that is held take long.
    save::replace_none();
    let mut net = Net::connected_with(|a| a.path_mtu = path_mtu, |b| b.path_mtu = path_mtu);
    let packets = 3 * EXECUTED;
    let mtu = path_mtu.bytes() as usize;
    let b = net.hosts[B].end.clone();
    let reth = Reth { va: IOVA, rkey: Rkey(b.key), length: (packets * mtu) as u32 };
    let frames: Vec<Frame> = (0..packets)
        .map(|at| {
            let part = match at {
                0 => Part::First(reth),
                _ if at == packets - 1 => Part::Last(WriteTail::Plain),
                _ => Part::Middle,
            };
            let psn = net.expected(B).add(at as u32);
            let packet = net.packet(A, Body::Rc(Rc::Write(part)), psn);
            frame(&packet, &vec![at as u8 + 1; mtu])
        })
        .collect();
    bring(&mut net, &frames, 1..packets);
    net.work(B);
    bring(&mut net, &frames, [0]);
    assert_eq!(held(&net, B).0 as usize, packets - 1, "a call for one frame executes one packet");
    let mut counts = Vec::new();
    while held(&net, B).0 > 0 {
        let before = held(&net, B).0;
        let Host { engine, cable, log, .. } = &mut net.hosts[B];
        engine.transmit(net.now, 1, cable, log);
        counts.push(before - held(&net, B).0);
    }
    // In its first turn, the device has all of its credit.
    assert_eq!(counts[0] as usize, most, "{counts:?}");
    assert!(counts.iter().all(|&count| count as usize <= most), "{counts:?}");
    let memory = b.memory.bytes(0, packets * mtu);
    assert!(memory.chunks(mtu).zip(1..).all(|(chunk, at)| *chunk == vec![at as u8; mtu]));
}

#[test]
fn packets_are_executed_as_others_come_while_there_is_no_turn() {
    let mut net = Net::connected();
    let frames = write(&mut net, 200);
    bring(&mut net, &frames, 1..50);
    assert_eq!(answers(&mut net, &frames), [(0, true)]);
    bring(&mut net, &frames, [0]);
    assert_eq!(held(&net, B).0, 49);
    // This one comes again, and is executed before it is looked at.
    bring(&mut net, &frames, [2]);
    assert_eq!((held(&net, B).0, net.hosts[B].counters().duplicates), (47, 1));
    for at in 50..200 {
        bring(&mut net, &frames, [at]);
        let left = 96_usize.saturating_sub(at).max(1);
        assert_eq!(held(&net, B).0 as usize, left, "two are executed, one is held");
    }
    bring(&mut net, &frames, [199, 5, 199]);
    assert_eq!((stored(&net), held(&net, B)), (200, (0, 0)));
    assert_eq!(answers(&mut net, &frames), [(199, false)]);
    let counters = net.hosts[B].counters();
    assert_eq!((counters.drop_reorder, counters.naks_sequence), (0, 1));
}

#[test]
fn who_waits_for_a_receive_keeps_what_is_behind_it() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 1, write_to(b.remote(0)), Payload::Inline(b"first"));
    net.post(A, 2, SEND, Payload::Sges(&[a.sge(0, 8)]));
    net.post(A, 3, write_to(b.remote(0)), Payload::Inline(b"third"));
    net.work(A);
    let frames: Vec<_> = net.hosts[A].cable.frames.drain(..).collect();
    bring(&mut net, &frames, [1, 2]);
    let now = net.now;
    let Host { engine, log, cable, .. } = &mut net.hosts[B];
    engine.handle_frame(now, &frames[0], log);
    engine.transmit(now, 100, cable, log);
    assert!(engine.has_questions(), "the SEND has no receive so far");
    engine.transmit(now, 100, cable, log);
    assert_eq!(net.hosts[B].counters().naks_sequence, 1, "that of the first gap");
    assert_eq!((b.memory.bytes(0, 5), held(&net, B).0), (b"first".to_vec(), 1));
    net.post_recv(B, 5, &[b.sge(100, 8)]);
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, Success), (2, Success), (3, Success)]);
    assert_eq!((net.hosts[B].statuses(), held(&net, B)), (vec![(5, Success)], (0, 0)));
    assert_eq!((b.memory.bytes(0, 5), net.hosts[B].counters().rnr_naks_sent), (b"third".to_vec(), 0));
    assert_eq!(net.hosts[B].counters().naks_sequence, 1);
}

#[test]
fn packets_in_this_process_are_not_held() {
    for stays_here in [false, true] {
        // A restored engine learns the way again.
        save::replace_none();
        let mut net = Net::connected();
        net.hosts[B].cable.stays_here = stays_here;
        // B learns the way in a turn of its own.
        let a = net.hosts[A].end.clone();
        net.post(B, 9, write_to(a.remote(9000)), Payload::Inline(b"x"));
        net.run();
        let frames = write(&mut net, 3);
        bring(&mut net, &frames, [0, 2]);
        assert_eq!(held(&net, B).0, u32::from(!stays_here));
        assert_eq!(answers(&mut net, &frames), [(1, true)]);
    }
}
