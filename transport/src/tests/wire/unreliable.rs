//! UC connections with packets.

use super::*;
use crate::tests::unreliable::CONNECT;
use QpState::{Rts, Sqd, Sqe};
use vrdma_wire::num::Imm;
use vrdma_wire::roce::{Body, Part, Uc};

const OK: WcStatus = WcStatus::Success;

pub(crate) fn uc() -> Net {
    connected(Net::new(QpType::Uc))
}

/// Changes the state of both QPs, which are in RESET, to RTS.
pub(crate) fn connected(mut net: Net) -> Net {
    for own in [A, B] {
        let peer = &net.hosts[1 - own];
        let attr = QpAttr { dmac: peer.mac, ..attr_to(&peer.end) };
        let to_rts = AttrMask::STATE | AttrMask::SQ_PSN;
        for (state, mask) in [(QpState::Init, TO_INIT), (QpState::Rtr, CONNECT), (Rts, to_rts)] {
            net.hosts[own].modify(net.now, mask, QpAttr { state, ..attr });
        }
    }
    net
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 11 + (i >> 8)) as u8).collect()
}

/// Returns a host's counters of drops.
fn dropped(host: &Host) -> Vec<(&'static str, u64)> {
    host.counters().iter().filter(|(name, count)| name.starts_with("drop_") && *count > 0).collect()
}

#[test]
fn nothing_leaves_from_an_address_that_is_gone() {
    let mut net = uc();
    let host = &mut net.hosts[A];
    host.engine.set_gid(host.end.device, 0, None).unwrap();
    net.post(A, 1, SEND, Payload::Inline(b"x"));
    net.work(A);
    assert_eq!(net.hosts[A].cable.frames.len(), 0);
    assert_eq!(net.hosts[A].statuses(), [(1, OK)], "it is lost, as on the way");
}

#[test]
fn messages_are_cut_as_those_of_reliable_connections_and_not_acknowledged() {
    let mut net = uc();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let data = pattern(200_000);
    a.memory.fill(0, &data);
    let imm = Some(Imm::from_bytes([1, 2, 3, 4]));
    let mut packets = 0;
    for length in [0usize, 1, 1023, 1024, 1025, 4096, 200_000] {
        b.memory.fill(0, &vec![0; length]);
        net.post_recv(B, 1, &[b.sge(0, length as u32)]);
        net.post(A, 2, SendOp::Send { imm }, Payload::Sges(&[a.sge(0, length as u32)]));
        net.work(A);
        packets += length.div_ceil(1024).max(1) as u64;
        assert_eq!(net.hosts[A].statuses(), [(2, OK)], "it has left, so it has ended");
        net.run();
        let received = net.hosts[B].log.completions.remove(0).2;
        assert_eq!((received.byte_len as usize, received.imm, received.src_qpn), (length, imm, a.qpn));
        assert!(b.memory.bytes(0, length) == data[..length], "{length}");
        b.memory.fill(500_000, &vec![0; length]);
        net.post_recv(B, 3, &[]);
        let op = SendOp::Write { remote: b.remote(500_000), imm };
        net.post(A, 4, op, Payload::Sges(&[a.sge(0, length as u32)]));
        net.run();
        packets += length.div_ceil(1024).max(1) as u64;
        let received = net.hosts[B].log.completions.remove(0).2;
        assert_eq!((received.byte_len as usize, received.opcode), (length, WcOpcode::RecvWriteImm));
        assert!(b.memory.bytes(500_000, length) == data[..length], "{length}");
        assert_eq!(net.hosts[A].statuses(), [(4, OK)]);
    }
    assert_eq!((net.hosts[A].counters().packets_out, net.hosts[B].counters().packets_in), (packets, packets));
    assert_eq!((net.hosts[B].counters().packets_out, dropped(&net.hosts[B])), (0, vec![]));
    assert_eq!(net.hosts[B].counters().uc_gaps, 0);
}

