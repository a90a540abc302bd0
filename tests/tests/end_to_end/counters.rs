//! The counters that a guest reads from its device.

use vrdma_tests::abi::control::{CountersResp, device_cap};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::side::pair;
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{CableOptions, Lab, LabOptions, QpOptions};

/// Returns the difference of a counter, in both guests.
fn moved(
    before: &[CountersResp; 2],
    after: &[CountersResp; 2],
    of: impl Fn(&CountersResp) -> u64,
) -> (u64, u64) {
    (of(&after[0]) - of(&before[0]), of(&after[1]) - of(&before[1]))
}

fn both(lab: &Lab) -> [CountersResp; 2] {
    [0, 1].map(|at| lab.guests[at].query_counters().expect("the device counts"))
}

#[test]
fn requests_bytes_and_packets_of_both_ends_are_told() {
    for cable in [None, Some(CableOptions::default())] {
        let lab = Lab::with(2, LabOptions { cable: cable.clone(), ..LabOptions::default() });
        let device = lab.guests[0].query_device_ex().unwrap();
        assert_ne!(device.device_cap.get() & device_cap::HW_COUNTERS, 0);
        // Nothing is retransmitted, however long the worker waits for a processor. Without a
        // timeout, a QP soon asks a peer on another worker again.
        let options = QpOptions { timeout: if lab.are_apart(0, 1) { 23 } else { 0 }, ..QpOptions::default() };
        let (mut a, mut b) = pair(&lab, 1, 4096, &options);
        let before = both(&lab);
        b.recv_any(1);
        // A SEND from another worker may arrive before the device has taken the receive. It would
        // be retransmitted.
        b.process.channel.drain();
        let payload = [a.mr.sge(0, 1000)];
        a.post(&Request::send(a.qp.tag(2), Data::Sges(&payload)).signaled(true));
        a.post(&Request::write(a.qp.tag(3), b.mr.remote(0), Data::Sges(&payload)).signaled(true));
        let (back, found) = ([a.mr.sge(0, 300)], a.mr.sge(0, 8));
        a.post(&Request::read(a.qp.tag(4), b.mr.remote(0), &back).signaled(true));
        a.post(&Request::fetch_add(a.qp.tag(5), b.mr.remote(0), 1, &found).signaled(true));
        for id in 2..=5 {
            a.cq.expect(a.qp.number, id, WcStatus::SUCCESS);
        }
        b.cq.expect(b.qp.number, 1, WcStatus::SUCCESS);
        let after = both(&lab);
        let moved = |of: fn(&CountersResp) -> u64| moved(&before, &after, of);
        assert_eq!(moved(|c| c.bytes_sent.get()), (2000, 300));
        assert_eq!(moved(|c| c.bytes_received.get()), (300, 2000));
        assert_eq!(moved(|c| c.sends.get()), (1, 0));
        assert_eq!(moved(|c| c.writes.get()), (1, 0));
        assert_eq!(moved(|c| c.reads.get()), (1, 0));
        assert_eq!(moved(|c| c.atomics.get()), (1, 0));
        assert_eq!(moved(|c| c.receives.get()), (0, 1));
        let (sent, received) = (moved(|c| c.packets_sent.get()), moved(|c| c.packets_received.get()));
        if cable.is_none() && !lab.are_apart(0, 1) {
            assert_eq!((sent, received), ((0, 0), (0, 0)), "no packets between guests of one worker");
        } else {
            assert_eq!((sent.0, sent.1), (received.1, received.0));
            // One ACK may acknowledge several requests.
            assert!(sent.0 >= 4 && sent.1 >= 2, "{sent:?}");
        }
        assert_eq!(moved(|c| c.errors.get() + c.dropped.get() + c.retries.get()), (0, 0));
    }
}

#[test]
fn failures_are_told_and_survive_a_reset() {
    let lab = Lab::new(2);
    let options = QpOptions { rnr_retry: 0, ..QpOptions::default() };
    let (mut a, b) = pair(&lab, 1, 4096, &options);
    let before = both(&lab);
    a.post(&Request::send(a.qp.tag(1), Data::Inline(b"nobody receives it")).signaled(true));
    a.cq.expect(a.qp.number, 1, WcStatus::RNR_RETRY_EXC_ERR);
    a.post(&Request::send(a.qp.tag(2), Data::Inline(b"flushed")).signaled(true));
    a.cq.expect(a.qp.number, 2, WcStatus::WR_FLUSH_ERR);
    let after = both(&lab);
    let moved = |of: fn(&CountersResp) -> u64| moved(&before, &after, of);
    assert_eq!(moved(|c| c.rnr_retry_exceeded.get()), (1, 0));
    assert_eq!(moved(|c| c.rnr_naks_received.get()), (1, 0));
    assert_eq!(moved(|c| c.rnr_naks_sent.get()), (0, 1));
    assert_eq!(moved(|c| c.errors.get()), (1, 0));
    assert_eq!(moved(|c| c.flushes.get()), (1, 0));
    assert_eq!(moved(|c| c.retry_exceeded.get()), (0, 0));
    drop((a, b));
    lab.guests[0].reset().unwrap();
    assert_eq!(lab.guests[0].query_counters().unwrap().rnr_retry_exceeded, after[0].rnr_retry_exceeded);
}
