//! Every verb, between two guests and within one: the right bytes arrive, and nothing else changes.
//!
//! Shows: verbs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vrdma_tests::abi::control::access;
use vrdma_tests::abi::cqe::WcOpcode;
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Data, Request, Sge};
use vrdma_tests::{CableOptions, Context, Lab, LabOptions, Mr, Qp, QpOptions, Rng, Setting, connect};

/// Runs a test between two guests and within one, each with `EVENT_IDX` and without.
///
/// Then it runs the test between two workers, and between two hosts.
fn both(len: u64, test: impl Fn(Side, Side)) {
    for event_idx in [true, false] {
        let mut options = LabOptions::default();
        options.guest.event_idx = event_idx;
        let lab = Lab::with(2, options);
        for peer in [1, 0] {
            let (a, b) = pair(&lab, peer, len, &QpOptions::default());
            test(a, b);
        }
    }
    for path_mtu in [1, 5] {
        let lab = Lab::with(2, Setting::TwoWorkers.options());
        let (a, b) = pair(&lab, 1, len, &QpOptions { path_mtu, ..QpOptions::default() });
        test(a, b);
        assert_ne!(lab.stats().roce("frames_in"), 0, "packets came");
    }
    for path_mtu in [1, 3, 5] {
        let lab = Lab::with(2, LabOptions { cable: Some(CableOptions::default()), ..LabOptions::default() });
        let (a, b) = pair(&lab, 1, len, &QpOptions { path_mtu, ..QpOptions::default() });
        test(a, b);
        assert_ne!(lab.remote_stats().roce("frames_in"), 0, "packets came");
    }
}

#[test]
fn send_arrives_in_the_receive() {
    both(4096, |mut a, mut b| {
        let data = Rng::new(1).bytes(1000);
        a.mr.put(100, &data);
        b.mr.fill(0xaa);
        b.recv(7, &[b.mr.sge(200, 1500)]);
        a.post(&Request::send(a.qp.tag(9), Data::Sges(&[a.mr.sge(100, 1000)])).signaled(true));
        let wc = b.cq.expect_success();
        assert_eq!((wc.id(), wc.qpn(), wc.len(), wc.opcode()), (7, b.qp.number, 1000, WcOpcode::RECV));
        assert!(wc.is_recv() && wc.imm().is_none() && !wc.is_solicited());
        assert_eq!(wc.0.src_qpn.get(), a.qp.number);
        assert_eq!(b.mr.get(200, 1000), data);
        assert_eq!((b.mr.get(0, 200), b.mr.get(1200, 100)), (vec![0xaa; 200], vec![0xaa; 100]));
        let wc = a.cq.expect_success();
        assert_eq!((wc.id(), wc.qpn(), wc.opcode(), wc.is_recv()), (9, a.qp.number, WcOpcode::SEND, false));
    });
}

#[test]
fn immediate_data_come_as_they_were_posted() {
    both(4096, |mut a, mut b| {
        b.recv(1, &[]);
        b.recv(2, &[]);
        let imm = [0xde, 0xad, 0xbe, 0xef];
        a.post(&Request::send_imm(a.qp.tag(1), imm, Data::EMPTY).signaled(true).solicited(true));
        a.mr.put(0, b"hello");
        let data = [a.mr.sge(0, 5)];
        let remote = b.mr.remote(64);
        a.process
            .post(&Request::write_imm(a.qp.tag(2), remote, [1, 2, 3, 4], Data::Sges(&data)).signaled(true));
        let wc = b.cq.expect_success();
        assert_eq!((wc.id(), wc.imm(), wc.len(), wc.opcode()), (1, Some(imm), 0, WcOpcode::RECV));
        assert!(wc.is_solicited());
        let wc = b.cq.expect_success();
        assert_eq!((wc.id(), wc.imm(), wc.len()), (2, Some([1, 2, 3, 4]), 5));
        assert_eq!((wc.opcode(), wc.is_recv()), (WcOpcode::RECV_RDMA_WITH_IMM, true));
        assert_eq!(b.mr.get(64, 6), b"hello\0");
        assert_eq!(a.cq.expect_success().opcode(), WcOpcode::SEND);
        assert_eq!(a.cq.expect_success().opcode(), WcOpcode::RDMA_WRITE);
    });
}

