//! Messages arrive.

use super::*;
use WcStatus::Success;
use vrdma_wire::num::Imm;
use vrdma_wire::roce::{Part, SendTail};

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn messages_of_all_sizes_arrive() {
    for mtu in [Mtu::M256, Mtu::M1024, Mtu::M4096] {
        let set = |attr: &mut QpAttr| attr.path_mtu = mtu;
        let mut net = Net::connected_with(set, set);
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        a.memory.fill(0, &pattern(MEMORY));
        let m = mtu.bytes();
        for length in [0, 1, 3, m - 1, m, m + 1, 2 * m, 5 * m + 2, 100 * m - 1] {
            let data = a.memory.bytes(8, length as usize);
            net.post_recv(B, 7, &[b.sge(0, 5), b.sge(5, length)]);
            net.post(
                A,
                1,
                SEND,
                Payload::Sges(&[a.sge(8, length / 3), a.sge(8 + u64::from(length / 3), length - length / 3)]),
            );
            net.run();
            assert_eq!(
                (net.hosts[A].statuses(), net.hosts[B].statuses()),
                (vec![(1, Success)], vec![(7, Success)]),
                "{length}"
            );
            assert_eq!(b.memory.bytes(0, length as usize), data, "{length}");
            net.post(A, 2, write_to(b.remote(400_000)), Payload::Sges(&[a.sge(8, length)]));
            net.run();
            assert_eq!(
                (net.hosts[A].statuses(), net.hosts[B].statuses()),
                (vec![(2, Success)], vec![]),
                "{length}"
            );
            assert_eq!(b.memory.bytes(400_000, length as usize), data, "{length}");
            b.memory.fill(0, &vec![0; MEMORY]);
            net.post(
                B,
                3,
                SendOp::Read { remote: a.remote(8) },
                Payload::Sges(&[b.sge(100, length / 2), b.sge(500_000, length)]),
            );
            net.run();
            assert_eq!(
                (net.hosts[A].statuses(), net.hosts[B].statuses()),
                (vec![], vec![(3, Success)]),
                "{length}"
            );
            let half = length as usize / 2;
            assert_eq!(b.memory.bytes(100, half), data[..half], "{length}");
            assert_eq!(b.memory.bytes(500_000, data.len() - half), data[half..], "{length}");
        }
        assert_eq!(net.sleep(), None, "nothing is waited for");
        let (counters, reader) = (net.hosts[A].counters(), net.hosts[B].counters());
        assert_eq!((counters.retries, counters.timeouts, counters.drop_psn), (0, 0, 0));
        assert_eq!((counters.bytes_served, reader.bytes_served), (reader.bytes_read, 0));
        assert!(counters.bytes_served > 0);
    }
}

#[test]
fn immediate_data_and_atomics_arrive() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let imm = Some(Imm::from_bytes(*b"abcd"));
    net.post_recv(B, 1, &[b.sge(0, 100)]);
    net.post_recv(B, 2, &[]);
    net.post(A, 3, SendOp::Send { imm }, Payload::Inline(b"hello"));
    net.post(A, 4, SendOp::Write { remote: b.remote(50), imm }, Payload::Inline(b"world"));
    b.memory.fill(104, &5u64.to_ne_bytes());
    net.post(A, 5, SendOp::atomic(b.remote(104), Atomic::FetchAdd { add: 3 }), Payload::Sges(&[a.sge(0, 8)]));
    net.post(
        A,
        6,
        SendOp::atomic(b.remote(104), Atomic::CompareSwap { compare: 8, swap: 1 }),
        Payload::Sges(&[a.sge(8, 8)]),
    );
    net.run();
    assert_eq!(net.hosts[A].statuses(), [3, 4, 5, 6].map(|id| (id, Success)));
    let received: Vec<_> =
        net.hosts[B].log.completions.iter().map(|c| (c.2.id, c.2.opcode, c.2.byte_len, c.2.imm)).collect();
    assert_eq!(received, [(1, WcOpcode::Recv, 5, imm), (2, WcOpcode::RecvWriteImm, 5, imm)]);
    assert_eq!((b.memory.bytes(0, 5), b.memory.bytes(50, 5)), (b"hello".to_vec(), b"world".to_vec()));
    assert_eq!(
        (a.memory.bytes(0, 8), a.memory.bytes(8, 8)),
        (5u64.to_ne_bytes().to_vec(), 8u64.to_ne_bytes().to_vec())
    );
    assert_eq!(b.memory.bytes(104, 8), 1u64.to_ne_bytes());
}

