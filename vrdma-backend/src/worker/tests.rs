//! Tests of the worker alone.

use super::failures::FAILURES;
use super::*;
use crate::command::{AllocPd, Command, CreateCq, CreateQp, DestroyQp, ModifyQp, RegMr};
use crate::config::{Config, Poll};
use crate::device::DeviceLimits;
use crate::device::{NewMemory, NewRegion};
use crate::memory::tests::memory;
use crate::memory::{Extent, MrMemory, Shared};
use crate::queue::Kick;
use crate::queue::VirtqueueSetup;
use crate::queue::cq::{CqRing, CqeKind::Plain};
use crossbeam_channel::Sender;
use std::io::Write;
use std::sync::atomic::Ordering;
use vmm_sys_util::epoll::EpollEvent;
use vrdma_transport::{AttrMask, CqId, PdId, QpAttr, QpInit, QpState, QpType, Receives, RecvRequest};

/// Returns a channel of one slot in its own memory, with its kick.
fn channel() -> (Channel, std::fs::File, Shared) {
    let memory = memory(&[(0, 0x1000)]);
    let words = Shared::<16>::new(&memory, Extent { gpa: 0, len: 0x1000 }).unwrap();
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
    let channel = Channel::bind(&memory, setup, &[Extent { gpa: 0x400, len: 64 }]).unwrap();
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
    // The front-end has the eventfd too. So closing it here removes it from no epoll set.
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

/// Adds a guest with CQs. Each CQ has `qps` QPs with `receives` receives each.
fn guest_with_cqs(worker: &mut Worker, n: u8, cqs: usize, qps: u64, receives: u64) -> (DeviceId, Vec<CqId>) {
    let guest = format!("name=g{n},socket=/none,mac=52:54:00:00:00:{n:02x}");
    let (id, _) = worker.add_guest(guest.parse().unwrap(), DeviceLimits::new(&Config::default()));
    let pd = worker.execute(id, AllocPd { context: OwnerId::KERNEL }.job()).unwrap();
    let pd = PdId(pd.object.get());
    let entries = 1 << 14;
    let cqs = (0..cqs).map(|_| {
        let memory = memory(&[(0, 0x100000)]);
        let ring =
            CqRing::new(&memory, &[Extent { gpa: 0, len: CqRing::bytes(Plain, entries) }], Plain, entries)
                .unwrap();
        let create_cq = CreateCq { context: OwnerId::KERNEL, vector: 0, ring };
        let cq = CqId(worker.execute(id, create_cq.job()).unwrap().cqn.get());
        let init = QpInit {
            owner: OwnerId::KERNEL,
            pd: Some(pd),
            qp_type: QpType::Rc,
            send_cq: cq,
            recv_cq: cq,
            receives: Receives::Own,
            max_send_wr: 1,
            max_recv_wr: receives as u32,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
        };
        let now = worker.now();
        for _ in 0..qps {
            let qpn = worker.execute(id, CreateQp { init }.job()).unwrap().qpn.get();
            let qpn = Qpn::new(qpn).unwrap();
            let mask = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
            let attr = QpAttr { state: QpState::Init, port: 1, ..QpAttr::default() };
            worker.execute(id, ModifyQp { qpn, mask, attr }.job()).unwrap();
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

/// Returns the QPs that use a CQ.
fn qps_of(worker: &mut Worker, id: DeviceId, cq: CqId) -> Vec<Qpn> {
    let qp = |user| match user {
        CqUser::Qp(qpn) => qpn,
        CqUser::Srq(_) => panic!("there is none"),
    };
    worker.outputs.device(id).users_of(cq).into_iter().map(qp).collect()
}

/// Returns how many QPs of these CQs are in ERR.
fn failed(worker: &mut Worker, id: DeviceId, cqs: &[CqId]) -> usize {
    let mut qps: Vec<_> = cqs.iter().flat_map(|&cq| qps_of(worker, id, cq)).collect();
    qps.sort_unstable();
    qps.dedup();
    let is_failed = |&&qpn: &&Qpn| worker.engine.query_qp(id, qpn).unwrap().state == QpState::Err;
    qps.iter().filter(is_failed).count()
}

#[test]
fn qps_of_a_cq_that_failed_go_to_err_in_slices() {
    const QPS: u64 = 500;
    const RECEIVES: u64 = 16;
    let (mut worker, _handle) = Worker::new(Poll::Always, 1500).unwrap();
    let (id, cqs) = guest_with_cqs(&mut worker, 1, 1, QPS, RECEIVES);
    worker.outputs.fail_cq(id, cqs[0]);
    let mut before = 0;
    while worker.fail_cqs() {
        let now = failed(&mut worker, id, &cqs);
        assert!(now - before <= FAILURES, "{now} {before}");
        before = now;
    }
    assert_eq!(failed(&mut worker, id, &cqs), QPS as usize);
    while worker.turn() {}
    assert_eq!(worker.engine.counters(id).flushes, QPS * RECEIVES);
}

#[test]
fn a_guest_with_many_cqs_that_fail_keeps_one_with_one_waiting_for_one_turn() {
    let (mut worker, _handle) = Worker::new(Poll::Always, 1500).unwrap();
    let (greedy, cqs) = guest_with_cqs(&mut worker, 1, 100, 10, 1);
    let (other, one) = guest_with_cqs(&mut worker, 2, 1, 5, 1);
    cqs.iter().for_each(|&cq| worker.outputs.fail_cq(greedy, cq));
    assert!(worker.fail_cqs());
    worker.outputs.fail_cq(other, one[0]);
    assert!(worker.fail_cqs());
    assert_eq!(failed(&mut worker, other, &one), 5);
    while worker.fail_cqs() {}
    assert_eq!(failed(&mut worker, greedy, &cqs), 1000);
}

#[test]
fn messages_without_end_leave_time_for_the_rest_of_a_turn() {
    let (mut worker, handle) = Worker::new(Poll::Always, 1500).unwrap();
    // Each message sends the next, as many guests do whose commands never end.
    fn again(outbox: Sender<Message>) -> Message {
        Box::new(move |_| outbox.clone().send(again(outbox)).unwrap())
    }
    handle.outbox.send(again(handle.outbox.clone())).unwrap();
    assert!(worker.run_messages() && worker.run_messages());
    assert!(!worker.inbox.is_empty() && !worker.stop);
}

#[test]
fn who_is_told_that_a_qp_is_in_err_or_gone_finds_all_that_was_flushed() {
    const RECEIVES: u64 = 8000;
    let (mut worker, _handle) = Worker::new(Poll::Always, 1500).unwrap();
    let (id, cqs) = guest_with_cqs(&mut worker, 1, 1, 1, RECEIVES);
    let qpn = qps_of(&mut worker, id, cqs[0])[0];
    let (tell, told) = crossbeam_channel::unbounded();
    let mask = AttrMask::STATE;
    let attr = QpAttr { state: QpState::Err, ..QpAttr::default() };
    let done = tell.clone();
    worker.execute_in_order(id, ModifyQp { qpn, mask, attr }.job(), move |result| {
        done.send(result.is_ok()).unwrap();
    });
    worker.execute_in_order(id, DestroyQp { qpn }.job(), move |result| {
        tell.send(result.is_ok()).unwrap();
    });
    assert!(worker.engine.is_flushing(id, qpn));
    let mut turns = 0;
    while told.is_empty() {
        assert!(worker.has_barriers());
        worker.turn();
        turns += 1;
    }
    assert_eq!((worker.engine.counters(id).flushes, told.recv()), (RECEIVES, Ok(true)));
    assert!(turns > 4, "{turns}");
    while told.is_empty() {
        worker.turn();
    }
    assert_eq!((told.recv(), worker.engine.counts(id).qps, worker.has_barriers()), (Ok(true), 0, false));
}

#[test]
fn what_a_guest_had_is_dropped_by_another_thread_when_it_is_reset() {
    let (mut worker, _handle) = Worker::new(Poll::Always, 1500).unwrap();
    let (id, _) = guest_with_cqs(&mut worker, 1, 1, 1, 1);
    let guest = memory(&[(0, 0x1000)]);
    let pd = worker.execute(id, AllocPd { context: OwnerId::KERNEL }.job()).unwrap();
    let pd = PdId(pd.object.get());
    for _ in 0..100 {
        let memory = MrMemory::new(&guest, &[Extent { gpa: 0, len: 8 }]).unwrap();
        let access = vrdma_transport::Access::LOCAL_WRITE;
        let extents = memory.extents();
        let memory = NewMemory { iova: 0, length: 8, memory, extents };
        let region = NewRegion { pd, access, memory };
        worker.execute(id, RegMr { region }.job()).unwrap();
    }
    let holders = Arc::strong_count(&guest);
    let busy = crate::memory::Busy::new();
    worker.reset_device(id);
    assert_eq!((Arc::strong_count(&guest), worker.engine.counts(id).mrs), (holders, 0));
    drop(busy);
    while Arc::strong_count(&guest) > 1 {
        std::thread::yield_now();
    }
}
