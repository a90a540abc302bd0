//! A guest whose stores become visible after its next loads, because its barriers do nothing.
//!
//! The guest publishes an entry and sees that the device asks for no notification. Only then does
//! the entry become visible. The device still finds the entry, by its second check.
//!
//! The device's own thread makes the late store, in a hook between its two checks. Nothing notifies
//! the device of it.
//!
//! Shows: sleep.

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vrdma_backend::hooks;
use vrdma_tests::abi::control::{QpType, ReqHeader, RespHeader};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::abi::event::Event;
use vrdma_tests::abi::zerocopy::IntoBytes;
use vrdma_tests::front_end::Queue;
use vrdma_tests::memory::PAGE;
use vrdma_tests::net::{self, Header, NetGuest, NetOptions, frame, mac};
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Arm, Data, Request, Unit};
use vrdma_tests::virtqueue::Piece;
use vrdma_tests::{Context, Guest, Lab, LabOptions, QpOptions, connect, wait};

const ROUNDS: u32 = 10;
const WORKER: &str = "worker";
/// Name of the thread that serves guest 0's control queue.
const SESSION: &str = "RDMA g0";

/// A lab that runs alone in the process, because hooks identify threads by their names.
struct Lone {
    lab: Lab,
    _alone: MutexGuard<'static, ()>,
}

impl Lone {
    fn new(guests: u8, options: LabOptions) -> Lone {
        static ONE: Mutex<()> = Mutex::new(());
        let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        // A single worker's thread has the name that the hooks use.
        let options = LabOptions { poll_us: 0, workers: 1, ..options };
        Lone { lab: Lab::with(guests, options), _alone: alone }
    }

    fn with_event_idx(guests: u8, event_idx: bool) -> Lone {
        let mut options = LabOptions::default();
        options.guest.event_idx = event_idx;
        Lone::new(guests, options)
    }
}

