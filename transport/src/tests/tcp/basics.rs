//! Every operation arrives, for any framing of FPDUs and any segmentation of the stream.

use super::*;
use vrdma_wire::num::Imm;

/// Transfers a SEND, a WRITE, a WRITE with immediate data, a READ and two atomics.
///
/// Each has `length` bytes if its operation allows that.
fn all_arrive(net: &mut Net, length: u32) {
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    let data = pattern(length as usize, 1);
    a.memory.fill(0, &data);
    b.memory.fill(960_000, &[7, 0, 0, 0, 0, 0, 0, 0]);
    b.memory.fill(600_000, &pattern(length as usize, 2));
    let half = length / 2;
    let split = [a.sge(0, half), a.sge(u64::from(half), length - half)];
    net.post_recv(B, 50, &[b.sge(0, half), b.sge(u64::from(half), length - half)]);
    net.post_recv(B, 51, &[]);
    let imm = Some(Imm::from_bytes([1, 2, 3, 4]));
    net.post(A, 1, SEND, Payload::Sges(&split));
    net.post(A, 2, write_to(b.remote(200_000)), Payload::Sges(&split));
    net.post(A, 3, SendOp::Write { remote: b.remote(400_000), imm }, Payload::Sges(&split));
    let back = [a.sge(200_000, half), a.sge(200_000 + u64::from(half), length - half)];
    net.post(A, 4, SendOp::Read { remote: b.remote(600_000) }, Payload::Sges(&back));
    let word = b.remote(960_000);
    net.post(A, 5, SendOp::atomic(word, Atomic::FetchAdd { add: 5 }), Payload::Sges(&[a.sge(800_000, 8)]));
    let swap = SendOp::atomic(word, Atomic::CompareSwap { compare: 12, swap: 99 });
    net.post(A, 6, swap, Payload::Sges(&[a.sge(800_008, 8)]));
    net.post(A, 7, write_to(b.remote(900_000)), Payload::Inline(b"behind all"));
    net.run();
    let sent: Vec<_> = (1..=7).map(|id| (id, WcStatus::Success)).collect();
    assert_eq!(net.hosts[A].statuses(), sent);
    let received: Vec<_> = net.hosts[B].log.completions.drain(..).map(|(_, _, c)| c).collect();
    let told = |c: &Completion| (c.id, c.opcode, c.status, c.byte_len, c.imm);
    assert_eq!(
        received.iter().map(told).collect::<Vec<_>>(),
        [
            (50, WcOpcode::Recv, WcStatus::Success, length, None),
            (51, WcOpcode::RecvWriteImm, WcStatus::Success, length, imm)
        ]
    );
    for at in [0, 200_000, 400_000] {
        assert!(b.memory.bytes(at, data.len()) == data, "at {at}");
    }
    assert!(a.memory.bytes(200_000, data.len()) == pattern(data.len(), 2), "what was read");
    assert_eq!(a.memory.bytes(800_000, 16), [7, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(b.memory.bytes(960_000, 8), [99, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(b.memory.bytes(900_000, 10), b"behind all");
}

#[test]
fn all_operations_arrive_however_streams_are_framed_and_cut() {
    for markers in [[false, false], [true, false], [false, true], [true, true]] {
        for crc in [false, true] {
            for (mss, piece, length) in [
                (MSS, usize::MAX, 100_000),
                (256, 1, 3_000),
                (8948, 1000, 150_000),
                (60_000, 77_777, 190_001),
            ] {
                let [out, back] = markers.map(|markers| Framing { markers, crc });
                let mut net = Net::connected_with(
                    |a| (a.framing_out, a.framing_in, a.mss) = (out, back, mss),
                    |b| (b.framing_out, b.framing_in, b.mss) = (back, out, mss),
                );
                net.piece = piece;
                all_arrive(&mut net, length);
                let longest = net.hosts.iter().map(|host| host.away.longest).max().unwrap();
                assert!(longest <= mss as usize, "{longest}");
                all_arrive(&mut net, 0);
                all_arrive(&mut net, 1);
            }
        }
    }
}

#[test]
fn an_idle_queue_pair_in_a_stream_is_small() {
    use crate::objects::iwarp::state::RcTcp;
    use crate::objects::qp::entry::QpEntry;
    let all = size_of::<Option<QpEntry>>() + size_of::<RcTcp>();
    assert!(all < 1024, "{all}");
}

#[test]
fn fpdus_fill_their_tcp_segments() {
    let mut net = Net::connected();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 14_280)]));
    net.work(A);
    // MULPDU is 1442, of which 14 bytes are headers.
    assert_eq!(net.hosts[A].away.fpdus.len(), 10);
    assert_eq!(net.hosts[A].away.bytes.len(), 10 * MSS as usize);
}

#[test]
fn sends_are_complete_as_they_leave_but_not_before_a_read_in_front() {
    let mut net = Net::greeted();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 100)]));
    net.work(A);
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success)], "nobody has answered");
    net.post(A, 2, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(5_000, 5_000)]));
    net.post(A, 3, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 100)]));
    net.work(A);
    assert_eq!(net.hosts[A].statuses(), []);
    assert_eq!(net.hosts[A].segments().len(), 3, "but it was sent");
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(2, WcStatus::Success), (3, WcStatus::Success)]);
}

