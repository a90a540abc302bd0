//! Successful operations: each transfers its bytes, and reports to both ends as specified.

use super::*;
use proptest::prelude::*;
use vrdma_wire::num::Imm;

const NOBODY: Qpn = match Qpn::new(0) {
    Some(qpn) => qpn,
    None => panic!(),
};

#[test]
fn write_brings_bytes_and_completes_here_only() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    a.memory.fill(8, b"hello");
    pair.post(&a, 3, write_to(b.remote(100)), Payload::Sges(&[a.sge(8, 5)])).unwrap();
    assert_eq!(b.memory.bytes(99, 7), b"\0hello\0");
    let expected = Completion {
        id: 3,
        qpn: a.qpn,
        opcode: WcOpcode::Write,
        status: WcStatus::Success,
        byte_len: 0,
        imm: None,
        invalidated: None,
        src_qpn: NOBODY,
        solicited: false,
        srq: None,
        arrival: None,
    };
    assert_eq!(pair.log.completions, [(a.device, SEND_CQ, expected)]);
    assert_eq!(pair.sleep(), None);
}

#[test]
fn send_takes_receives_in_order_and_completes_at_the_receiver_first() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post_recv(&b, 20, &[b.sge(0, 3), b.sge(50, 10)]).unwrap();
    pair.post_recv(&b, 21, &[]).unwrap();
    let request = SendRequest {
        id: 1,
        signaled: true,
        solicited: true,
        fence: false,
        op: SendOp::Send { imm: Some(Imm::from_bytes([1, 2, 3, 4])) },
        payload: Payload::Inline(b"abcdef"),
    };
    pair.engine.post_send(pair.now, a.device, OWNER, a.qpn, &request, &mut pair.log).unwrap();
    pair.look();
    assert_eq!((b.memory.bytes(0, 4), b.memory.bytes(50, 4)), (b"abc\0".to_vec(), b"def\0".to_vec()));
    let expected = Completion {
        id: 20,
        qpn: b.qpn,
        opcode: WcOpcode::Recv,
        status: WcStatus::Success,
        byte_len: 6,
        imm: Some(Imm::from_bytes([1, 2, 3, 4])),
        invalidated: None,
        src_qpn: a.qpn,
        solicited: true,
        srq: None,
        arrival: None,
    };
    assert_eq!(pair.log.completions[0], (b.device, RECV_CQ, expected));
    assert_eq!(pair.log.completions[1].2.opcode, WcOpcode::Send);
    pair.log.completions.clear();
    pair.post(&a, 2, SEND, Payload::Sges(&[])).unwrap();
    assert_eq!(pair.statuses(), [('b', 21, WcStatus::Success), ('a', 2, WcStatus::Success)]);
}

#[test]
fn write_with_immediate_consumes_a_receive_but_not_its_memory() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post_recv(&b, 9, &[b.sge(0, 1)]).unwrap();
    let op = SendOp::Write { remote: b.remote(64), imm: Some(Imm::from_bytes(*b"imm!")) };
    pair.post(&a, 1, op, Payload::Inline(b"payload")).unwrap();
    assert_eq!((b.memory.bytes(64, 7), b.memory.bytes(0, 1)), (b"payload".to_vec(), vec![0]));
    let received = pair.log.completions[0].2;
    assert_eq!(
        (received.opcode, received.byte_len, received.imm),
        (WcOpcode::RecvWriteImm, 7, Some(Imm::from_bytes(*b"imm!")))
    );
    assert_eq!(pair.statuses().len(), 2);
}

#[test]
fn read_fetches() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    b.memory.fill(1000, b"secret");
    pair.post(&a, 1, SendOp::Read { remote: b.remote(1000) }, Payload::Sges(&[a.sge(0, 2), a.sge(10, 4)]))
        .unwrap();
    assert_eq!((a.memory.bytes(0, 3), a.memory.bytes(10, 5)), (b"se\0".to_vec(), b"cret\0".to_vec()));
    let completion = pair.completion();
    assert_eq!((completion.opcode, completion.byte_len), (WcOpcode::Read, 6));
    let bytes = |device| {
        let counters = pair.engine.counters(device);
        (counters.bytes_read, counters.bytes_served, counters.bytes_out + counters.bytes_in)
    };
    assert_eq!((bytes(a.device), bytes(b.device)), ((6, 0, 0), (0, 6, 0)));
}