#[test]
fn write_changes_the_peers_memory_and_tells_it_nothing() {
    both(8192, |mut a, mut b| {
        let data = Rng::new(2).bytes(5000);
        a.mr.put(1, &data);
        b.mr.fill(0x55);
        let (sges, remote) = ([a.mr.sge(1, 5000)], b.mr.remote(3));
        a.post(&Request::write(a.qp.tag(1), remote, Data::Sges(&sges)).signaled(true));
        assert_eq!(a.cq.expect_success().opcode(), WcOpcode::RDMA_WRITE);
        assert_eq!(b.mr.get(3, 5000), data);
        assert_eq!((b.mr.get(0, 3), b.mr.get(5003, 100)), (vec![0x55; 3], vec![0x55; 100]));
        assert_eq!(b.cq.poll(), None);
    });
}

#[test]
fn read_brings_the_peers_memory() {
    both(8192, |mut a, b| {
        let data = Rng::new(3).bytes(6000);
        b.mr.put(7, &data);
        a.mr.fill(0x55);
        a.post(&Request::read(a.qp.tag(5), b.mr.remote(7), &[a.mr.sge(9, 6000)]).signaled(true));
        let wc = a.cq.expect_success();
        assert_eq!((wc.id(), wc.opcode(), wc.len()), (5, WcOpcode::RDMA_READ, 6000));
        assert_eq!(a.mr.get(9, 6000), data);
        assert_eq!((a.mr.get(0, 9), a.mr.get(6009, 100)), (vec![0x55; 9], vec![0x55; 100]));
    });
}

#[test]
fn atomics_return_the_value_before() {
    both(4096, |mut a, mut b| {
        b.mr.put(8, &100u64.to_le_bytes());
        let word = |side: &Side, offset| u64::from_le_bytes(side.mr.get(offset, 8).try_into().unwrap());
        let result = a.mr.sge(16, 8);
        a.post(&Request::fetch_add(a.qp.tag(1), b.mr.remote(8), 5, &result).signaled(true));
        let wc = a.cq.expect_success();
        assert_eq!((wc.opcode(), wc.len(), word(&a, 16), word(&b, 8)), (WcOpcode::FETCH_ADD, 8, 100, 105));
        for (compare, swap, expected) in [(104, 1, 105), (105, 7, 7)] {
            let request = Request::compare_swap(a.qp.tag(2), b.mr.remote(8), compare, swap, &result);
            a.post(&request.signaled(true));
            let wc = a.cq.expect_success();
            assert_eq!((wc.opcode(), wc.len()), (WcOpcode::COMP_SWAP, 8));
            assert_eq!((word(&a, 16), word(&b, 8)), (105, expected));
        }
        assert_eq!(b.cq.poll(), None);
    });
}

#[test]
fn atomic_writes_store_eight_bytes() {
    both(4096, |mut a, mut b| {
        b.mr.fill(0xaa);
        a.mr.put(1, b"12345678");
        let sges = [a.mr.sge(1, 3), a.mr.sge(4, 5)];
        let values = [(Data::Sges(&sges), b"12345678"), (Data::Inline(b"abcdefgh"), b"abcdefgh")];
        for (id, (data, value)) in (1..).zip(values) {
            a.post(&Request::atomic_write(a.qp.tag(id), b.mr.remote(8), data).signaled(true));
            let wc = a.cq.expect_success();
            assert_eq!((wc.id(), wc.opcode(), wc.len()), (id, WcOpcode::ATOMIC_WRITE, 0));
            assert_eq!(b.mr.get(0, 24), [[0xaa; 8], *value, [0xaa; 8]].concat());
        }
        assert_eq!(b.cq.poll(), None);
    });
}

#[test]
fn who_sees_an_atomic_write_sees_all_of_it_and_what_was_written_before() {
    const ROUNDS: u8 = 200;
    both(4096, |mut a, b| {
        let (memory, word, data) = (b.mr.memory().clone(), b.mr.gpa(8), b.mr.gpa(1024));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let program = std::thread::spawn(move || {
            let mut last = 0;
            while !stopped.load(Ordering::Relaxed) {
                let bytes = memory.word64(word).load(Ordering::Acquire).to_ne_bytes();
                let seen = bytes[0];
                assert_eq!(bytes, [seen; 8], "a part of it");
                assert!(seen >= last, "{seen} after {last}");
                let written = memory.bytes(data, 256);
                assert!(written.iter().all(|byte| *byte >= seen), "{seen} before {written:?}");
                last = seen;
                std::thread::yield_now();
            }
        });
        for round in 1..=ROUNDS {
            a.mr.put(0, &[round; 264]);
            let (payload, value) = ([a.mr.sge(0, 256)], [a.mr.sge(256, 3), a.mr.sge(259, 5)]);
            a.post(&Request::write(a.qp.tag(1), b.mr.remote(1024), Data::Sges(&payload)));
            a.post(&Request::atomic_write(a.qp.tag(2), b.mr.remote(8), Data::Sges(&value)).signaled(true));
            a.cq.expect_success();
        }
        stop.store(true, Ordering::Relaxed);
        program.join().unwrap();
        assert_eq!(b.mr.get(8, 8), [ROUNDS; 8]);
    });
}