#[test]
fn no_more_reads_are_outstanding_than_were_agreed() {
    let mut net = Net::connected_with(|a| a.ord = 2, |b| b.ird = 2);
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    for id in 0..5 {
        net.post(A, id, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 100)]));
    }
    net.work(A);
    assert_eq!(net.hosts[A].segments().len(), 2);
    net.run();
    let read: Vec<_> = (0..5).map(|id| (id, WcStatus::Success)).collect();
    assert_eq!(net.hosts[A].statuses(), read);
}

#[test]
fn a_fence_waits_for_reads() {
    let mut net = Net::greeted();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 100)]));
    let (op, payload) = (write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 100)]));
    let request = SendRequest { id: 2, signaled: true, solicited: false, fence: true, op, payload };
    let Host { engine, end, log, .. } = &mut net.hosts[A];
    engine.post_send(net.now, end.device, OWNER, end.qpn, &request, log).unwrap();
    net.work(A);
    assert_eq!(net.hosts[A].segments().len(), 1);
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
}

#[test]
fn messages_of_both_directions_do_not_mix_in_a_stream() {
    let mut net = Net::greeted();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 20_000)]));
    net.work(A);
    let bytes = std::mem::take(&mut net.hosts[A].away.bytes);
    net.post(B, 2, write_to(a.remote(50_000)), Payload::Sges(&[b.sge(50_000, 20_000)]));
    // A turn has 7 FPDUs: the WRITE has started when the READ arrives.
    let Host { engine, log, away, .. } = &mut net.hosts[B];
    engine.transmit(net.now, 7, away, log);
    net.offer(B, &bytes);
    net.run();
    let kinds: Vec<_> =
        net.hosts[B].segments().iter().map(|segment| matches!(segment, Segment::ReadResponse(_))).collect();
    assert!(kinds.is_sorted(), "{kinds:?}");
    assert!(kinds.contains(&true) && kinds.contains(&false));
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success)]);
    assert_eq!(net.hosts[B].statuses(), [(2, WcStatus::Success)]);
}

#[test]
fn a_full_stream_is_waited_for() {
    let mut net = Net::connected();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    let data = pattern(20_000, 3);
    a.memory.fill(0, &data);
    net.hosts[A].away.room = Some(3);
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 20_000)]));
    for _ in 0..4 {
        net.run();
        assert_eq!((net.hosts[A].away.room, net.hosts[A].statuses()), (Some(0), vec![]));
        assert_eq!(net.hosts[A].engine.poll_timeout(), None, "it waits");
        net.hosts[A].away.room = Some(3);
        net.hosts[A].engine.stream_has_room(a.device, a.qpn).unwrap();
    }
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success)]);
    assert!(b.memory.bytes(0, 20_000) == data);
}

#[test]
fn while_the_link_is_down_streams_wait() {
    let mut net = Net::greeted();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.hosts[A].engine.set_link(false);
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 20_000)]));
    net.run();
    assert_eq!((net.hosts[A].statuses(), net.hosts[A].segments().len()), (vec![], 0));
    net.hosts[A].engine.set_link(true);
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success)]);
    assert_eq!(net.hosts[B].state(), QpState::Rts);
}

#[test]
fn a_suspended_device_takes_nothing() {
    let mut net = Net::greeted();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.hosts[B].engine.set_suspended(b.device, true);
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 100)]));
    net.run();
    assert!(!net.hosts[B].offered.is_empty());
    net.hosts[B].engine.set_suspended(b.device, false);
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success)]);
}

#[test]
fn a_message_waits_until_its_receive_was_looked_for_and_all_behind_it_too() {
    let mut net = Net::greeted();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.looks = false;
    a.memory.fill(0, b"early");
    net.post(A, 1, SEND, Payload::Sges(&[a.sge(0, 5)]));
    net.post(A, 2, write_to(b.remote(100)), Payload::Sges(&[a.sge(0, 5)]));
    net.run();
    assert!(net.hosts[B].engine.has_questions());
    assert_eq!(b.memory.bytes(100, 5), [0; 5], "it is behind");
    net.post_recv(B, 7, &[b.sge(0, 5)]);
    net.looks = true;
    net.run();
    net.offer(B, &[]);
    net.run();
    assert_eq!(net.hosts[B].statuses(), [(7, WcStatus::Success)]);
    assert_eq!((b.memory.bytes(0, 5), b.memory.bytes(100, 5)), (b"early".to_vec(), b"early".to_vec()));
}

#[test]
fn what_iwarp_does_not_have_is_refused_here() {
    let imm = Some(Imm::from_bytes([1, 2, 3, 4]));
    for which in 0..3 {
        let mut net = Net::greeted();
        let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
        let (remote, sges) = (b.remote(0), [a.sge(0, 8)]);
        let scope = FlushScope { placement: Placement::Global, whole: false, length: 8 };
        match which {
            0 => net.post(A, 1, SendOp::Send { imm }, Payload::Sges(&sges)),
            1 => net.post(A, 1, SendOp::AtomicWrite { remote }, Payload::Sges(&sges)),
            _ => net.post(A, 1, SendOp::Flush { remote, scope }, Payload::Sges(&[])),
        }
        net.run();
        assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::LocQpOp)], "{which}");
        assert_eq!([A, B].map(|at| net.hosts[at].state()), [QpState::Err; 2]);
        assert_eq!(net.hosts[A].away.end, Some(StreamEnd::Close), "behind a TERMINATE");
    }
}