#[test]
fn atomics_change_memory_and_bring_the_value_before() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let value = |end: &End, at| u64::from_ne_bytes(end.memory.bytes(at, 8).try_into().unwrap());
    b.memory.fill(8, &u64::MAX.to_ne_bytes());
    let remote = b.remote(8);
    pair.post(&a, 1, SendOp::atomic(remote, Atomic::FetchAdd { add: 5 }), Payload::Sges(&[a.sge(0, 8)]))
        .unwrap();
    assert_eq!((value(&a, 0), value(&b, 8)), (u64::MAX, 4));
    let swap = |compare| SendOp::atomic(remote, Atomic::CompareSwap { compare, swap: 99 });
    pair.post(&a, 2, swap(5), Payload::Sges(&[a.sge(0, 3), a.sge(3, 5)])).unwrap();
    assert_eq!((value(&a, 0), value(&b, 8)), (4, 4));
    pair.post(&a, 3, swap(4), Payload::Sges(&[a.sge(0, 8)])).unwrap();
    assert_eq!((value(&a, 0), value(&b, 8)), (4, 99));
    let opcodes: Vec<_> = pair.log.completions.iter().map(|c| (c.2.opcode, c.2.byte_len)).collect();
    assert_eq!(opcodes, [(WcOpcode::FetchAdd, 8), (WcOpcode::CompareSwap, 8), (WcOpcode::CompareSwap, 8)]);
}

#[test]
fn atomic_write_stores_eight_bytes_from_wherever_they_are() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    a.memory.fill(0, b"123....45678");
    let op = SendOp::AtomicWrite { remote: b.remote(8) };
    pair.post(&a, 1, op, Payload::Sges(&[a.sge(0, 3), a.sge(100, 0), a.sge(7, 5)])).unwrap();
    assert_eq!(b.memory.bytes(7, 10), b"\x0012345678\0");
    pair.post(&a, 2, op, Payload::Inline(b"abcdefgh")).unwrap();
    assert_eq!(b.memory.bytes(7, 10), b"\0abcdefgh\0");
    let ends: Vec<_> =
        pair.log.completions.iter().map(|c| (c.0, c.2.opcode, c.2.status, c.2.byte_len)).collect();
    assert_eq!(ends, [(a.device, WcOpcode::AtomicWrite, WcStatus::Success, 0); 2]);
    let counted = |device| {
        let counters = pair.engine.counters(device);
        (counters.atomic_writes, counters.writes, counters.bytes_out, counters.bytes_in)
    };
    assert_eq!((counted(a.device), counted(b.device)), ((2, 0, 16, 0), (0, 0, 0, 16)));
}

#[test]
fn unsignaled_requests_complete_only_with_an_error() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let mut request = SendRequest {
        id: 1,
        signaled: false,
        solicited: false,
        fence: false,
        op: write_to(b.remote(0)),
        payload: Payload::Inline(b"x"),
    };
    pair.engine.post_send(pair.now, a.device, OWNER, a.qpn, &request, &mut pair.log).unwrap();
    pair.look();
    assert_eq!(pair.statuses(), []);
    request.op = write_to(Remote { addr: 0, rkey: Rkey(0) });
    pair.engine.post_send(pair.now, a.device, OWNER, a.qpn, &request, &mut pair.log).unwrap();
    pair.look();
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::RemAccess)]);
}

#[test]
fn psns_advance_by_packets_on_both_sides_and_wrap() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let psns = |pair: &Pair| {
        let psn = |end: &End| pair.engine.query_qp(end.device, end.qpn).unwrap();
        (psn(&a).sq_psn.number(), psn(&b).rq_psn.number(), psn(&b).sq_psn.number())
    };
    assert_eq!(psns(&pair), (0xff_fffe, 0xff_fffe, 0xff_fffe));
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 2049)])).unwrap();
    assert_eq!(psns(&pair), (1, 1, 0xff_fffe));
    pair.post(&a, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 700_000)])).unwrap();
    pair.run();
    assert_eq!(psns(&pair), (1 + 684, 1 + 684, 0xff_fffe));
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Sges(&[])).unwrap();
    assert_eq!(psns(&pair).0, 2 + 684);
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 700_000)])).unwrap();
    pair.run();
    assert_eq!((psns(&pair).0, psns(&pair).1), (2 + 2 * 684, 2 + 2 * 684));
    assert!(pair.statuses().iter().all(|s| s.2 == WcStatus::Success));
}

