//! Frames that no valid peer sends. Each is counted by name and changes nothing.

use super::*;
use vrdma_wire::DropReason;
use vrdma_wire::num::{AethMsn, Pkey, Qkey};
use vrdma_wire::roce::{
    Aeth, Credits, Deth, NakCode, Part, Reth, RnrTimer, SendTail, Syndrome, Uc, WriteTail,
};

const ACK: Syndrome = Syndrome::Ack(Credits::UNLIMITED);

pub(super) fn ack(syndrome: Syndrome) -> Body {
    Body::Rc(Rc::Ack(Aeth { syndrome, msn: Default::default() }))
}

pub(super) fn write_only(net: &Net, at: usize) -> Body {
    let end = &net.hosts[at].end;
    let reth = Reth { va: IOVA, rkey: Rkey(end.key), length: 4 };
    Body::Rc(Rc::Write(Part::Only(reth, WriteTail::Plain)))
}

/// Returns all counters of a host that are not zero, except those that only count arrivals.
fn counted(host: &Host) -> Vec<(&'static str, u64)> {
    let device = host.counters().iter();
    let port = host.engine.port_counters().iter();
    let malformed = host.engine.malformed_frames().iter();
    let all = device.chain(port).chain(malformed).filter(|count| count.1 != 0);
    all.filter(|count| !matches!(count.0, "packets_in" | "frames_in")).collect()
}

/// Delivers a frame to B as from A, and returns what B counted.
///
/// It asserts that B does not answer, and that neither B's memory nor its QP changes.
fn refused(spoil: impl FnOnce(&Net, &mut Packet) -> Option<Frame>) -> Vec<(&'static str, u64)> {
    let mut net = Net::connected();
    let mut packet = net.packet(A, write_only(&net, B), net.expected(B));
    let payload = b"evil";
    let spoiled = spoil(&net, &mut packet);
    let frame = spoiled.unwrap_or_else(|| frame(&packet, payload));
    let before = (net.hosts[B].state(), net.expected(B));
    net.deliver(A, &frame);
    assert_eq!(net.answers(B), []);
    assert_eq!((net.hosts[B].state(), net.expected(B)), before);
    assert_eq!(net.hosts[B].end.memory.bytes(0, 4), [0; 4]);
    assert!(net.hosts[B].statuses().is_empty() && net.hosts[B].events().is_empty());
    counted(&net.hosts[B])
}

#[test]
fn the_packet_that_the_others_are_made_of_is_good() {
    let mut net = Net::connected();
    let packet = net.packet(A, write_only(&net, B), net.expected(B));
    net.inject(A, &packet, b"good");
    assert_eq!(net.hosts[B].end.memory.bytes(0, 4), b"good");
    assert_eq!(net.answers(B).len(), 1);
}

#[test]
fn a_packet_of_a_limited_member_is_taken() {
    let mut net = Net::connected();
    let mut packet = net.packet(A, write_only(&net, B), net.expected(B));
    packet.bth.pkey = Pkey(0x7fff);
    net.inject(A, &packet, b"good");
    assert_eq!(net.hosts[B].end.memory.bytes(0, 4), b"good");
    assert_eq!(net.answers(B).len(), 1);
}

#[test]
fn frames_that_are_no_packets_are_counted_by_reason() {
    let damage = |at: usize, with: u8| {
        refused(|_, packet| {
            let mut frame = frame(packet, b"evil");
            frame[at] ^= with;
            Some(frame)
        })
    };
    for length in [0, 13, 20, 41, 53, 60] {
        let counts = refused(|_, packet| Some(frame(packet, b"evil")[..length].to_vec()));
        assert_eq!(counts.len(), 1, "{length}: {counts:?}");
    }
    assert_eq!(damage(70, 1), [(DropReason::Icrc.name(), 1)], "payload");
    assert_eq!(damage(47, 1), [(DropReason::Icrc.name(), 1)], "QPN");
    assert_eq!(damage(43, 1), [(DropReason::BthVersion.name(), 1)]);
    assert_eq!(damage(24, 1), [(DropReason::IpChecksum.name(), 1)]);
    assert_eq!(damage(42, 0x1f), [(DropReason::UnknownOpcode.name(), 1)]);
}