#[test]
fn atomic_writes_arrive_after_what_was_written_before_them() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    a.memory.fill(0, b"123....45678");
    let op = SendOp::AtomicWrite { remote: b.remote(8) };
    net.post(A, 1, write_to(b.remote(0)), Payload::Inline(&[7; 24]));
    net.post(A, 2, op, Payload::Sges(&[a.sge(0, 3), a.sge(7, 5)]));
    net.run();
    assert_eq!(b.memory.bytes(7, 10), b"\x0712345678\x07");
    net.post(A, 3, op, Payload::Inline(b"abcdefgh"));
    net.run();
    assert_eq!(b.memory.bytes(7, 10), b"\x07abcdefgh\x07");
    let ends: Vec<_> =
        net.hosts[A].log.completions.iter().map(|c| (c.2.id, c.2.opcode, c.2.status, c.2.byte_len)).collect();
    let (first, second) = ((2, WcOpcode::AtomicWrite, Success, 0), (3, WcOpcode::AtomicWrite, Success, 0));
    assert_eq!(ends, [(1, WcOpcode::Write, Success, 0), first, second]);
    assert_eq!(net.hosts[B].statuses(), []);
    let counters = net.hosts[A].counters();
    assert_eq!((counters.atomic_writes, counters.writes, counters.bytes_out), (2, 1, 40));
    assert_eq!((net.hosts[B].counters().bytes_in, net.hosts[B].counters().naks_invalid), (40, 0));
}

#[test]
fn only_what_takes_a_receive_asks_for_a_solicited_event_and_only_at_its_end() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post_recv(B, 1, &[b.sge(0, 3000)]);
    net.post_recv(B, 2, &[]);
    let imm = Some(Imm::default());
    let remote = b.remote(0);
    for op in [SEND, write_to(remote), SendOp::Write { remote, imm }] {
        let payload = Payload::Sges(&[a.sge(0, 2100)]);
        let request = SendRequest { id: 0, signaled: true, solicited: true, fence: false, op, payload };
        let Host { engine, end, log, .. } = &mut net.hosts[A];
        engine.post_send(net.now, end.device, OWNER, end.qpn, &request, log).unwrap();
    }
    net.work(A);
    let headers = net.hosts[A].cable.frames.iter().map(|frame| parse(frame).bth);
    let flags: Vec<_> = headers.map(|bth| (bth.solicited, bth.ack_req)).collect();
    let (plain, end, raised) = ((false, false), (false, true), (true, true));
    assert_eq!(flags, [plain, plain, raised, plain, plain, end, plain, plain, raised]);
    net.run();
    assert!(net.hosts[B].log.completions.iter().all(|(_, _, completion)| completion.solicited));
}

#[test]
fn long_messages_ask_for_acknowledges_in_their_midst_and_stop_at_the_window() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 300 * 1024)]));
    net.work(A);
    let asks = net.hosts[A].cable.frames.iter().map(|frame| parse(frame).bth.ack_req);
    let places: Vec<_> = asks.enumerate().filter(|ask| ask.1).map(|ask| ask.0).collect();
    assert_eq!((places, net.hosts[A].cable.frames.len()), (vec![31, 63, 95, 127], 128));
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, Success)]);
}

#[test]
fn a_qp_whose_peer_was_of_this_host_takes_nothing_from_the_wire() {
    let mut net = Net::connected();
    let peer = net.hosts[A].end.clone();
    let Host { engine, end, log, .. } = &mut net.hosts[B];
    let near = engine.add_device(Limits::default());
    engine.set_gid(near, 0, Some(Gid::from_ipv4([10, 0, 0, 7]).into())).unwrap();
    let qpn = engine.create_qp(end.device, qp_init(end.pd)).unwrap();
    let attr = QpAttr { dgid: Gid::from_ipv4([10, 0, 0, 7]), ..attr_to(&peer) };
    for (state, mask) in [(QpState::Init, TO_INIT), (QpState::Rtr, TO_RTR)] {
        engine.modify_qp(net.now, end.device, qpn, mask, &QpAttr { state, ..attr }, log).unwrap();
    }
    engine.remove_device(near);
    end.qpn = qpn;
    let mut packet = net.packet(A, Body::Rc(Rc::Send(Part::Only((), SendTail::Plain))), net.expected(B));
    packet.path.src = Gid::from_ipv4([10, 0, 0, 7]);
    net.inject(A, &packet, b"x");
    assert_eq!((net.hosts[B].counters().drop_not_connected, net.answers(B)), (1, vec![]));
}