#[test]
fn inline_data_are_taken_when_posted() {
    both(4096, |mut a, mut b| {
        for len in [0usize, 1, 31, 32, 33, 96, 97, 224] {
            let data = Rng::new(len as u64).bytes(len);
            b.mr.fill(0);
            b.recv(len as u32, &[b.mr.sge(0, 224)]);
            a.post(&Request::send(a.qp.tag(1), Data::Inline(&data)).signaled(true));
            let request = Request::write(a.qp.tag(2), b.mr.remote(1000), Data::Inline(&data));
            a.post(&request.signaled(true));
            a.cq.expect_success();
            a.cq.expect_success();
            assert_eq!((b.cq.expect_success().len() as usize, b.mr.get(0, len as u64)), (len, data.clone()));
            assert_eq!((b.mr.get(1000, len as u64), b.mr.get(1000 + len as u64, 1)), (data, vec![0]));
        }
    });
}

#[test]
fn messages_are_gathered_and_scattered() {
    both(1 << 16, |mut a, mut b| {
        let data = Rng::new(4).bytes(10_000);
        // 1 + 0 + 4096 + 900 + 5003 bytes leave from five places, and arrive in 3 + 5000 + 0 +
        // 4997.
        let sources = [(0u64, 1u32), (50, 0), (4099, 4096), (30_001, 900), (40_000, 5003)];
        let targets = [(7u64, 3u32), (9000, 5000), (1, 0), (50_000, 6000)];
        let mut done = 0;
        for (at, len) in sources {
            a.mr.put(at, &data[done..done + len as usize]);
            done += len as usize;
        }
        let list =
            |mr: &Mr, of: &[(u64, u32)]| of.iter().map(|&(at, len)| mr.sge(at, len)).collect::<Vec<_>>();
        let (from, to) = (list(&a.mr, &sources), list(&b.mr, &targets));
        let check = |mr: &Mr| {
            let mut found = Vec::new();
            for (at, len) in targets {
                found.extend(mr.get(at, len.into()));
            }
            assert!(found[..10_000] == data && found[10_000..] == [0; 1003]);
        };
        b.recv(1, &to);
        a.post(&Request::send(a.qp.tag(1), Data::Sges(&from)).signaled(true));
        a.cq.expect_success();
        assert_eq!(b.cq.expect_success().len(), 10_000);
        check(&b.mr);
        // The same bytes by WRITE into one place, and by READ from there into several.
        a.post(&Request::write(a.qp.tag(1), b.mr.remote(20_000), Data::Sges(&from)).signaled(true));
        a.cq.expect_success();
        assert!(b.mr.get(20_000, 10_000) == data);
        a.mr.fill(0);
        let mut to = list(&a.mr, &targets);
        to[3].length = 4997;
        a.post(&Request::read(a.qp.tag(1), b.mr.remote(20_000), &to).signaled(true));
        assert_eq!(a.cq.expect_success().len(), 10_000);
        check(&a.mr);
    });
}

