//! Messages arrive.

use super::*;
use WcStatus::Success;
use vrdma_wire::num::Imm;

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
        assert_eq!(
            (net.sleep(), net.sleep()),
            (Some(TIMEOUT), None),
            "a timer that finds nothing to do, and no other"
        );
        let counters = net.hosts[A].counters();
        assert_eq!((counters.retries, counters.timeouts, counters.drop_psn), (0, 0, 0));
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
    net.post(A, 5, SendOp::FetchAdd { remote: b.remote(104), add: 3 }, Payload::Sges(&[a.sge(0, 8)]));
    net.post(
        A,
        6,
        SendOp::CompareSwap { remote: b.remote(104), compare: 8, swap: 1 },
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
