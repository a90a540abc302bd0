//! What is special about guests on different workers of one daemon.
//!
//! Other tests cover the rest in that setting, too.

use std::path::PathBuf;
use vrdma_tests::abi::control::{QpType, Status};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::ah::{AhTable, entry};
use vrdma_tests::guest::gid;
use vrdma_tests::net::{NetGuest, NetOptions, frame, mac};
use vrdma_tests::pingpong::PingPong;
use vrdma_tests::proc::{StoppedThread, thread_of};
use vrdma_tests::side::{pair, pair_between};
use vrdma_tests::verbs::{Data, Request, UdTarget};
use vrdma_tests::{CableOptions, Lab, LabOptions, QpOptions, Setting, wait};
use vrdma_wire::icrc::Icrc;
use vrdma_wire::num::{FlowLabel, Gid, Mac, Qkey, Qpn};
use vrdma_wire::roce::{self, Body, Bth, Deth, Path};

/// EtherType for experiments (IEEE 802).
const TEST: u16 = 0x88b5;

fn options(workers: u16) -> LabOptions {
    LabOptions { workers, ..LabOptions::default() }
}

#[test]
fn guests_are_spread_and_their_workers_count() {
    let lab = Lab::with(5, options(3));
    let talk = PingPong::start(&lab.guests[0], &lab.guests[1]);
    let within = PingPong::start(&lab.guests[1], &lab.guests[4]);
    talk.stop();
    within.stop();
    let stats = lab.stats();
    let guests = [0, 1, 2].map(|worker| stats.guests_of(worker));
    assert_eq!(guests, [vec!["g0", "g3"], vec!["g1", "g4"], vec!["g2"]]);
    assert_eq!(stats.guests(), 5);
    for (worker, talks) in [(0, true), (1, true), (2, false)] {
        for counter in ["packets_sent", "packets_received"] {
            assert_eq!(stats.worker(worker, counter) != 0, talks, "worker {worker}: {counter}");
        }
        assert_eq!((stats.worker(worker, "packets_lost"), stats.is_stuck(worker)), (0, false));
    }
    assert_eq!(stats.worker(0, "packets_sent"), stats.worker(1, "packets_received"));
}

#[test]
fn packets_of_all_services_are_no_frames() {
    let lab = Lab::with(2, options(2));
    let told = |counter: &str| [0, 1].map(|worker| lab.stats().worker(worker, counter));
    let mut sent = told("packets_sent")[0];
    let handles = AhTable::new(&lab.guests[0], 64).unwrap();
    for qp_type in [QpType::RC, QpType::UC, QpType::UD] {
        let (mut a, mut b) = pair(&lab, 1, 4096, &QpOptions::of(qp_type));
        b.recv_any(1);
        b.process.channel.drain();
        handles.put(0, &entry(a.process.pd, b.guest().gid()));
        let to = UdTarget { ah: 0, qpn: b.qp.number, qkey: b.qp.options.qkey };
        let (tag, data) = (a.qp.tag(2), Data::Inline(b"a message of 24 bytes..."));
        match qp_type {
            QpType::UD => a.post(&Request::ud_send(tag, to, data).signaled(true)),
            _ => a.post(&Request::send(tag, data).signaled(true)),
        }
        a.cq.expect(a.qp.number, 2, WcStatus::SUCCESS);
        let wc = b.cq.expect(b.qp.number, 1, WcStatus::SUCCESS);
        let at = wc.len() as usize - 24;
        assert_eq!(
            (at, &b.mr.get(0, 64)[at..at + 24]),
            (if qp_type == QpType::UD { 40 } else { 0 }, &b"a message of 24 bytes..."[..])
        );
        sent += 1;
        assert_eq!((told("packets_sent")[0], told("frames_sent")), (sent, [0, 0]), "{qp_type:?}");
        a.close();
        b.close();
    }
}

#[test]
fn workers_that_sleep_wake_each_other() {
    let lab = Lab::with(2, LabOptions { poll_us: 0, ..options(2) });
    let talk = PingPong::start(&lab.guests[0], &lab.guests[1]);
    wait::until("rounds", || (talk.rounds() >= 200).then_some(()));
    let stats = lab.stats();
    talk.stop();
    assert!([0, 1].iter().all(|&worker| stats.worker(worker, "sleeps") > 100), "they slept meanwhile");
}