#[test]
fn inline_data_of_many_packets_arrives() {
    let mut net = uc();
    let b = net.hosts[B].end.clone();
    let data = pattern(128);
    net.post(A, 1, write_to(b.remote(7)), Payload::Inline(&data));
    net.post(A, 2, write_to(b.remote(300)), Payload::Inline(&data));
    net.run();
    assert_eq!((b.memory.bytes(7, 128), b.memory.bytes(300, 128)), (data.clone(), data));
}

#[test]
fn a_message_with_a_gap_is_lost_and_the_next_is_whole() {
    for lost in 0..4 {
        for write in [false, true] {
            let mut net = uc();
            let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
            a.memory.fill(0, &pattern(4096));
            net.post_recv(B, 1, &[b.sge(0, 4096)]);
            net.post_recv(B, 2, &[b.sge(0, 4096)]);
            let op = |imm: u8| {
                let imm = Some(Imm::from_bytes([imm; 4]));
                if write { SendOp::Write { remote: b.remote(8192), imm } } else { SendOp::Send { imm } }
            };
            for round in [10, 11] {
                net.post(A, round, op(round as u8), Payload::Sges(&[a.sge(0, 4096)]));
            }
            net.work(A);
            assert_eq!(net.hosts[A].cable.frames.len(), 8);
            net.carry(A, |at, _| at != lost);
            net.run();
            assert_eq!(net.hosts[A].statuses(), [(10, OK), (11, OK)]);
            assert_eq!(net.hosts[B].log.completions.len(), 1, "{lost} {write}");
            let received = net.hosts[B].log.completions.remove(0).2;
            assert_eq!((received.id, received.byte_len), (1, 4096));
            assert_eq!(received.imm, Some(Imm::from_bytes([11; 4])));
            assert!(b.memory.bytes(if write { 8192 } else { 0 }, 4096) == pattern(4096));
            assert_eq!(net.hosts[B].counters().uc_gaps, 1);
            let rest = 3 - lost as u64;
            let expected = if rest > 0 { vec![("drop_psn", rest)] } else { vec![] };
            assert_eq!((dropped(&net.hosts[B]), net.hosts[B].state()), (expected, Rts), "{lost}");
        }
    }
}

#[test]
fn what_is_not_allowed_is_dropped_whole_and_nobody_goes_to_error() {
    type Op = fn(&End) -> SendOp;
    let cases: [(&str, Op); 4] = [
        ("drop_access", |b| write_to(b.remote(MEMORY as u64 - 4095))),
        ("drop_access", |b| write_to(Remote { rkey: Rkey(9), ..b.remote(0) })),
        ("drop_no_receive", |_| SEND),
        ("drop_length", |_| SEND),
    ];
    for (counter, op) in cases {
        let mut net = uc();
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        if counter == "drop_length" {
            net.post_recv(B, 1, &[b.sge(0, 4095)]);
        }
        net.post(A, 2, op(&b), Payload::Sges(&[a.sge(0, 4096)]));
        net.run();
        let found = dropped(&net.hosts[B]);
        assert!(found.contains(&(counter, 1)), "{found:?}");
        assert!(found.iter().all(|(name, _)| [counter, "drop_psn"].contains(name)), "{found:?}");
        assert_eq!((net.hosts[A].statuses(), net.hosts[B].statuses()), (vec![(2, OK)], vec![]));
        assert_eq!((net.hosts[B].state(), net.hosts[B].events()), (Rts, vec![]));
        // The next message arrives.
        net.post_recv(B, 3, &[b.sge(0, 4096)]);
        net.post(A, 4, SEND, Payload::Inline(b"next"));
        net.run();
        assert_eq!(net.hosts[B].log.completions.remove(0).2.byte_len, 4);
        assert_eq!(net.hosts[B].counters().uc_gaps, 0, "{counter}");
    }
}