impl Deref for Lone {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

/// Executes `store` between two checks of that thread, as soon as `is_due` returns true.
fn store_late(thread: &str, is_due: impl Fn() -> bool + Send + 'static, store: impl Fn() + Send + 'static) {
    hooks::before_second_look(thread, move || {
        let due = is_due();
        if due {
            store();
        }
        due
    });
}

/// Has the driver ask for an interrupt too late: after the device has used an entry.
///
/// `act` makes the device use an entry of that virtqueue.
fn expect_late_interrupt(thread: &str, queue: &Queue, event_idx: bool, act: impl FnOnce()) {
    const NO_INTERRUPT: u16 = 1;
    let (ring, used) = (queue.ring.clone(), queue.ring.used_idx());
    // Before that, the driver asks for no interrupt.
    ring.set_used_event(used.wrapping_add(1 << 14));
    ring.set_avail_flags(if event_idx { 0 } else { NO_INTERRUPT });
    let theirs = ring.clone();
    let (ask, asked) = ask_late(queue);
    store_late(
        thread,
        move || theirs.used_idx() != used,
        move || {
            ask();
            ring.set_avail_flags(0);
        },
    );
    act();
    wait::receive("the entry to be used", &asked);
    assert!(vrdma_tests::readable(&*queue.call, wait::PATIENCE), "no interrupt came");
}

/// Returns a function that asks for an interrupt at the next used entry, and reports that it did.
///
/// The device's own thread calls it. It first consumes earlier interrupts, which may have been in
/// flight.
fn ask_late(queue: &Queue) -> (impl Fn() + Send + 'static, Receiver<()>) {
    let (ring, call, used) = (queue.ring.clone(), queue.call.clone(), queue.ring.used_idx());
    let (tell, told) = channel();
    let ask = move || {
        while call.read().is_ok() {}
        ring.set_used_event(used);
        // If the test has failed meanwhile, nobody listens.
        let _ = tell.send(());
    };
    (ask, told)
}

/// Writes a request into a channel without publishing the index, and returns the new index.
fn prepare(side: &Side, index: u16, request: &Request<'_>) -> u16 {
    let channel = &side.process.channel;
    let mut unit = [Unit::default()];
    assert_eq!(request.encode(&mut unit).unwrap(), 1);
    let slot = index & (channel.ring.size - 1);
    let bytes = unit[0].0.map(u64::to_ne_bytes);
    channel.ring.memory.write(channel.slots + 64 * u64::from(slot), bytes.as_flattened());
    channel.ring.set_avail_entry(index, slot);
    index.wrapping_add(1)
}

/// Posts two requests, the second published after the worker's check that follows the first.
fn requests_are_seen(a: &mut Side, b: &Side) {
    let (tag, remote) = (a.qp.tag(1), b.mr.remote(0));
    let request = Request::write(tag, remote, Data::Inline(b"x")).signaled(true);
    let (ring, kick) = {
        let channel = &a.process.channel;
        (channel.ring.clone(), a.guest().queues[usize::from(channel.queue)].kick.clone())
    };
    let mut next = 0;
    for _ in 0..ROUNDS {
        let first = prepare(a, next, &request);
        next = prepare(a, first, &request);
        let (now, later) = (ring.clone(), ring.clone());
        store_late(WORKER, move || now.used_idx() == first, move || later.set_avail_idx(next));
        ring.set_avail_idx(first);
        kick.write(1).unwrap();
        a.cq.expect_success();
        a.cq.expect_success();
    }
}

#[test]
fn a_request_is_seen_that_was_published_without_a_kick_as_the_worker_fell_asleep() {
    for event_idx in [true, false] {
        let lab = Lone::with_event_idx(2, event_idx);
        let (mut a, b) = pair(&lab, 1, 4096, &QpOptions::default());
        requests_are_seen(&mut a, &b);
    }
}

#[test]
fn a_request_of_the_kernel_is_seen_that_was_published_without_a_kick() {
    let lab = Lone::new(2, LabOptions::default());
    let process = Context::kernel(&lab.guests[0]).unwrap();
    let (cq, mr) = (process.cq(256), process.mr(4096));
    let qp = process.qp(&cq, &cq, &QpOptions::default());
    let mut a = Side { process, cq, mr, qp };
    let b = Side::new(&lab.guests[1], 4096, &QpOptions::default());
    connect(&a.qp, &b.qp);
    requests_are_seen(&mut a, &b);
}

/// Arms the receiver's CQ after the device has checked its arm words.
///
/// The driver has not seen the CQE by then.
fn events_come_for_late_arms(options: LabOptions, arm: Arm) {
    /// Offset of the CQE's byte with the phase bit, which changes with each lap.
    const PHASE: u64 = 31;
    let lab = Lone::new(2, options);
    let (mut a, mut b) = pair(&lab, 1, 4096, &QpOptions::of(QpType::UC));
    let guest = b.guest().clone();
    let word = b.cq.record() + if arm == Arm::Next { 0 } else { 4 };
    for round in 0..ROUNDS {
        let (theirs, phase) = (guest.memory.clone(), b.cq.gpa + 32 * u64::from(round) + PHASE);
        let memory = guest.memory.clone();
        store_late(
            WORKER,
            move || theirs.bytes(phase, 1) == [1],
            move || {
                memory.word32(word).fetch_add(1, Ordering::SeqCst);
            },
        );
        b.recv_any(round);
        a.post(&Request::send(a.qp.tag(round), Data::EMPTY).solicited(true));
        guest.comp_events(0).recv();
        b.cq.expect(b.qp.number, round, WcStatus::SUCCESS);
    }
}

#[test]
fn an_event_comes_though_the_cq_was_armed_a_little_late() {
    for arm in [Arm::Next, Arm::Solicited] {
        events_come_for_late_arms(LabOptions::default(), arm);
    }
}

#[test]
fn a_worker_that_never_sleeps_looks_for_late_arms_too() {
    events_come_for_late_arms(LabOptions { busy_poll: true, ..LabOptions::default() }, Arm::Next);
}

/// Writes a command that no device knows to a page of its own.
fn command(guest: &Guest) -> [Piece; 2] {
    let gpa = guest.memory.alloc(PAGE);
    let header =
        ReqHeader { opcode: u16::MAX.into(), reserved: 0.into(), num_runs: 0.into(), cookie: 1.into() };
    guest.memory.write(gpa, header.as_bytes());
    let request = Piece { gpa, len: ReqHeader::SIZE as u32, writable: false };
    [request, Piece { gpa: gpa + 1024, len: RespHeader::SIZE as u32, writable: true }]
}

#[test]
fn a_command_is_seen_that_was_published_without_a_kick() {
    for event_idx in [true, false] {
        let lab = Lone::with_event_idx(1, event_idx);
        let guest = &lab.guests[0];
        let pieces = command(guest);
        for _ in 0..ROUNDS {
            let queue = &mut guest.control().queue;
            let head = queue.prepare(&pieces).unwrap();
            let (ring, index) = (queue.ring().clone(), queue.next_avail());
            store_late(SESSION, || true, move || ring.set_avail_idx(index));
            // At this time the kick announces nothing.
            queue.kick();
            assert_eq!(queue.wait_used(wait::PATIENCE).expect("a reply").0, head);
        }
    }
}

#[test]
fn an_interrupt_comes_for_a_reply_though_the_driver_asked_late() {
    let lab = Lone::new(1, LabOptions::default());
    let guest = &lab.guests[0];
    let pieces = command(guest);
    for _ in 0..ROUNDS {
        let queue = &mut guest.control().queue;
        expect_late_interrupt(SESSION, &guest.queues[0], true, || {
            queue.add(&pieces).expect("room");
        });
        assert!(queue.take_used().is_some());
    }
}

/// The command becomes visible late, and so does the request for an interrupt after it was
/// executed.
#[test]
fn an_interrupt_comes_for_the_reply_to_a_late_command_though_the_driver_asked_late() {
    let lab = Lone::new(1, LabOptions::default());
    let guest = &lab.guests[0];
    let pieces = command(guest);
    for _ in 0..ROUNDS {
        let queue = &mut guest.control().queue;
        queue.prepare(&pieces).unwrap();
        let (ring, index) = (queue.ring().clone(), queue.next_avail());
        let used = ring.used_idx();
        ring.set_used_event(used.wrapping_add(1 << 14));
        let (ask, asked) = ask_late(&guest.queues[0]);
        hooks::before_second_look(SESSION, move || {
            ring.set_avail_idx(index);
            let served = ring.used_idx() != used;
            if served {
                ask();
            }
            served
        });
        queue.kick();
        wait::receive("the command to be served", &asked);
        assert!(vrdma_tests::readable(&*guest.queues[0].call, wait::PATIENCE), "no interrupt came");
        assert!(queue.take_used().is_some());
    }
}

/// Sends a message, so that the receiver's CQ raises an event.
fn raise_event(a: &mut Side, b: &mut Side, id: u32) {
    b.recv_any(id);
    assert_eq!(b.cq.arm(Arm::Next), None);
    a.post(&Request::send(a.qp.tag(id), Data::EMPTY).signaled(true));
    a.cq.expect_success();
    b.cq.expect(b.qp.number, id, WcStatus::SUCCESS);
}

#[test]
fn an_event_finds_a_buffer_that_was_posted_without_a_kick() {
    let mut options = LabOptions::default();
    options.guest.event_size = 1;
    let lab = Lone::new(2, options);
    let (mut a, mut b) = pair(&lab, 1, 4096, &QpOptions::default());
    let guest = b.guest().clone();
    let gpa = guest.memory.alloc(PAGE);
    let mut events = guest.comp_events(0);
    raise_event(&mut a, &mut b, 0);
    events.queue().wait_used(wait::PATIENCE).expect("the only buffer");
    for id in 1..ROUNDS {
        let queue = events.queue();
        let head = queue.prepare(&[Piece { gpa, len: Event::SIZE as u32, writable: true }]).unwrap();
        let (ring, index) = (queue.ring().clone(), queue.next_avail());
        let sleeps = Arc::new(Mutex::new(0));
        store_late(
            WORKER,
            move || {
                // The event came earlier and found no buffer. The store is due when the worker
                // falls asleep after that.
                let mut sleeps = sleeps.lock().unwrap();
                *sleeps += 1;
                *sleeps > 3
            },
            move || ring.set_avail_idx(index),
        );
        raise_event(&mut a, &mut b, id);
        assert_eq!(events.queue().wait_used(wait::PATIENCE).expect("the event").0, head);
    }
}

#[test]
fn an_interrupt_comes_for_an_event_though_the_driver_asked_late() {
    let lab = Lone::new(2, LabOptions::default());
    let (mut a, mut b) = pair(&lab, 1, 4096, &QpOptions::default());
    let guest = b.guest().clone();
    let queue = &guest.queues[2];
    for id in 0..ROUNDS {
        expect_late_interrupt(WORKER, queue, true, || raise_event(&mut a, &mut b, id));
        guest.comp_events(0).recv();
    }
}

/// Connects two Ethernet functions.
fn ethernet(event_idx: bool) -> (NetGuest, NetGuest, Lone) {
    let lab = Lone::new(2, LabOptions::default());
    let options = NetOptions { event_idx, ..NetOptions::default() };
    let connect = |index| NetGuest::connect(&lab.net_socket(index), options.clone()).unwrap();
    (connect(0), connect(1), lab)
}

/// Returns a frame from the first function to the second.
fn a_frame() -> Vec<u8> {
    frame(mac(2), mac(1), 0x88b5, b"late")
}

#[test]
fn a_frame_is_seen_that_was_published_without_a_kick() {
    for event_idx in [true, false] {
        let (mut a, mut b, _lab) = ethernet(event_idx);
        let bytes = [&Header::default().to_bytes()[..], &a_frame()].concat();
        let gpa = a.memory.alloc(PAGE);
        a.memory.write(gpa, &bytes);
        for _ in 0..ROUNDS {
            let queue = a.transmit();
            queue.prepare(&[Piece { gpa, len: bytes.len() as u32, writable: false }]).unwrap();
            let (ring, index) = (queue.ring().clone(), queue.next_avail());
            store_late(WORKER, || true, move || ring.set_avail_idx(index));
            // At this time the kick announces nothing.
            queue.kick();
            assert!(b.recv().1 == a_frame());
            a.transmit().wait_used(wait::PATIENCE).expect("it was taken");
        }
    }
}

#[test]
fn interrupts_come_for_frames_though_the_drivers_asked_late() {
    for (index, event_idx) in
        [(net::TRANSMIT, true), (net::TRANSMIT, false), (net::RECEIVE, true), (net::RECEIVE, false)]
    {
        let (mut a, mut b, _lab) = ethernet(event_idx);
        for _ in 0..ROUNDS {
            let of = if index == net::TRANSMIT { &a } else { &b };
            let [receive, transmit] = &of.queues;
            let queue = if index == net::TRANSMIT { transmit } else { receive }.clone();
            let send = || assert!(a.try_send(Header::default(), &a_frame()));
            expect_late_interrupt(WORKER, &queue, event_idx, send);
            assert!(b.recv().1 == a_frame());
        }
    }
}