#[test]
fn an_address_is_one_guest_s_on_all_workers() {
    let lab = Lab::with(3, options(3));
    let [a, b, c] = [0, 1, 2].map(|at| lab.guests[at].clone());
    a.add_gid(1, gid(77)).unwrap();
    assert_eq!(b.add_gid(1, gid(77)), Err(Status::DENIED), "another guest has it");
    assert_eq!(b.add_gid(1, gid(1)), Err(Status::DENIED));
    b.add_gid_in(Some(5), 1, gid(77)).expect("it is free in that VLAN");
    assert_eq!(c.add_gid_in(Some(5), 1, gid(77)), Err(Status::DENIED));
    // An address is free after it was replaced or deleted, or after its guest left.
    a.add_gid(1, gid(78)).unwrap();
    b.add_gid(2, gid(77)).unwrap();
    assert_eq!(c.add_gid(1, gid(78)), Err(Status::DENIED));
    a.del_gid(1).unwrap();
    c.add_gid(1, gid(78)).unwrap();
    assert_eq!(lab.stats().device(1, "refused_gids"), 2);
    drop(b);
    let mut lab = lab;
    drop(lab.guests.remove(1));
    lab.expect_nothing_left(1);
    c.add_gid(2, gid(77)).unwrap();
    c.add_gid_in(Some(5), 3, gid(77)).unwrap();
    c.add_gid(4, gid(2)).unwrap();
}

/// Builds an RDMA datagram from guest 0's netdev to a QP of guest 1, with source 10.0.0.`last`.
fn datagram(qpn: u32, qkey: u32, last: u8) -> Vec<u8> {
    let packet = roce::Packet {
        path: Path {
            src_mac: Mac(mac(1)),
            dst_mac: Mac(mac(2)),
            vlan: None,
            src: Gid::from_ipv4([10, 0, 0, last]),
            dst: Gid::from_ipv4([10, 0, 0, 2]),
            traffic_class: 0,
            flow_label: FlowLabel::default(),
            hop_limit: 64,
            src_port: 0xc000,
        },
        bth: Bth { mig: true, dest: Qpn::new(qpn).unwrap(), ..Bth::default() },
        body: Body::Ud { deth: Deth { qkey: Qkey(qkey), src: Qpn::truncate(0x77) }, imm: None },
    };
    let mut frame = vec![0; packet.header_len()];
    packet.emit(8, &mut frame);
    let mut icrc = Icrc::new(&frame);
    icrc.update(b"datagram");
    frame.extend_from_slice(b"datagram");
    frame.extend_from_slice(&icrc.finish());
    frame
}

#[test]
fn a_netdev_speaks_for_no_rdma_function_of_another_worker() {
    for workers in [1, 3] {
        let lab = Lab::with(3, options(workers));
        let (_, mut victim) = pair(&lab, 1, 4096, &QpOptions::of(QpType::UD));
        victim.recv_any(1);
        victim.process.channel.drain();
        let mut netdev = NetGuest::connect(&lab.net_socket(0), NetOptions::default()).unwrap();
        let (qpn, qkey) = (victim.qp.number, victim.qp.options.qkey);
        // 10.0.0.1 and 10.0.0.3 are GIDs of RDMA functions of this host. 10.0.0.2 is that of the
        // victim itself.
        for last in [1, 3, 2] {
            netdev.send(&datagram(qpn, qkey, last));
        }
        // No function has this address as its GID.
        netdev.send(&datagram(qpn, qkey, 99));
        assert_eq!(victim.cq.expect_success().0.src_qpn.get(), 0x77);
        assert_eq!((victim.cq.poll(), victim.mr.get(40, 8)), (None, b"datagram".to_vec()));
        let stats = lab.stats();
        let elsewhere = if workers == 1 { 0 } else { stats.worker(1, "drop_spoofed") };
        assert_eq!(stats.roce("drop_spoofed") + elsewhere, 3, "{workers} workers");
        assert_eq!(elsewhere, if workers == 1 { 0 } else { 2 });
    }
}

#[test]
fn netdevs_of_different_workers_are_on_one_network() {
    let lab = Lab::without_guests(3, options(3));
    let mut guests: Vec<_> = (0..3)
        .map(|index| NetGuest::connect(&lab.net_socket(index), NetOptions::default()).unwrap())
        .collect();
    for len in [0, 46, 1500, 9000 - 18] {
        let sent = frame(mac(2), mac(1), TEST, &vec![7; len]);
        guests[0].send(&sent);
        let (_, found) = guests[1].recv();
        // Between workers, a frame is padded as on a wire.
        assert!(found[..sent.len()] == sent && found.len() == sent.len().max(60), "{len}: {}", found.len());
    }
    let all = frame([0xff; 6], mac(2), TEST, &[8; 100]);
    guests[1].send(&all);
    assert_eq!([guests[0].recv().1, guests[2].recv().1], [all.clone(), all]);
    // No guest can send from an address of another worker's guest.
    for (dst, src) in [(mac(2), mac(3)), ([0xff; 6], mac(2)), (mac(3), mac(2))] {
        guests[0].send(&frame(dst, src, TEST, b"it was not me"));
    }
    guests.iter_mut().for_each(NetGuest::expect_nothing);
    assert_eq!(lab.stats().switch("drop_spoofed"), 3);
    assert_eq!(lab.stats().net(0, "tx_spoofed"), 3);
}