#[test]
fn a_qp_whose_way_has_no_room_waits_and_others_go_on() {
    let mut net = Net::connected();
    let elsewhere = Mac([2, 0, 0, 0, 0, 9]);
    net.post(A, 1, SEND, Payload::Inline(b"to b"));
    let Host { engine, end, .. } = &mut net.hosts[A];
    end.qpn = engine.create_qp(end.device, qp_init(end.pd)).unwrap();
    let attr = QpAttr { dmac: elsewhere, ..net.attr(A) };
    for (state, mask) in [(QpState::Init, TO_INIT), (QpState::Rtr, TO_RTR), (QpState::Rts, TO_RTS)] {
        net.hosts[A].modify(net.now, mask, QpAttr { state, ..attr });
    }
    net.post(A, 2, SEND, Payload::Inline(b"elsewhere"));
    let to_b = net.hosts[B].mac;
    let mut sent_to = |closed| {
        let Host { engine, log, cable, .. } = &mut net.hosts[A];
        cable.closed = closed;
        let more = engine.transmit(net.now, 1000, cable, log);
        (more, cable.frames.drain(..).map(|frame| parse(&frame).path.dst_mac).collect::<Vec<_>>())
    };
    assert_eq!(sent_to(Some(to_b)), (true, vec![elsewhere]));
    assert_eq!(sent_to(Some(to_b)), (true, vec![]), "it keeps its place");
    assert_eq!(sent_to(None), (false, vec![to_b]));
}

#[test]
fn a_pipe_of_100_gb_a_second_and_100_us_there_and_back_is_filled() {
    /// Packets of 4 KiB that the wire takes in half of the round trip, which is a step of this
    /// test.
    const STEP: usize = 625_000 / 4096;
    const LENGTH: u32 = 64 << 10;
    let mut net = Net::connected_with(
        |a| (a.path_mtu, a.timeout) = (Mtu::M4096, 14),
        |b| (b.path_mtu, b.timeout) = (Mtu::M4096, 14),
    );
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    // Packets in flight, and the number sent in each step.
    let (mut requests, mut answers, mut sent) =
        (VecDeque::<Frame>::new(), VecDeque::<Frame>::new(), Vec::new());
    let mut posted = 0;
    for _ in 0..600 {
        let Net { hosts: [from, to], now } = &mut net;
        answers.drain(..).for_each(|frame| from.engine.handle_frame(*now, &frame, &mut from.log));
        requests.drain(..).for_each(|frame| to.engine.handle_frame(*now, &frame, &mut to.log));
        from.cable.room = Some(STEP);
        while posted < from.log.completions.len() + 60 {
            let sges = [a.sge(0, LENGTH)];
            let (op, payload) = (write_to(b.remote(0)), Payload::Sges(&sges));
            let request = SendRequest { id: 0, signaled: true, solicited: false, fence: false, op, payload };
            from.engine.post_send(*now, a.device, OWNER, a.qpn, &request, &mut from.log).unwrap();
            posted += 1;
        }
        while from.engine.transmit(*now, STEP, &mut from.cable, &mut from.log)
            && from.cable.has_room_for_more()
        {}
        to.engine.transmit(*now, STEP, &mut to.cable, &mut to.log);
        sent.push(from.cable.frames.len());
        requests.append(&mut from.cable.frames);
        answers.append(&mut to.cable.frames);
        *now = *now + Duration::from_micros(50);
    }
    assert!(
        sent[..4].iter().any(|&packets| packets < STEP),
        "no new connection has so wide a window: {sent:?}"
    );
    assert!(sent[590..].iter().all(|&packets| packets == STEP), "{:?}", &sent[560..]);
    assert_eq!((net.hosts[A].counters().retries, net.hosts[A].counters().timeouts), (0, 0));
}