#[test]
fn packets_of_others_and_of_other_services_are_dropped() {
    let mut net = uc();
    let b = net.hosts[B].end.clone();
    net.post(A, 1, write_to(b.remote(0)), Payload::Inline(b"mine"));
    net.work(A);
    let frame = net.hosts[A].cable.frames.pop_front().unwrap();
    let parsed = Packet::parse(&frame).unwrap();
    let forge = |change: fn(&mut Packet)| {
        let mut packet = parsed.packet;
        change(&mut packet);
        let mut frame = vec![0; packet.frame_len(4)];
        write_frame::<Mem>(&packet, &Pieces::bytes(b"evil"), &mut frame).unwrap();
        frame
    };
    type Change = fn(&mut Packet);
    let cases: [(&str, Change); 3] = [
        ("drop_source", |p| p.path.src = Gid::from_ipv4([10, 0, 0, 66])),
        ("drop_service", |p| {
            let Body::Uc(Uc::Write(Part::Only(reth, tail))) = p.body else { panic!() };
            p.body = Body::Rc(vrdma_wire::roce::Rc::Write(Part::Only(reth, tail)));
        }),
        ("drop_psn", |p| {
            let Body::Uc(Uc::Write(Part::Only(_, tail))) = p.body else { panic!() };
            p.body = Body::Uc(Uc::Write(Part::Last(tail)));
        }),
    ];
    for (counter, change) in cases {
        net.deliver(A, &forge(change));
        assert!(dropped(&net.hosts[B]).contains(&(counter, 1)), "{counter}: {:?}", dropped(&net.hosts[B]));
    }
    assert_eq!(b.memory.bytes(0, 4), [0; 4]);
    net.deliver(A, &frame);
    assert_eq!(b.memory.bytes(0, 4), b"mine");
}

#[test]
fn a_full_outlet_is_waited_for_and_a_dead_link_is_not() {
    let mut net = uc();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.hosts[A].cable.room = Some(2);
    a.memory.fill(0, &pattern(4096));
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 4096)]));
    net.work(A);
    assert_eq!((net.hosts[A].cable.frames.len(), net.hosts[A].statuses()), (2, vec![]));
    let attr = QpAttr { state: Sqd, en_sqd_async_notify: true, ..QpAttr::default() };
    net.hosts[A].modify(net.now, AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY, attr);
    net.hosts[A].cable.room = None;
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, OK)]);
    assert_eq!(net.hosts[A].events(), [Event::SqDrained(a.qpn)]);
    assert!(b.memory.bytes(0, 4096) == pattern(4096));
    net.hosts[A].modify(net.now, AttrMask::STATE, QpAttr { state: Rts, ..QpAttr::default() });
    net.hosts[A].engine.set_link(false);
    net.post(A, 2, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 4096)]));
    net.run();
    assert_eq!((net.hosts[A].statuses(), net.hosts[A].cable.frames.len()), (vec![(2, OK)], 0));
    net.hosts[A].engine.set_link(true);
    net.post(A, 3, write_to(b.remote(5000)), Payload::Sges(&[a.sge(0, 4096)]));
    net.run();
    assert!(b.memory.bytes(5000, 4096) == pattern(4096));
    assert_eq!(net.hosts[B].counters().uc_gaps, 1);
}

#[test]
fn own_mistakes_stop_the_send_queue() {
    let mut net = uc();
    let a = net.hosts[A].end.clone();
    net.post(A, 1, SendOp::Read { remote: Remote::default() }, Payload::Sges(&[a.sge(0, 8)]));
    net.post(A, 2, SEND, Payload::Inline(b"x"));
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::LocQpOp), (2, WcStatus::Flush)]);
    assert_eq!(net.hosts[A].state(), Sqe);
    net.hosts[A].modify(net.now, AttrMask::STATE, QpAttr { state: Rts, ..QpAttr::default() });
    a.memory.vanish();
    net.post(A, 3, SEND, Payload::Sges(&[a.sge(0, 8)]));
    net.run();
    assert_eq!((net.hosts[A].statuses(), net.hosts[A].state()), (vec![(3, WcStatus::LocProt)], Sqe));
    assert_eq!(net.hosts[A].counters().packets_out, 0);
}