#[test]
fn floods_are_limited_between_workers_too() {
    let mut options = options(2);
    options.limits.flood_rate = 1;
    let lab = Lab::without_guests(2, options);
    let mut guests: Vec<_> = (0..2)
        .map(|index| NetGuest::connect(&lab.net_socket(index), NetOptions::default()).unwrap())
        .collect();
    for _ in 0..100 {
        guests[0].send(&frame([0xff; 6], mac(1), TEST, &[1; 60]));
    }
    wait::until("all", || (lab.stats().net(0, "tx_frames") == 100).then_some(()));
    let limited = lab.stats().net(0, "tx_flood_limited");
    assert!(limited >= 30, "{limited}");
    (limited..100).for_each(|_| drop(guests[1].recv()));
    guests[1].expect_nothing();
}

#[test]
fn guests_come_and_go_beside_a_connection_between_workers() {
    let mut lab = Lab::with(4, options(3));
    let talk = PingPong::start(&lab.guests[0], &lab.guests[1]);
    for _ in 0..10 {
        PingPong::start(&lab.guests[2], &lab.guests[3]).stop();
        // Both guests vanish while a connection is in use.
        let (mut a, b) = pair_between(&lab.guests[2], &lab.guests[3], 4096, &QpOptions::default());
        for id in 0..8 {
            a.post(&Request::write(a.qp.tag(id), b.mr.remote(0), Data::Sges(&[a.mr.sge(0, 4096)])));
        }
        drop((a, b));
        for index in [3, 2] {
            drop(lab.guests.remove(index));
        }
        for index in [2, 3] {
            lab.expect_nothing_left(index.into());
            let guest = lab.connect(index);
            lab.guests.push(guest);
        }
    }
    talk.stop();
}

#[test]
fn the_uplink_is_all_workers_and_they_reach_each_other_without_it() {
    let lab = Lab::with(4, LabOptions { cable: Some(CableOptions::default()), ..options(2) });
    // Guests 0 and 2 are on the local daemon, 1 and 3 on the remote one. Guests 2 and 3 are on the
    // worker without the NIC.
    let places = |guest: usize| lab.guests[guest].clone();
    let talks = [(0, 1), (2, 3), (0, 3), (2, 1)].map(|(a, b)| PingPong::start(&places(a), &places(b)));
    let within = PingPong::start(&places(0), &places(2));
    talks.iter().for_each(PingPong::expect_another_round);
    talks.into_iter().for_each(|talk| {
        talk.stop();
    });
    let stats = lab.stats();
    assert!(stats.uplink("frames_sent") != 0 && stats.uplink("frames_received") != 0);
    let between = stats.worker(1, "packets_sent");
    lab.cable.as_ref().unwrap().plug(false);
    within.expect_another_round();
    assert!(lab.stats().worker(1, "packets_sent") > between);
    lab.cable.as_ref().unwrap().plug(true);
    PingPong::start(&places(2), &places(3)).stop();
    within.stop();
}

#[test]
fn a_worker_that_is_stuck_is_named_and_others_go_on() {
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_vrdma-test-daemon")));
    let lab = Lab::with(4, LabOptions { program, ..options(2) });
    // Guests 0 and 2 are on worker 0.
    let talk = PingPong::start(&lab.guests[0], &lab.guests[2]);
    let thread = thread_of(lab.daemon.pid(), "worker 1").expect("a thread of that name");
    let Some(stopped) = StoppedThread::stop(thread) else {
        eprintln!("skipped: debuggers are not allowed here");
        return;
    };
    let says = |words: &str| {
        wait::until(words, || lab.daemon.messages().contains(words).then_some(()));
    };
    says("worker 1 is stuck");
    says("guests that wait: g1, g3");
    let stats = lab.stats_at_once();
    assert!(stats.is_stuck(1) && !stats.is_stuck(0) && stats.guests_of(1) == ["g1", "g3"]);
    assert_eq!(stats.guests(), 2);
    talk.expect_another_round();
    drop(stopped);
    says("worker 1 goes on");
    talk.stop();
    let talk = PingPong::start(&lab.guests[1], &lab.guests[2]);
    assert!(!lab.stats_at_once().is_stuck(1));
    talk.stop();
}

#[test]
fn a_setting_of_two_workers_has_one_without_guests() {
    let lab = Lab::with(2, Setting::TwoWorkers.options());
    assert_eq!(lab.stats().guests_of(2), Vec::<&str>::new());
}
