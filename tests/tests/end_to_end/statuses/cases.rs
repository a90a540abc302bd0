//! Every way in which a request can fail: the status, the order, and what the peer learns.

use std::time::Duration;
use vrdma_tests::abi::control::{QpState, access};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::abi::event::EventKind;
use vrdma_tests::events::Told;
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Data, Remote, Request, Sge};
use vrdma_tests::{Context, Lab, Mr, QpOptions, Setting, connect};

/// Returns the location of the two guests, which is the name of this module.
fn setting() -> Setting {
    match module_path!().rsplit("::").next() {
        Some("one_worker") => Setting::OneWorker,
        Some("two_workers") => Setting::TwoWorkers,
        _ => Setting::TwoHosts,
    }
}

/// Starts two guests in that setting.
fn two_guests() -> Lab {
    Lab::with(2, setting().options())
}

fn lab() -> (Lab, Side, Side) {
    lab_with(&QpOptions::default())
}

fn lab_with(options: &QpOptions) -> (Lab, Side, Side) {
    let lab = two_guests();
    let (a, b) = pair(&lab, 1, 8192, options);
    (lab, a, b)
}

/// Asserts that a request completes with `status`, and that the QP is in ERR then.
#[track_caller]
fn fails(side: &mut Side, id: u32, status: WcStatus) {
    side.cq.expect(side.qp.number, id, status);
    assert_eq!(side.qp.state(), QpState::ERR);
}

/// Asserts that an event reports the QP's error, which its peer caused, and that the QP is in ERR.
#[track_caller]
fn expect_error_event(side: &Side, kind: EventKind) {
    let told = side.guest().async_events().recv();
    assert_eq!(told, Told { kind, object: side.qp.number });
    assert_eq!(side.qp.state(), QpState::ERR);
}

#[test]
fn a_message_longer_than_the_receive_is_a_length_error() {
    let (_lab, mut a, mut b) = lab();
    b.mr.fill(0xaa);
    b.recv(1, &[b.mr.sge(0, 60), b.mr.sge(100, 3)]);
    b.recv(2, &[]);
    a.post(&Request::send(a.qp.tag(9), Data::Sges(&[a.mr.sge(0, 64)])));
    fails(&mut a, 9, WcStatus::REM_INV_REQ_ERR);
    b.cq.expect(b.qp.number, 1, WcStatus::LOC_LEN_ERR);
    fails(&mut b, 2, WcStatus::WR_FLUSH_ERR);
    assert_eq!(b.mr.get(63, 1000), vec![0xaa; 1000], "nothing beyond the receive is written");
}

#[test]
fn own_memory_has_to_be_registered_for_the_use() {
    type Spoil = fn(&Side, &Side) -> Sge;
    let wrong: [(&str, Spoil); 6] = [
        ("no such key", |a, _| Sge { lkey: a.mr.key ^ 0x55, ..a.mr.sge(0, 8) }),
        ("key 0", |a, _| Sge { lkey: 0, ..a.mr.sge(0, 8) }),
        ("before the region", |a, _| Sge { addr: a.mr.iova - 1, ..a.mr.sge(0, 8) }),
        ("beyond the region", |a, _| a.mr.sge(8185, 8)),
        ("wraps", |a, _| Sge { addr: u64::MAX - 3, ..a.mr.sge(0, 8) }),
        ("another PD's", |a, _| {
            let pd = a.guest().alloc_pd(a.process.number).unwrap();
            Mr::register(a.guest(), pd, access::ALL, 4096).unwrap().sge(0, 8)
        }),
    ];
    for (what, spoil) in wrong {
        let (_lab, mut a, mut b) = lab();
        let sge = spoil(&a, &b);
        b.recv_any(1);
        a.post(&Request::send(a.qp.tag(2), Data::Sges(&[a.mr.sge(0, 8), sge])));
        a.cq.expect(a.qp.number, 2, WcStatus::LOC_PROT_ERR);
        assert_eq!(a.qp.state(), QpState::ERR, "{what}");
        assert_eq!(b.cq.poll(), None, "{what}: nothing has left");
        assert_eq!(b.qp.state(), QpState::RTS, "{what}");
    }
}

