//! Many queue pairs, few channels.
//!
//! Shows: no-channel, many-qps, small-qps.

use std::path::PathBuf;
use vrdma_tests::abi::control::{Status, access};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::context::Context;
use vrdma_tests::side::Side;
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{Cq, Lab, LabOptions, Mr, Qp, QpOptions, Rng, connect, proc};

#[test]
fn a_thousand_qps_share_a_channel_and_no_completion_is_lost_or_reordered() {
    const QPS: usize = 1000;
    const EACH: u32 = 20;
    const OUTSTANDING: u32 = 600;
    let lab = Lab::new(2);
    let mut a = Process::open(&lab, 0, 1024);
    let mut b = Process::open(&lab, 1, 1024);
    // Each message has a receive of 16 bytes: slot (pair, sequence number modulo 4).
    let slots = b.process.mr(QPS as u64 * 64);
    let options = QpOptions { send_wr: 32, recv_wr: 4, sges: 1, inline: 32, ..QpOptions::default() };
    let pairs: Vec<(Qp, Qp)> = (0..QPS).map(|_| (a.qp(&options), b.qp(&options))).collect();
    pairs.iter().for_each(|(own, peer)| connect(own, peer));
    let of_qpn = |qps: &mut dyn Iterator<Item = u32>| -> std::collections::HashMap<u32, usize> {
        qps.enumerate().map(|(i, qpn)| (qpn, i)).collect()
    };
    let senders = of_qpn(&mut pairs.iter().map(|p| p.0.number));
    let receivers = of_qpn(&mut pairs.iter().map(|p| p.1.number));
    let slot = |pair: usize, sequence: u32| pair as u64 * 64 + u64::from(sequence % 4) * 16;
    for (pair, (_, peer)) in pairs.iter().enumerate() {
        for sequence in 0..4 {
            let sge = [slots.sge(slot(pair, sequence), 16)];
            b.process.post(&Request::recv(peer.tag(sequence), &sge));
        }
    }
    let mut rng = Rng::from_env("a_thousand_qps");
    let (mut posted, mut completed, mut received) = (vec![0u32; QPS], vec![0u32; QPS], vec![0u32; QPS]);
    let (mut outstanding, mut left) = (0, QPS * 2 * EACH as usize);
    let mut unfinished: Vec<usize> = (0..QPS).collect();
    while left > 0 {
        if outstanding < OUTSTANDING && !unfinished.is_empty() {
            let at = rng.below(unfinished.len() as u64) as usize;
            let pair = unfinished[at];
            let message = [pair as u64, posted[pair].into()].map(u64::to_le_bytes).concat();
            let tag = pairs[pair].0.tag(posted[pair]);
            a.process.post(&Request::send(tag, Data::Inline(&message)).signaled(true));
            posted[pair] += 1;
            outstanding += 1;
            if posted[pair] == EACH {
                unfinished.swap_remove(at);
            }
            if rng.below(8) != 0 {
                continue;
            }
        }
        while let Some(wc) = a.cq.poll() {
            let pair = senders[&wc.qpn()];
            assert_eq!((wc.id(), wc.status()), (completed[pair], WcStatus::SUCCESS), "pair {pair}");
            completed[pair] += 1;
            (outstanding, left) = (outstanding - 1, left - 1);
        }
        while let Some(wc) = b.cq.poll() {
            let pair = receivers[&wc.qpn()];
            let sequence = received[pair];
            assert_eq!((wc.id(), wc.status(), wc.len()), (sequence, WcStatus::SUCCESS, 16), "pair {pair}");
            let expected = [pair as u64, sequence.into()].map(u64::to_le_bytes).concat();
            assert_eq!(slots.get(slot(pair, sequence), 16), expected, "pair {pair}");
            received[pair] += 1;
            left -= 1;
            let sge = [slots.sge(slot(pair, sequence), 16)];
            b.process.post(&Request::recv(pairs[pair].1.tag(sequence + 4), &sge));
        }
    }
    assert_eq!((posted, completed, received), (vec![EACH; QPS], vec![EACH; QPS], vec![EACH; QPS]));
    assert!(a.cq.poll().is_none() && b.cq.poll().is_none());
    assert_eq!(lab.stats().objects(0, "channels"), 1);
}

/// A process with a CQ.
struct Process {
    process: Context,
    cq: Cq,
}

impl Process {
    fn open(lab: &Lab, guest: usize, cqes: u32) -> Process {
        let process = Context::open(&lab.guests[guest]).unwrap();
        let cq = process.cq(cqes);
        Process { process, cq }
    }