#[test]
fn a_qp_can_talk_to_itself() {
    let mut pair = Pair::new();
    let a = pair.a.clone();
    pair.connect(&a, attr_to(&a), QpState::Rts);
    pair.post_recv(&a, 1, &[a.sge(0, 10)]).unwrap();
    pair.post(&a, 2, SEND, Payload::Inline(b"me")).unwrap();
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::Success), ('a', 2, WcStatus::Success)]);
    pair.post_recv(&a, 3, &[a.sge(0, 1)]).unwrap();
    pair.post_recv(&a, 4, &[]).unwrap();
    pair.post(&a, 5, SEND, Payload::Inline(b"too long")).unwrap();
    let expected = [('a', 3, WcStatus::LocLen), ('a', 5, WcStatus::RemInvReq), ('a', 4, WcStatus::Flush)];
    assert_eq!(pair.statuses(), expected);
}

#[test]
fn a_device_can_talk_to_itself() {
    let mut pair = Pair::new();
    let a = pair.a.clone();
    let other = End { qpn: pair.engine.create_qp(a.device, qp_init(a.pd)).unwrap(), ..a.clone() };
    pair.connect(&a, attr_to(&other), QpState::Rts);
    pair.connect(&other, attr_to(&a), QpState::Rts);
    pair.post(&a, 2, write_to(other.remote(0)), Payload::Inline(b"self")).unwrap();
    assert_eq!((pair.completion().status, a.memory.bytes(0, 4)), (WcStatus::Success, b"self".to_vec()));
}

#[test]
fn elements_of_no_length_are_nothing_and_zero_bytes_need_no_key() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let nothing = Sge { addr: u64::MAX, length: 0, lkey: Lkey(0xdead) };
    pair.post_recv(&b, 9, &[nothing, b.sge(0, 2), nothing, nothing, b.sge(2, 2)]).unwrap();
    pair.post(&a, 1, SEND, Payload::Sges(&[nothing, a.sge(0, 1), nothing, a.sge(1, 3), nothing])).unwrap();
    let nowhere = Remote { addr: u64::MAX, rkey: Rkey(0xdead) };
    pair.post(&a, 2, write_to(nowhere), Payload::Sges(&[nothing])).unwrap();
    pair.post(&a, 3, SendOp::Read { remote: nowhere }, Payload::Sges(&[])).unwrap();
    assert!(
        pair.log.completions.iter().all(|c| c.2.status == WcStatus::Success),
        "{:?}",
        pair.log.completions
    );
    assert_eq!(pair.statuses().len(), 4);
}

/// Cuts `length` bytes into elements of these sizes, one after the other with gaps of 3 bytes.
fn cut(end: &End, start: u64, cuts: &[u32], length: u32) -> Vec<Sge> {
    let (mut at, mut left, mut sges) = (start, length, Vec::new());
    for (i, cut) in cuts.iter().enumerate() {
        let size = if i + 1 == cuts.len() { left } else { left.min(*cut) };
        sges.push(end.sge(at, size));
        at += u64::from(size) + 3;
        left -= size;
    }
    sges
}

fn gathered(end: &End, sges: &[Sge]) -> Vec<u8> {
    sges.iter().flat_map(|s| end.memory.bytes((s.addr - IOVA) as usize, s.length as usize)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// The bytes arrive in order for any elements on either side and any length. Nothing beside
    /// them changes.
    #[test]
    fn elements_may_be_cut_in_any_way(
        from in proptest::collection::vec(0u32..200_000, 1..8),
        to in proptest::collection::vec(0u32..200_000, 1..8),
        length in prop_oneof![0u32..100, 60_000u32..70_000, 200_000u32..600_000],
        kind in 0..3,
    ) {
        let mut pair = Pair::connected();
        let (a, b) = (pair.a.clone(), pair.b.clone());
        let pattern: Vec<u8> = (0..1u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect();
        let (source, target) = if kind == 2 { (&b, &a) } else { (&a, &b) };
        source.memory.fill(0, &pattern);
        let source_sges = cut(source, 1, if kind == 2 { &[0] } else { &from }, length);
        let target_sges = cut(target, 5, if kind == 1 { &[0] } else { &to }, length);
        match kind {
            0 => {
                pair.post_recv(&b, 1, &target_sges).unwrap();
                pair.post(&a, 2, SEND, Payload::Sges(&source_sges)).unwrap();
            }
            1 => pair.post(&a, 2, write_to(b.remote(5)), Payload::Sges(&source_sges)).unwrap(),
            _ => pair.post(&a, 2, SendOp::Read { remote: b.remote(1) }, Payload::Sges(&target_sges)).unwrap(),
        }
        pair.run();
        prop_assert!(pair.log.completions.iter().all(|c| c.2.status == WcStatus::Success));
        prop_assert!(gathered(source, &source_sges) == gathered(target, &target_sges));
        let written = target.memory.bytes(0, 1 << 20).iter().filter(|byte| **byte != 0).count();
        prop_assert_eq!(written as u32, length);
    }
}