#[test]
fn read_and_atomics_need_local_write() {
    for atomic in [false, true] {
        let (_lab, mut a, b) = lab();
        let own = a.process.mr_with(4096, access::REMOTE_READ).sge(0, 8);
        let tag = a.qp.tag(1);
        match atomic {
            false => a.post(&Request::read(tag, b.mr.remote(0), &[own])),
            true => a.post(&Request::fetch_add(tag, b.mr.remote(0), 1, &own)),
        }
        fails(&mut a, 1, WcStatus::LOC_PROT_ERR);
    }
}

#[test]
fn a_receive_into_memory_that_is_not_registered_fails_on_both_sides() {
    let (_lab, mut a, mut b) = lab();
    let read_only = b.process.mr_with(4096, access::REMOTE_READ);
    b.recv(1, &[read_only.sge(0, 100)]);
    a.post(&Request::send(a.qp.tag(2), Data::Sges(&[a.mr.sge(0, 8)])));
    fails(&mut a, 2, WcStatus::REM_OP_ERR);
    fails(&mut b, 1, WcStatus::LOC_PROT_ERR);
}

#[test]
fn remote_memory_has_to_be_registered_for_the_use() {
    type Spoil = fn(&Side) -> Remote;
    let wrong: [(&str, Spoil); 7] = [
        ("no such key", |b| Remote { rkey: b.mr.key ^ 0xff, ..b.mr.remote(0) }),
        ("before the region", |b| Remote { addr: b.mr.iova - 1, ..b.mr.remote(0) }),
        ("beyond the region", |b| b.mr.remote(8192 - 8 + 1)),
        ("wraps", |b| Remote { addr: u64::MAX - 3, ..b.mr.remote(0) }),
        ("deregistered", |b| {
            let mr = b.process.mr(4096);
            mr.deregister().unwrap();
            mr.remote(0)
        }),
        ("another PD's", |b| {
            let pd = b.guest().alloc_pd(b.process.number).unwrap();
            Mr::register(b.guest(), pd, access::ALL, 4096).unwrap().remote(0)
        }),
        ("without rights", |b| b.process.mr_with(4096, access::LOCAL_WRITE).remote(0)),
    ];
    for (what, spoil) in wrong {
        for opcode in 0..5 {
            let (_lab, mut a, mut b) = lab();
            b.mr.fill(0xaa);
            b.recv_any(77);
            let (tag, own, remote) = (a.qp.tag(1), a.mr.sge(0, 8), spoil(&b));
            match opcode {
                0 => a.post(&Request::write(tag, remote, Data::Sges(&[own]))),
                1 => a.post(&Request::write_imm(tag, remote, [0; 4], Data::Inline(&[7; 8]))),
                2 => a.post(&Request::read(tag, remote, &[own])),
                // Aligned, so that only the access is wrong.
                _ => {
                    let remote = Remote { addr: remote.addr & !7, ..remote };
                    let remote = if what == "beyond the region" { b.mr.remote(8192) } else { remote };
                    match opcode {
                        3 => a.post(&Request::fetch_add(tag, remote, 1, &own)),
                        _ => a.post(&Request::atomic_write(tag, remote, Data::Inline(&[7; 8]))),
                    }
                }
            }
            a.cq.expect(a.qp.number, 1, WcStatus::REM_ACCESS_ERR);
            assert_eq!(b.mr.get(0, 8192), vec![0xaa; 8192], "{what}, operation {opcode}");
            expect_error_event(&b, EventKind::QP_ACCESS_ERR);
            b.cq.expect(b.qp.number, 77, WcStatus::WR_FLUSH_ERR);
        }
    }
}

#[test]
fn rights_of_the_region_are_told_apart() {
    for (right, write, read, atomic) in [
        (access::REMOTE_WRITE, true, false, false),
        (access::REMOTE_READ, false, true, false),
        (access::REMOTE_ATOMIC, false, false, true),
    ] {
        for (which, allowed) in [write, read, atomic, write].into_iter().enumerate() {
            let (_lab, mut a, b) = lab();
            let mr = b.process.mr_with(4096, access::LOCAL_WRITE | right);
            let (tag, own) = (a.qp.tag(1), a.mr.sge(0, 8));
            match which {
                0 => a.post(&Request::write(tag, mr.remote(0), Data::Sges(&[own])).signaled(true)),
                1 => a.post(&Request::read(tag, mr.remote(0), &[own]).signaled(true)),
                2 => a.post(&Request::fetch_add(tag, mr.remote(0), 1, &own).signaled(true)),
                _ => {
                    a.post(&Request::atomic_write(tag, mr.remote(0), Data::Sges(&[own])).signaled(true));
                }
            }
            let status = if allowed { WcStatus::SUCCESS } else { WcStatus::REM_ACCESS_ERR };
            a.cq.expect(a.qp.number, 1, status);
        }
    }
}