#[test]
fn packets_for_others_or_of_others_are_dropped_by_name() {
    let of_a = |change: &dyn Fn(&Net, &mut Packet)| {
        refused(move |net, packet| {
            change(net, packet);
            None
        })
    };
    let other = Gid::from_ipv4([10, 0, 0, 9]);
    assert_eq!(of_a(&|_, p| p.bth.pkey = Pkey(0x1234)), [("drop_pkey", 1)]);
    for other in [0x7ffe, 0x8001, 0xfffe, 0x8000, 0] {
        assert_eq!(of_a(&|_, p| p.bth.pkey = Pkey(other)), [("drop_pkey", 1)], "{other:#x}");
    }
    assert_eq!(of_a(&|_, p| p.bth.dest = Qpn::new(77).unwrap()), [("drop_no_qp", 1)]);
    assert_eq!(of_a(&|_, p| p.bth.dest = Qpn::new(0xff_ffff).unwrap()), [("drop_no_qp", 1)]);
    assert_eq!(of_a(&|_, p| p.path.dst_mac = Mac([2; 6])), [("drop_mac", 1)]);
    assert_eq!(of_a(&|net, p| p.path.src = net.hosts[B].end.gid), [("drop_spoofed", 1)]);
    assert_eq!(
        refused(|_, p| {
            p.path.src = other;
            None
        }),
        [("drop_source", 1)]
    );
    assert_eq!(
        refused(|_, p| {
            p.path.dst = other;
            None
        }),
        [("drop_no_device", 1)]
    );
    let notification = refused(|_, p| {
        p.body = Body::Cnp;
        Some(frame(p, b""))
    });
    assert_eq!(notification, [("rp_cnp_ignored", 1), ("congestion_notifications", 1)]);
    let deth = Deth { qkey: Qkey(1), src: Qpn::GSI };
    let counts = refused(move |_, p| {
        p.body = Body::Ud { deth, imm: None };
        None
    });
    assert_eq!(counts, [("drop_service", 1)]);
    assert_eq!(
        of_a(&|_, p| p.body = Body::Uc(Uc::Send(Part::Only((), WriteTail::Plain)))),
        [("drop_service", 1)]
    );
}

#[test]
fn forged_psns_change_nothing() {
    let at = |distance: u32| {
        refused(move |_, packet| {
            packet.bth.psn = packet.bth.psn.add(distance);
            packet.bth.ack_req = false;
            // A response causes neither a NAK nor an ACK.
            packet.body = ack(ACK);
            Some(frame(packet, b""))
        })
    };
    assert_eq!(at(0), [("drop_response_future", 1)]);
    assert_eq!(at(1 << 22), [("drop_response_future", 1)]);
    assert_eq!(at(0xff_ffff), [("drop_response_old", 1)]);
    // Requests are answered, so that the sender learns. They are not executed.
    for (distance, name) in [
        (1, "out_of_sequence"),
        ((1 << 23) - 1, "out_of_sequence"),
        (1 << 23, "duplicates"),
        (0xff_ffff, "duplicates"),
    ] {
        let mut net = Net::connected();
        let packet = net.packet(A, write_only(&net, B), net.expected(B).add(distance));
        for _ in 0..100 {
            net.inject(A, &packet, b"evil");
        }
        let answers = net.answers(B);
        assert_eq!(answers.len(), 1, "one answer to a storm");
        assert_eq!(net.hosts[B].end.memory.bytes(0, 4), [0; 4]);
        assert_eq!(counted(&net.hosts[B]).iter().find(|c| c.0 == name), Some(&(name, 100)));
    }
}

#[test]
fn packets_in_a_state_that_takes_none_are_dropped() {
    for state in [QpState::Reset, QpState::Init, QpState::Err] {
        let mut net = Net::connected();
        let attr = QpAttr { state, port: 1, ..QpAttr::default() };
        if state == QpState::Init {
            net.hosts[B].modify(net.now, AttrMask::STATE, QpAttr { state: QpState::Reset, ..attr });
        }
        let mask = if state == QpState::Init { TO_INIT } else { AttrMask::STATE };
        net.hosts[B].modify(net.now, mask, attr);
        for body in [write_only(&net, B), ack(ACK), ack(Syndrome::Nak(NakCode::RemoteAccessError))] {
            let payload: &[u8] = if matches!(body, Body::Rc(Rc::Ack(_))) { b"" } else { b"evil" };
            let packet = net.packet(A, body, net.expected(B));
            net.inject(A, &packet, payload);
        }
        assert_eq!(net.answers(B), []);
        let counters = net.hosts[B].counters();
        assert_eq!(counters.drop_state + counters.drop_source, 3, "{state:?}");
        assert_eq!(net.hosts[B].state(), state);
    }
}