#[test]
fn sizes_from_nothing_to_8_mib() {
    let lab = Lab::new(2);
    for peer in [1, 0] {
        let (mut a, mut b) = pair(&lab, peer, 9 << 20, &QpOptions::default());
        let mut rng = Rng::new(5);
        let mut sizes: Vec<u64> = (0..=23).map(|shift| 1 << shift).collect();
        sizes.extend([0, 3, 255, 257, 4095, 4097, 65_537, (1 << 20) - 1, (1 << 20) + 1, (8 << 20) - 5]);
        for len in sizes {
            let data = rng.bytes(len as usize);
            let (from, to) = (rng.below(4096), rng.below(4096));
            a.mr.put(from, &data);
            b.mr.put(to, &vec![0xee; len as usize + 1]);
            b.recv(1, &[b.mr.sge(to, len as u32)]);
            let own = [a.mr.sge(from, len as u32)];
            a.post(&Request::send(a.qp.tag(1), Data::Sges(&own)).signaled(true));
            assert_eq!(b.cq.expect_success().len(), len as u32);
            a.cq.expect_success();
            assert!(b.mr.get(to, len) == data, "SEND of {len}");
            assert_eq!(b.mr.get(to + len, 1), [0xee], "SEND of {len} goes no further");
            b.mr.put(to, &vec![0xee; len as usize + 1]);
            a.post(&Request::write(a.qp.tag(2), b.mr.remote(to), Data::Sges(&own)).signaled(true));
            a.cq.expect_success();
            assert!(b.mr.get(to, len) == data, "WRITE of {len}");
            assert_eq!(b.mr.get(to + len, 1), [0xee], "WRITE of {len} goes no further");
            a.mr.put(from, &vec![0xdd; len as usize + 1]);
            a.post(&Request::read(a.qp.tag(3), b.mr.remote(to), &own).signaled(true));
            a.cq.expect_success();
            assert!(a.mr.get(from, len) == data, "READ of {len}");
            assert_eq!(a.mr.get(from + len, 1), [0xdd], "READ of {len} goes no further");
        }
    }
}

#[test]
fn every_path_mtu_carries_every_length() {
    let lab = Lab::new(2);
    for path_mtu in 1..=5 {
        let options = QpOptions { path_mtu, sq_psn: 0xff_fffe, ..QpOptions::default() };
        let (mut a, mut b) = pair(&lab, 1, 1 << 16, &options);
        for len in [0u32, 1, 255, 256, 257, 4096, 8192, 10_001] {
            let data = Rng::new(len.into()).bytes(len as usize);
            a.mr.put(0, &data);
            b.recv(len, &[b.mr.sge(5, len)]);
            a.post(&Request::send(a.qp.tag(1), Data::Sges(&[a.mr.sge(0, len)])).signaled(true));
            assert_eq!(b.cq.expect_success().len(), len);
            a.cq.expect_success();
            assert!(b.mr.get(5, len.into()) == data);
        }
    }
}

#[test]
fn regions_may_be_scattered_over_guest_memory() {
    let lab = Lab::new(2);
    for peer in [1, 0] {
        let (mut a, mut b) = pair(&lab, peer, 4096, &QpOptions::default());
        let len = 300_001;
        let scattered = |side: &Side, skip| {
            Mr::register_scattered(
                &lab.guests[side.qp.guest().options.host as usize - 1],
                side.process.pd,
                access::ALL,
                len,
                skip,
            )
            .unwrap()
        };
        a.mr = scattered(&a, 17);
        b.mr = scattered(&b, 4001);
        let data = Rng::new(6).bytes(len as usize);
        a.mr.put(0, &data);
        a.post(
            &Request::write(a.qp.tag(1), b.mr.remote(0), Data::Sges(&[a.mr.sge(0, len as u32)]))
                .signaled(true),
        );
        a.cq.expect_success();
        assert!(b.mr.get(0, len) == data);
        a.mr.fill(0);
        a.process
            .post(&Request::read(a.qp.tag(2), b.mr.remote(4000), &[a.mr.sge(3, 200_000)]).signaled(true));
        a.cq.expect_success();
        assert!(a.mr.get(3, 200_000) == data[4000..204_000]);
        b.mr.fill(0);
        b.recv(3, &[b.mr.sge(100_000, 50_000), b.mr.sge(0, 50_000)]);
        a.post(&Request::send(a.qp.tag(3), Data::Sges(&[a.mr.sge(3, 100_000)])).signaled(true));
        b.cq.expect_success();
        assert!(
            b.mr.get(100_000, 50_000) == data[4000..54_000] && b.mr.get(0, 50_000) == data[54_000..104_000]
        );
    }
}

#[test]
fn a_region_may_cross_from_one_region_of_memory_into_the_next() {
    let mut options = LabOptions::default();
    options.guest.memory = vec![(0x1000, 8 << 20), (0x80_1000, 8 << 20)];
    let lab = Lab::with(2, options);
    let (mut a, b) = pair(&lab, 1, 1 << 16, &QpOptions::default());
    let seam = 0x80_1000;
    assert!(lab.guests[1].memory.reserve(seam - 8192, 8192) && lab.guests[1].memory.reserve(seam, 8192));
    let runs = [(seam - 8192, 8192), (seam, 8192)];
    let mr = Mr::register_runs(&lab.guests[1], b.process.pd, access::ALL, 0x1234, &runs).unwrap();
    let data = Rng::new(7).bytes(16_384);
    a.mr.put(0, &data);
    a.process
        .post(&Request::write(a.qp.tag(1), mr.remote(0), Data::Sges(&[a.mr.sge(0, 16_384)])).signaled(true));
    a.cq.expect_success();
    assert!(mr.get(0, 16_384) == data);
}