#[test]
fn what_the_peers_qp_does_not_allow_is_an_invalid_request() {
    for which in 0..4 {
        let (_lab, mut a, b) = lab_with(&QpOptions { access: access::LOCAL_WRITE, ..QpOptions::default() });
        let (tag, own) = (a.qp.tag(1), a.mr.sge(0, 8));
        match which {
            0 => a.post(&Request::write(tag, b.mr.remote(0), Data::Sges(&[own]))),
            1 => a.post(&Request::read(tag, b.mr.remote(0), &[own])),
            2 => a.post(&Request::fetch_add(tag, b.mr.remote(0), 1, &own)),
            _ => a.post(&Request::atomic_write(tag, b.mr.remote(0), Data::Sges(&[own]))),
        }
        fails(&mut a, 1, WcStatus::REM_INV_REQ_ERR);
        expect_error_event(&b, EventKind::QP_REQ_ERR);
    }
}

#[test]
fn a_misaligned_atomic_is_an_invalid_request() {
    for write in [false, true] {
        let (_lab, mut a, b) = lab();
        let (tag, remote, own) = (a.qp.tag(1), b.mr.remote(4), a.mr.sge(0, 8));
        match write {
            false => a.post(&Request::fetch_add(tag, remote, 1, &own)),
            true => a.post(&Request::atomic_write(tag, remote, Data::Inline(&[7; 8]))),
        }
        fails(&mut a, 1, WcStatus::REM_INV_REQ_ERR);
        assert_eq!(b.mr.get(0, 16), [0; 16]);
    }
}

#[test]
fn an_atomic_write_has_eight_bytes() {
    for (inline, length) in [(false, 0), (false, 7), (false, 16), (true, 7), (true, 9)] {
        let (_lab, mut a, b) = lab();
        a.mr.fill(7);
        let (tag, remote, sge) = (a.qp.tag(1), b.mr.remote(0), [a.mr.sge(0, length)]);
        let data = vec![7; length as usize];
        let data = if inline { Data::Inline(&data) } else { Data::Sges(&sge) };
        a.post(&Request::atomic_write(tag, remote, data));
        fails(&mut a, 1, WcStatus::LOC_LEN_ERR);
        assert_eq!(b.mr.get(0, 16), [0; 16], "{inline} {length}");
    }
}

#[test]
fn without_a_receive_retries_run_out() {
    for rnr_retry in [0, 3] {
        // Without a timeout: a retransmission would get a further RNR NAK.
        let options = QpOptions { rnr_retry, min_rnr_timer: 12, timeout: 0, ..QpOptions::default() };
        let (lab, mut a, b) = lab_with(&options);
        a.post(&Request::send(a.qp.tag(1), Data::EMPTY));
        fails(&mut a, 1, WcStatus::RNR_RETRY_EXC_ERR);
        assert_eq!(lab.transport(1, "rnr_naks_sent"), 1 + u64::from(rnr_retry));
        assert_eq!(b.qp.state(), QpState::RTS, "the receiver has done nothing wrong");
    }
}

#[test]
fn a_sender_waits_for_ever_for_a_receive_if_told_so() {
    let (_lab, mut a, mut b) = lab_with(&QpOptions { rnr_retry: 7, ..QpOptions::default() });
    a.mr.put(0, b"at last");
    a.post(&Request::send(a.qp.tag(1), Data::Sges(&[a.mr.sge(0, 7)])).signaled(true));
    a.post(&Request::write(a.qp.tag(2), b.mr.remote(100), Data::Inline(b"behind it")).signaled(true));
    a.cq.expect_nothing(Duration::from_millis(30));
    assert_eq!(b.mr.get(100, 9), [0; 9], "what comes behind it waits too");
    b.recv_any(3);
    b.cq.expect(b.qp.number, 3, WcStatus::SUCCESS);
    a.cq.expect(a.qp.number, 1, WcStatus::SUCCESS);
    a.cq.expect(a.qp.number, 2, WcStatus::SUCCESS);
    assert_eq!((b.mr.get(0, 7), b.mr.get(100, 9)), (b"at last".to_vec(), b"behind it".to_vec()));
}