/// Has A send a WRITE of three packets. The test plays B.
fn waiting() -> (Net, Psn) {
    let mut net = Net::connected_with(|a| a.rnr_retry = 1, |_| {});
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let first = net.expected(B);
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 2500)]));
    net.work(A);
    assert_eq!(net.hosts[A].cable.frames.drain(..).count(), 3);
    (net, first)
}

#[test]
fn acknowledges_of_the_past_and_of_the_future_do_nothing() {
    for (offset, name) in [
        (3, "drop_response_future"),
        (100, "drop_response_future"),
        (0x7f_ffff, "drop_response_future"),
        (0xff_ffff, "drop_response_old"),
    ] {
        for syndrome in
            [ACK, Syndrome::Rnr(RnrTimer::new(1).unwrap()), Syndrome::Nak(NakCode::InvalidRequest)]
        {
            let (mut net, first) = waiting();
            let packet = net.packet(B, ack(syndrome), first.add(offset));
            net.inject(B, &packet, b"");
            assert_eq!(counted(&net.hosts[A]).iter().find(|c| c.0 == name), Some(&(name, 1)), "{offset}");
            assert_eq!((net.hosts[A].statuses(), net.answers(A)), (vec![], vec![]));
        }
    }
}

#[test]
fn a_storm_of_naks_is_answered_once() {
    let (mut net, first) = waiting();
    let packet = net.packet(B, ack(Syndrome::Nak(NakCode::PsnSequenceError)), first.add(1));
    let mut sent = 0;
    for _ in 0..1000 {
        net.inject(B, &packet, b"");
        sent += net.answers(A).len();
    }
    assert_eq!(sent, 1, "the packet that was asked for");
    assert_eq!(net.hosts[A].counters().naks_sequence_in, 1000);
    assert_eq!((net.hosts[A].statuses(), net.hosts[A].state()), (vec![], QpState::Rts));
    // A storm of RNR NAKs ends after the allowed retries.
    let (mut net, first) = waiting();
    let packet = net.packet(B, ack(Syndrome::Rnr(RnrTimer::new(12).unwrap())), first);
    for _ in 0..1000 {
        net.inject(B, &packet, b"");
        assert_eq!(net.answers(A), []);
    }
    net.now = net.now + RNR;
    assert_eq!(net.answers(A).len(), 3);
    for _ in 0..1000 {
        net.inject(B, &packet, b"");
    }
    assert_eq!((net.answers(A), net.hosts[A].statuses()), (vec![], vec![(1, WcStatus::RnrRetryExc)]));
}

#[test]
fn a_peer_without_credits_gets_one_packet_at_a_time() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let first = net.expected(B);
    let answer = |net: &mut Net, offset: u32, msn, credits| {
        let syndrome = Syndrome::Ack(Credits::new(credits).unwrap());
        let aeth = Aeth { syndrome, msn: AethMsn::truncate(msn) };
        let packet = net.packet(B, Body::Rc(Rc::Ack(aeth)), first.add(offset));
        net.inject(B, &packet, b"");
        net.answers(A)
            .into_iter()
            .map(|sent| sent.0.wrapping_sub(first.number()) & 0xff_ffff)
            .collect::<Vec<_>>()
    };
    net.post(A, 1, write_to(b.remote(0)), Payload::Inline(b"x"));
    net.answers(A);
    assert!(answer(&mut net, 0, 1, 0).is_empty());
    net.post(A, 2, write_to(b.remote(0)), Payload::Inline(b"x"));
    net.post(A, 3, SEND, Payload::Sges(&[a.sge(0, 3000)]));
    net.post(A, 4, write_to(b.remote(0)), Payload::Inline(b"x"));
    // WRITEs need no receive. Then only the SEND's first packet is sent, which shows whether there
    // is a receive.
    assert_eq!(net.answers(A).len(), 1);
    assert_eq!(answer(&mut net, 1, 2, 0), [2]);
    assert_eq!(answer(&mut net, 2, 2, 0), [3]);
    // The ACK before the last one has no effect any more. The last one, repeated, reports a receive
    // that was posted.
    assert!(answer(&mut net, 1, 2, 1).is_empty());
    assert_eq!(answer(&mut net, 2, 2, 1), [4, 5]);
    assert!(answer(&mut net, 5, 4, 31).is_empty());
    assert_eq!(net.hosts[A].statuses(), [1, 2, 3, 4].map(|id| (id, WcStatus::Success)));
}

