//! The worker alone.

use super::failures::FAILURES;
use super::*;
use crate::config::Config;
use crate::device::DeviceLimits;
use crate::memory::tests::memory;
use crate::memory::{Run, Shared};
use crate::queue::Kick;
use crate::queue::VirtqueueSetup;
use crate::queue::cq::CqRing;
use std::io::Write;
use std::sync::atomic::Ordering;
use vrdma_transport::{AttrMask, CqId, PdId, QpAttr, QpInit, QpState, QpType, RecvRequest};

/// A channel of one slot, in memory that is its own, and its kick.
fn channel() -> (Channel, std::fs::File, Shared) {
    let memory = memory(&[(0, 0x1000)]);
    let words = Shared::new(&memory, Run { gpa: 0, len: 0x1000 }, 8).unwrap();
    words.store64(0x000, 0x400, Ordering::Relaxed);
    words.store64(0x008, 64, Ordering::Relaxed);
    let eventfd = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
    let eventfd = std::fs::File::from(eventfd);
    let kick = Kick::new(eventfd.try_clone().unwrap(), &Arc::default()).unwrap();
    let setup = VirtqueueSetup {
        index: 4,
        size: 1,
        desc: 0,
        avail: 0x100,
        used: 0x200,
        event_idx: true,
        kick: Some(Arc::new(kick)),
        call: None,
    };
    let channel = Channel::bind(&memory, setup, &[Run { gpa: 0x400, len: 64 }]).unwrap();
    (channel, eventfd, words)
}

#[test]
fn a_broken_channel_is_watched_until_it_goes_and_no_longer() {
    let (mut worker, _handle) = Worker::new(Poll::Always, 1500).unwrap();
    let (channel, mut eventfd, words) = channel();
    worker.add_channel(DeviceId(0), OwnerId(0), channel);
    let mut kicked = |worker: &Worker| {
        eventfd.write_all(&1u64.to_ne_bytes()).unwrap();
        worker.epoll.wait(0, &mut [EpollEvent::default(); 2]).unwrap() != 0
    };
    assert!(kicked(&worker));
    words.store16(0x102, 7, Ordering::Relaxed);
    assert!(worker.channels[0].channel.refresh().is_err());
    // The front-end has the eventfd too, so that closing it here takes it from no epoll set.
    worker.remove_channel(DeviceId(0), 4).unwrap();
    assert!(!kicked(&worker));
}

#[test]
fn a_channel_whose_entries_are_taken_back_holds_nobody_up() {
    let (mut channel, _eventfd, words) = channel();
    words.store16(0x102, 1, Ordering::Relaxed);
    let mark = channel.reach().unwrap();
    assert!(!channel.has_taken(mark));
    words.store16(0x102, 0, Ordering::Relaxed);
    assert!(channel.refresh().is_err() && channel.has_taken(mark));
}

/// What an object is known by.
fn object(reply: crate::device::Result<Reply>) -> u32 {
    match reply {
        Ok(Reply::Object(number)) => number,
        other => panic!("{other:?}"),
    }
}

/// A guest with CQs, and so many QPs of each, which have so many receives.
fn guest_with_cqs(worker: &mut Worker, n: u8, cqs: usize, qps: u64, receives: u64) -> (DeviceId, Vec<CqId>) {
    let guest = format!("name=g{n},socket=/none,mac=52:54:00:00:00:{n:02x}");
    let (id, _) = worker.add_guest(guest.parse().unwrap(), DeviceLimits::new(&Config::default()));
    let pd = PdId(object(worker.execute(id, Command::AllocPd { context: 0 })));
    let entries = 1 << 14;
    let cqs = (0..cqs).map(|_| {
        let memory = memory(&[(0, 0x100000)]);
        let ring = CqRing::new(&memory, &[Run { gpa: 0, len: CqRing::bytes(entries) }], entries).unwrap();
        let create_cq = Command::CreateCq { context: 0, vector: 0, ring: Box::new(ring) };
        let cq = CqId(object(worker.execute(id, create_cq)));
        let init = QpInit {
            owner: OwnerId::KERNEL,
            pd,
            qp_type: QpType::Rc,
            send_cq: cq,
            recv_cq: cq,
            max_send_wr: 1,
            max_recv_wr: receives as u32,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
        };
        let now = worker.now();
        for _ in 0..qps {
            let qpn = Qpn::new(object(worker.execute(id, Command::CreateQp { init }))).unwrap();
            let mask = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
            let attr = Box::new(QpAttr { state: QpState::Init, port: 1, ..QpAttr::default() });
            worker.execute(id, Command::ModifyQp { qpn, mask, attr }).unwrap();
            for _ in 0..receives {
                let request = RecvRequest { id: 0, sges: &[] };
                let Worker { engine, outputs, .. } = &mut *worker;
                engine.post_recv(now, id, OwnerId::KERNEL, qpn, request, outputs).unwrap();
            }
        }
        cq
    });
    let cqs = cqs.collect();
    (id, cqs)
}

#[test]
fn qps_of_a_cq_that_failed_are_flushed_in_slices() {
    const QPS: u64 = 500;
    const RECEIVES: u64 = 16;
    let (mut worker, _handle) = Worker::new(Poll::Always, 1500).unwrap();
    let (id, cqs) = guest_with_cqs(&mut worker, 1, 1, QPS, RECEIVES);
    worker.outputs.fail_cq(id, cqs[0]);
    let mut before = 0;
    loop {
        let more = worker.fail_cqs();
        let flushed = worker.engine.counters(id).flushes;
        assert!(flushed - before <= FAILURES + RECEIVES, "{flushed} {before}");
        before = flushed;
        if !more {
            break;
        }
    }
    assert_eq!(before, QPS * RECEIVES);
}

#[test]
fn a_guest_with_many_cqs_that_fail_keeps_one_with_one_waiting_for_one_turn() {
    const RECEIVES: u64 = 16;
    let (mut worker, _handle) = Worker::new(Poll::Always, 1500).unwrap();
    let (greedy, cqs) = guest_with_cqs(&mut worker, 1, 100, 10, RECEIVES);
    let (other, one) = guest_with_cqs(&mut worker, 2, 1, 5, RECEIVES);
    cqs.into_iter().for_each(|cq| worker.outputs.fail_cq(greedy, cq));
    assert!(worker.fail_cqs());
    worker.outputs.fail_cq(other, one[0]);
    assert!(worker.fail_cqs());
    assert_eq!(worker.engine.counters(other).flushes, 5 * RECEIVES);
    while worker.fail_cqs() {}
    assert_eq!(worker.engine.counters(greedy).flushes, 1000 * RECEIVES);
}

#[test]
fn messages_without_end_leave_time_for_the_rest_of_a_turn() {
    let (mut worker, handle) = Worker::new(Poll::Always, 1500).unwrap();
    // Each asks for the next, as many guests do whose commands never end.
    fn again(outbox: Sender<Message>) -> Message {
        Box::new(move |_| outbox.clone().send(again(outbox)).unwrap())
    }
    handle.outbox.send(again(handle.outbox.clone())).unwrap();
    assert!(worker.run_messages() && worker.run_messages());
    assert!(!worker.inbox.is_empty() && !worker.stop);
}