#[test]
fn a_peer_that_is_gone_in_any_way_does_not_answer() {
    type Vanish = fn(&Lab, &Side);
    let ways: [(&str, Vanish); 6] = [
        ("destroyed", |_, b| b.qp.destroy().unwrap()),
        ("in error", |_, b| b.qp.to_state(QpState::ERR).unwrap()),
        ("reset", |_, b| b.qp.to_state(QpState::RESET).unwrap()),
        ("without its address", |_, b| b.guest().del_gid(0).unwrap()),
        ("its guest reset", |lab, _| lab.guests[1].reset().unwrap()),
        ("connected to another", |_, b| {
            b.qp.to_state(QpState::RESET).unwrap();
            let other = b.process.qp(&b.cq, &b.cq, &QpOptions::default());
            connect(&b.qp, &other);
        }),
    ];
    for (what, vanish) in ways {
        let (lab, mut a, b) = lab();
        a.post(&Request::write(a.qp.tag(1), b.mr.remote(0), Data::Inline(b"x")).signaled(true));
        a.cq.expect(a.qp.number, 1, WcStatus::SUCCESS);
        a.qp.gives_up_soon().unwrap();
        // On a busy machine an answer may be late, too.
        let timeouts = lab.stats().transport(0, "timeouts");
        vanish(&lab, &b);
        a.post(&Request::write(a.qp.tag(2), b.mr.remote(0), Data::Inline(b"y")));
        a.post(&Request::write(a.qp.tag(3), b.mr.remote(0), Data::Inline(b"z")));
        a.cq.expect(a.qp.number, 2, WcStatus::RETRY_EXC_ERR);
        fails(&mut a, 3, WcStatus::WR_FLUSH_ERR);
        // The first attempt and each retry time out. The `retry` tests of vrdma-transport check how
        // long they take, by a clock of their own.
        let attempts = 1 + u64::from(a.qp.options.retry_cnt);
        assert_eq!(lab.stats().transport(0, "timeouts") - timeouts, attempts, "{what}");
    }
}

#[test]
fn a_peer_that_leaves_in_mid_message_does_not_answer() {
    let (lab, mut a, mut b) = lab_with(&QpOptions { timeout: 8, retry_cnt: 1, ..QpOptions::default() });
    let big = (a.process.mr(8 << 20), b.process.mr(8 << 20));
    b.recv(1, &[big.1.sge(0, 8 << 20)]);
    for id in 0..20 {
        let own = [big.0.sge(0, 8 << 20)];
        a.post(&Request::write(a.qp.tag(id), big.1.remote(0), Data::Sges(&own)).signaled(true));
    }
    b.qp.destroy().unwrap();
    // Some messages may have arrived earlier.
    let first = loop {
        let wc = a.cq.wait();
        if wc.status() != WcStatus::SUCCESS {
            break wc;
        }
    };
    assert_eq!(first.status(), WcStatus::RETRY_EXC_ERR);
    for id in first.id() + 1..20 {
        a.cq.expect(a.qp.number, id, WcStatus::WR_FLUSH_ERR);
    }
    assert_eq!(lab.stats().objects(0, "pending_requests"), 0);
}

#[test]
fn everything_behind_a_failure_is_flushed_in_order() {
    let (lab, mut a, b) = lab();
    for id in 0..5 {
        a.recv_any(100 + id);
    }
    for id in 0..10 {
        let remote = if id == 4 { Remote { rkey: 0, ..b.mr.remote(0) } } else { b.mr.remote(0) };
        // Unsignaled requests are reported, too.
        let request = Request::write(a.qp.tag(id), remote, Data::Inline(b"x"));
        a.post(&request.signaled(id % 2 == 1));
    }
    let mut sends = Vec::new();
    let mut receives = Vec::new();
    for _ in 0..2 + 6 + 5 {
        let wc = a.cq.wait();
        let list = if wc.id() >= 100 { &mut receives } else { &mut sends };
        list.push((wc.id(), wc.status()));
    }
    let flushed = |ids: std::ops::Range<u32>| ids.map(|id| (id, WcStatus::WR_FLUSH_ERR));
    let ok = [(1, WcStatus::SUCCESS), (3, WcStatus::SUCCESS), (4, WcStatus::REM_ACCESS_ERR)];
    assert_eq!(sends, ok.into_iter().chain(flushed(5..10)).collect::<Vec<_>>());
    assert_eq!(receives, flushed(100..105).collect::<Vec<_>>());
    assert_eq!(a.qp.state(), QpState::ERR);
    // Requests posted in ERR are flushed at once.
    a.post(&Request::send(a.qp.tag(20), Data::EMPTY));
    a.recv_any(21);
    a.cq.expect(a.qp.number, 20, WcStatus::WR_FLUSH_ERR);
    a.cq.expect(a.qp.number, 21, WcStatus::WR_FLUSH_ERR);
    assert_eq!(lab.stats().objects(0, "pending_requests"), 0);
}