#[test]
fn unsignaled_requests_complete_in_silence_and_in_order() {
    both(4096, |mut a, b| {
        for id in 0..500u32 {
            let data = id.to_le_bytes();
            let request =
                Request::write(a.qp.tag(id), b.mr.remote(8 * u64::from(id % 100)), Data::Inline(&data));
            a.post(&request.signaled(id % 50 == 49));
            if id % 50 == 49 {
                assert_eq!(a.cq.expect_success().id(), id);
            }
        }
        assert_eq!(a.cq.poll(), None);
        for slot in 0..100u32 {
            assert_eq!(b.mr.get(8 * u64::from(slot), 4), (400 + slot).to_le_bytes());
        }
    });
}

#[test]
fn a_fenced_request_sees_what_the_read_before_it_brought() {
    both(1 << 20, |mut a, mut b| {
        for round in 0..50u32 {
            let data = Rng::new(round.into()).bytes(100_000);
            b.mr.put(0, &data);
            b.recv(round, &[b.mr.sge(500_000, 100_000)]);
            let own = [a.mr.sge(0, 100_000)];
            a.post(&Request::read(a.qp.tag(1), b.mr.remote(0), &own));
            a.post(&Request::send(a.qp.tag(2), Data::Sges(&own)).fence(true).signaled(true));
            assert_eq!(a.cq.expect_success().id(), 2);
            b.cq.expect_success();
            assert!(b.mr.get(500_000, 100_000) == data, "round {round}");
        }
    });
}

#[test]
fn a_qp_may_talk_to_itself() {
    let lab = Lab::new(1);
    let mut a = Side::new(&lab.guests[0], 8192, &QpOptions::default());
    connect_to_itself(&a.qp);
    a.mr.put(0, b"from me to me");
    a.recv(1, &[a.mr.sge(100, 100)]);
    a.post(&Request::send(a.qp.tag(2), Data::Sges(&[a.mr.sge(0, 13)])).signaled(true));
    let mut ids = [a.cq.expect_success().id(), a.cq.expect_success().id()];
    ids.sort_unstable();
    assert_eq!((ids, a.mr.get(100, 13)), ([1, 2], b"from me to me".to_vec()));
    a.process
        .post(&Request::write(a.qp.tag(3), a.mr.remote(1000), Data::Sges(&[a.mr.sge(0, 13)])).signaled(true));
    a.cq.expect_success();
    assert_eq!(a.mr.get(1000, 13), b"from me to me");
}

fn connect_to_itself(qp: &Qp) {
    qp.to_init().unwrap();
    qp.to_rtr(qp.guest().gid(), qp.number, qp.options.sq_psn).unwrap();
    qp.to_rts().unwrap();
}

#[test]
fn the_kernels_channel_and_its_dma_region_carry_requests() {
    let lab = Lab::new(2);
    let mut kernel = Context::kernel(&lab.guests[0]).unwrap();
    let mut b = Side::new(&lab.guests[1], 4096, &QpOptions::default());
    let mut cq = kernel.cq(16);
    let qp = kernel.qp(&cq, &cq, &QpOptions::default());
    connect(&qp, &b.qp);
    let dma = lab.guests[0].get_dma_mr(kernel.pd, access::LOCAL_WRITE).unwrap();
    let memory = &lab.guests[0].memory;
    let page = memory.alloc(4096);
    memory.write(page + 5, b"kernel");
    b.recv(1, &[b.mr.sge(0, 100)]);
    let sge = Sge { addr: page + 5, length: 6, lkey: dma.lkey.get() };
    kernel.post(&Request::send(qp.tag(1), Data::Sges(&[sge])).signaled(true));
    cq.expect_success();
    assert_eq!(b.cq.expect_success().len(), 6);
    assert_eq!(b.mr.get(0, 6), b"kernel");
    // The region of all memory contains gaps.
    let hole = Sge { addr: (32 << 20) + 0x1000, length: 6, lkey: dma.lkey.get() };
    b.recv(2, &[b.mr.sge(0, 100)]);
    kernel.post(&Request::send(qp.tag(2), Data::Sges(&[hole])).signaled(true));
    cq.expect(qp.number, 2, vrdma_tests::abi::cqe::WcStatus::LOC_PROT_ERR);
}