    fn qp(&self, options: &QpOptions) -> Qp {
        self.process.qp(&self.cq, &self.cq, options)
    }
}

/// Processes without a channel of their own post through the kernel's channel.
///
/// That channel takes requests for QPs of any context.
#[test]
fn processes_without_a_channel_post_through_the_kernels() {
    let lab = Lab::with(2, LabOptions { channels: 2, ..LabOptions::default() });
    let guest = &lab.guests[0];
    let mut kernel = Context::kernel(guest).unwrap();
    let lucky = Context::open(guest).unwrap();
    assert_eq!(Context::open(guest).err(), Some(Status::NO_RESOURCES), "the pool is empty");
    let mut peer = Side::new(&lab.guests[1], 1 << 16, &QpOptions::default());
    let mut processes = Vec::new();
    for n in 0..4u8 {
        let number = guest.alloc_context().unwrap();
        let pd = guest.alloc_pd(number).unwrap();
        let cq = Cq::create(guest, number, 64, 0).unwrap();
        let mr = Mr::register(guest, pd, access::ALL, 4096).unwrap();
        mr.fill(n);
        let qp = Qp::create(guest, number, pd, cq.number, cq.number, &QpOptions::default()).unwrap();
        let other = peer.process.qp(&peer.cq, &peer.cq, &QpOptions::default());
        connect(&qp, &other);
        processes.push((cq, mr, qp, other));
    }
    for round in 0..50 {
        for (n, (_, mr, qp, _)) in processes.iter().enumerate() {
            let own = [mr.sge(0, 1000)];
            let remote = peer.mr.remote(n as u64 * 1000);
            kernel.post(&Request::write(qp.tag(round), remote, Data::Sges(&own)).signaled(true));
        }
        for (n, (cq, _, qp, _)) in processes.iter_mut().enumerate() {
            cq.expect(qp.number, round, WcStatus::SUCCESS);
            assert_eq!(peer.mr.get(n as u64 * 1000, 1000), vec![n as u8; 1000]);
        }
    }
    // They receive through the kernel's channel, too.
    for (_, mr, qp, other) in &processes {
        kernel.post(&Request::recv(qp.tag(7), &[mr.sge(0, 100)]));
        kernel.channel.drain();
        peer.process.post(&Request::send(other.tag(8), Data::Inline(b"for you")).signaled(true));
        peer.cq.expect(other.number, 8, WcStatus::SUCCESS);
    }
    for (cq, mr, qp, _) in &mut processes {
        cq.expect(qp.number, 7, WcStatus::SUCCESS);
        assert_eq!(mr.get(0, 7), b"for you");
    }
    drop(lucky);
}

#[test]
fn four_thousand_idle_connected_qps_cost_less_than_4_kib_each() {
    const PAIRS: u64 = 2000;
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_vrdma-test-daemon")));
    let lab = Lab::with(2, LabOptions { program, ..LabOptions::default() });
    let (mut a, mut b) = (Process::open(&lab, 0, 64), Process::open(&lab, 1, 64));
    let options = QpOptions { recv_wr: 64, ..QpOptions::default() };
    let pairs = |a: &Process, b: &Process, count| -> Vec<(Qp, Qp)> {
        let pairs: Vec<(Qp, Qp)> = (0..count).map(|_| (a.qp(&options), b.qp(&options))).collect();
        pairs.iter().for_each(|(own, peer)| connect(own, peer));
        pairs
    };
    // Memory that the first QPs allocate once is not counted.
    let first = pairs(&a, &b, 4);
    let before = proc::resident(lab.daemon.pid());
    let all = pairs(&a, &b, PAIRS);
    assert_eq!(lab.stats().objects(0, "qps"), PAIRS + 4);
    let idle = proc::resident(lab.daemon.pid()).saturating_sub(before) / (2 * PAIRS);
    // The QPs are functional: each carries a message, and is idle again.
    for (own, peer) in &all {
        b.process.post(&Request::recv(peer.tag(1), &[]));
        a.process.post(&Request::send(own.tag(2), Data::EMPTY).signaled(true));
        a.cq.expect(own.number, 2, WcStatus::SUCCESS);
        b.cq.expect(peer.number, 1, WcStatus::SUCCESS);
    }
    let used = proc::resident(lab.daemon.pid()).saturating_sub(before) / (2 * PAIRS);
    println!("{idle} bytes for each idle QP, {used} after each carried a message");
    assert!(idle < 4096 && used < 4096, "{idle} bytes for each idle QP, {used} after use");
    drop(first);
}