#[test]
fn a_move_to_error_flushes_in_order() {
    let (_lab, mut a, _b) = lab_with(&QpOptions { rnr_retry: 7, ..QpOptions::default() });
    for id in 0..8 {
        a.recv_any(100 + id);
        a.post(&Request::send(a.qp.tag(id), Data::EMPTY));
    }
    a.qp.to_state(QpState::ERR).unwrap();
    let mut found: Vec<u32> = (0..16)
        .map(|_| a.cq.wait())
        .inspect(|wc| assert_eq!(wc.status(), WcStatus::WR_FLUSH_ERR))
        .map(|wc| wc.id())
        .collect();
    found.sort_by_key(|id| *id >= 100);
    assert_eq!(found, (0..8).chain(100..108).collect::<Vec<_>>());
}

#[test]
fn a_qp_that_was_reset_can_be_connected_again() {
    let (_lab, mut a, mut b) = lab();
    a.post(&Request::send(a.qp.tag(1), Data::Sges(&[Sge { lkey: 0, ..a.mr.sge(0, 8) }])));
    fails(&mut a, 1, WcStatus::LOC_PROT_ERR);
    b.recv_any(1);
    for side in [&a, &b] {
        side.qp.to_state(QpState::RESET).unwrap();
    }
    connect(&a.qp, &b.qp);
    b.recv_any(2);
    a.post(&Request::send(a.qp.tag(3), Data::Inline(b"again")).signaled(true));
    a.cq.expect(a.qp.number, 3, WcStatus::SUCCESS);
    b.cq.expect(b.qp.number, 2, WcStatus::SUCCESS);
    assert_eq!(b.mr.get(0, 5), b"again");
}

#[test]
fn more_than_the_qp_may_have_is_an_operation_error() {
    let options = QpOptions { sges: 2, inline: 16, ..QpOptions::default() };
    for which in 0..3 {
        let (_lab, mut a, _b) = lab_with(&options);
        let (tag, own) = (a.qp.tag(1), a.mr.sge(0, 8));
        match which {
            0 => a.post(&Request::send(tag, Data::Sges(&[own; 3]))),
            1 => a.post(&Request::send(tag, Data::Inline(&[0; 17]))),
            _ => a.post(&Request::recv(tag, &[own; 3])),
        }
        fails(&mut a, 1, WcStatus::LOC_QP_OP_ERR);
    }
}

#[test]
fn a_read_without_the_right_to_any_is_an_error() {
    let lab = two_guests();
    let none = QpOptions { rd_atomic: 0, ..QpOptions::default() };
    let (mut a, b) = pair(&lab, 1, 4096, &none);
    a.post(&Request::read(a.qp.tag(1), b.mr.remote(0), &[a.mr.sge(0, 8)]));
    let wc = a.cq.wait();
    assert!([WcStatus::LOC_QP_OP_ERR, WcStatus::REM_INV_REQ_ERR].contains(&wc.status()), "{wc:?}");
}

#[test]
fn requests_that_nobody_can_be_told_of_are_counted() {
    let (lab, mut a, b) = lab();
    let mut other = Context::open(&lab.guests[0]).unwrap();
    // The QP of another process, a QP in RESET, and a QP that does not exist.
    other.post(&Request::send(a.qp.tag(1), Data::EMPTY));
    let fresh = a.process.qp(&a.cq, &a.cq, &QpOptions::default());
    a.post(&Request::send(fresh.tag(2), Data::EMPTY));
    fresh.destroy().unwrap();
    a.post(&Request::send(fresh.tag(3), Data::EMPTY));
    a.process.channel.drain();
    other.channel.drain();
    a.post(&Request::write(a.qp.tag(4), b.mr.remote(0), Data::EMPTY).signaled(true));
    a.cq.expect(a.qp.number, 4, WcStatus::SUCCESS);
    assert_eq!(a.cq.poll(), None);
    let stats = lab.stats();
    assert_eq!((stats.device(0, "stray_requests"), stats.device(0, "untimely_requests")), (2, 1));
}