#[test]
fn a_link_that_flaps_loses_nothing_in_time_and_all_beyond() {
    for (downs, status) in [(2, WcStatus::Success), (3, WcStatus::RetryExc)] {
        let mut net = Net::connected();
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        a.memory.fill(0, &[3; 400_000]);
        net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 400_000)]));
        let Host { engine, log, cable, .. } = &mut net.hosts[A];
        engine.transmit(net.now, 60, cable, log);
        engine.set_link(false);
        assert!(!engine.transmit(net.now, 60, cable, log));
        while net.hosts[A].counters().timeouts < downs {
            net.sleep();
        }
        net.hosts[A].engine.set_link(true);
        net.settle();
        assert_eq!(net.hosts[A].statuses(), [(1, status)], "{downs}");
        assert_eq!(b.memory.bytes(399_999, 1), [if downs == 2 { 3 } else { 0 }]);
        assert!(net.hosts[A].engine.port_counters().lost_link_down > 0);
    }
}

#[test]
fn an_outlet_without_room_is_waited_for() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    a.memory.fill(0, &[3; 100_000]);
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 100_000)]));
    net.post(A, 2, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(200_000, 100_000)]));
    for _ in 0..300 {
        for at in [A, B] {
            net.hosts[at].cable.room = Some(0);
            net.work(at);
            assert!(net.hosts[at].cable.frames.is_empty());
            net.hosts[at].cable.room = Some(1);
            net.work(at);
            net.carry(at, |_, _| true);
        }
    }
    assert_eq!(net.hosts[A].statuses(), [1, 2].map(|id| (id, WcStatus::Success)));
    assert_eq!(a.memory.bytes(200_000, 100_000), [3; 100_000]);
    assert_eq!(net.hosts[A].counters().retries, 0);
}

#[test]
fn a_send_that_invalidates_a_region_is_refused() {
    let mut net = Net::connected();
    let b = net.hosts[B].end.clone();
    net.post_recv(B, 1, &[b.sge(0, 10)]);
    net.request(A, Rc::Send(Part::Only((), SendTail::Invalidate(Rkey(b.key)))), b"x");
    let answers = net.answers(B);
    let nak = Aeth { syndrome: Syndrome::Nak(NakCode::RemoteAccessError), msn: Default::default() };
    assert_eq!(answers, [(0xff_fffe, Body::Rc(Rc::Ack(nak)))]);
    assert_eq!((net.hosts[B].statuses(), net.hosts[B].events()), (vec![(1, WcStatus::RemInvReq)], vec![]));
}

#[test]
fn a_peer_that_reads_without_end_harms_no_other_connection() {
    let mut net = Net::connected();
    let first = net.second_pair();
    let second = [A, B].map(|at| std::mem::replace(&mut net.hosts[at].end, first[at].clone()));
    let reth = Reth { va: IOVA, rkey: Rkey(first[B].key), length: MEMORY as u32 };
    let begin = net.expected(B);
    for _ in 0..4 {
        net.request(A, Rc::ReadRequest(reth), b"");
    }
    for at in [A, B] {
        net.hosts[at].end = second[at].clone();
    }
    net.post(B, 1, write_to(first[A].remote(0)), Payload::Inline(b"x"));
    let mut packets = 0;
    for turn in 0.. {
        let Host { engine, log, cable, .. } = &mut net.hosts[B];
        assert!(engine.transmit(net.now, 64, cable, log), "more READ responses are ready");
        let frames = std::mem::take(&mut net.hosts[B].cable.frames);
        packets += frames.len();
        if frames.iter().any(|frame| matches!(parse(frame).body, Body::Rc(Rc::Write(_)))) {
            break;
        }
        assert!(turn < 5, "after a turn of 256 KiB it is the other's");
        // A peer that repeats its request gets no more for it.
        let again = net.packet(A, Body::Rc(Rc::ReadRequest(reth)), begin);
        let again = Packet { bth: Bth { dest: first[B].qpn, ..again.bth }, ..again };
        for _ in 0..100 {
            net.inject(A, &again, b"");
        }
    }
    assert!(packets <= 300, "{packets}");
}