/// Returns the next random number.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Each completed receive has exactly one message, complete.
///
/// Messages have one to six packets, with bytes that follow from their id. The wire loses, repeats
/// and reorders packets.
#[test]
fn whatever_the_wire_does_a_message_comes_whole_or_not_at_all() {
    const LEN: usize = 6 * 1024;
    let content = |id: u32| (0..LEN).map(move |i| (id as usize * 31 + i * 7 + i / 256) as u8);
    let (mut arrived, mut gaps) = (0, 0);
    for seed in 1..=60u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut net = uc();
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        let mut sent = Vec::new();
        for round in 0..10 {
            for id in round * 4..round * 4 + 4 {
                let length = next(&mut random) as usize % (LEN + 1);
                a.memory.fill(LEN * (id as usize % 4), &content(id).take(length).collect::<Vec<_>>());
                let imm = Some(Imm::from_bytes(id.to_be_bytes()));
                let op = match next(&mut random) % 2 {
                    0 => SendOp::Send { imm },
                    _ => SendOp::Write { remote: b.remote(600_000 + LEN as u64 * u64::from(id % 4)), imm },
                };
                let own = [a.sge(LEN as u64 * u64::from(id % 4), length as u32)];
                net.post_recv(B, id % 4, &[b.sge(LEN as u64 * u64::from(id % 4), LEN as u32)]);
                net.post(A, id, op, Payload::Sges(&own));
                sent.push((id, length));
            }
            net.work(A);
            let mut frames: Vec<Frame> = net.hosts[A].cable.frames.drain(..).collect();
            for at in 1..frames.len() {
                match next(&mut random) % 12 {
                    0 => frames.swap(at - 1, at),
                    1 => frames[at] = frames[at - 1].clone(),
                    2 => frames[at].truncate(7),
                    _ => {}
                }
            }
            for frame in frames {
                net.deliver(A, &frame);
            }
            for (_, _, wc) in net.hosts[B].log.completions.drain(..) {
                assert_eq!(wc.status, OK);
                let id = u32::from_be_bytes(wc.imm.unwrap().to_bytes());
                let (_, length) = sent[id as usize];
                assert_eq!(wc.byte_len as usize, length, "seed {seed}");
                // Receives are filled in turn. A WRITE's bytes may be of a later WRITE to the same
                // place, unless it is the last one.
                if wc.opcode == WcOpcode::Recv && id / 4 == round {
                    let at = LEN * wc.id as usize;
                    assert!(
                        b.memory.bytes(at, length).into_iter().eq(content(id).take(length)),
                        "seed {seed} message {id}"
                    );
                }
                arrived += 1;
            }
            // Receives for which nothing came.
            net.hosts[B].modify(
                net.now,
                AttrMask::STATE,
                QpAttr { state: QpState::Reset, ..QpAttr::default() },
            );
            let psn = net.hosts[A].engine.query_qp(a.device, a.qpn).unwrap().sq_psn;
            let attr = QpAttr { dmac: net.hosts[A].mac, rq_psn: psn, ..attr_to(&a) };
            for (state, mask) in [(QpState::Init, TO_INIT), (QpState::Rtr, CONNECT)] {
                net.hosts[B].modify(net.now, mask, QpAttr { state, ..attr });
            }
        }
        let ended: Vec<_> = sent.iter().map(|(id, _)| (*id, OK)).collect();
        assert_eq!(net.hosts[A].statuses(), ended, "each has left, in order");
        assert_eq!(net.hosts[B].state(), QpState::Rtr);
        gaps += net.hosts[B].counters().uc_gaps;
    }
    assert!(arrived > 500 && gaps > 300, "{arrived} messages, {gaps} gaps");
}
