//! A receive that was posted before a send is available to that send.
//!
//! This holds for any channels, processes, guests and hosts that the two come through.
//!
//! Shows: order.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use vrdma_tests::abi::control::{QpState, QpType};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::ah::{AhTable, entry};
use vrdma_tests::side::Side;
use vrdma_tests::verbs::{Data, Request, UdTarget};
use vrdma_tests::{CableOptions, Lab, LabOptions, QpOptions, connect, wait};

/// Rounds on one host. Between two hosts there are fewer, because four threads then share the
/// processors.
const ROUNDS: u32 = 30_000;
/// Rounds of the long tests.
const MANY: u32 = 100_000;
/// Index of the receiver's address handle.
const TO_RECEIVER: u32 = 3;

/// The posters of the receives and of the sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    /// One thread, through two contexts of one process.
    Contexts,
    /// Two threads, through two contexts of a guest. One signals the other.
    Processes,
    /// Two threads, through contexts of two guests on one host.
    Guests,
    /// Two threads, through contexts of two guests on two hosts.
    Hosts,
}

/// The poster of receives. With each it posts some requests that keep the worker busy in other
/// channels.
struct Receiver {
    side: Side,
    busy: Vec<Side>,
}

struct Sender {
    side: Side,
    to: UdTarget,
}

impl Receiver {
    fn post(&mut self, round: u32) {
        for side in &mut self.busy {
            let remote = side.mr.remote(0);
            for _ in 0..2 {
                side.post(&Request::write(side.qp.tag(0), remote, Data::Inline(&[1; 8])));
            }
        }
        self.side.recv_any(round);
    }

    fn expect(&mut self, round: u32) {
        self.side.cq.expect(self.side.qp.number, round, WcStatus::SUCCESS);
    }
}

impl Sender {
    fn post(&mut self, round: u32) {
        let (tag, data) = (self.side.qp.tag(round), Data::Inline(b"litmus"));
        let request = match self.side.qp.options.qp_type {
            QpType::UD => Request::ud_send(tag, self.to, data),
            _ => Request::send(tag, data),
        };
        self.side.post(&request.signaled(true));
    }

    fn expect(&mut self, round: u32) {
        self.side.cq.expect(self.side.qp.number, round, WcStatus::SUCCESS);
    }
}

fn litmus(service: QpType, who: Who) {
    // Between hosts a round takes many times as long.
    rounds_of(service, who, if who == Who::Hosts { ROUNDS / 5 } else { ROUNDS });
}

fn rounds_of(service: QpType, who: Who, rounds: u32) {
    let cable = (who == Who::Hosts).then(CableOptions::default);
    let lab = Lab::with(2, LabOptions { cable, ..LabOptions::default() });
    let options = QpOptions { rnr_retry: 0, ..QpOptions::of(service) };
    let there = &lab.guests[0];
    let here = &lab.guests[usize::from(matches!(who, Who::Guests | Who::Hosts))];
    // The worker polls channels in the order in which they were bound.
    let mut receiver = Receiver {
        side: Side::new(there, 4096, &options),
        busy: (0..4).map(|_| Side::looped(there, 4096)).collect(),
    };
    let side = Side::new(here, 4096, &options);
    connect(&side.qp, &receiver.side.qp);
    let handles = AhTable::new(here, 64).unwrap();
    handles.put(TO_RECEIVER, &entry(side.process.pd, there.gid()));
    let to = UdTarget { ah: TO_RECEIVER, qpn: receiver.side.qp.number, qkey: options.qkey };
    let mut sender = Sender { side, to };
    if who == Who::Contexts {
        for round in 0..rounds {
            receiver.post(round);
            sender.post(round);
            sender.expect(round);
            receiver.expect(round);
        }
    } else {
        let told = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..rounds {
                    wait::until("a word", || (told.load(Ordering::Acquire) > round).then_some(()));
                    sender.post(round);
                    sender.expect(round);
                }
            });
            for round in 0..rounds {
                receiver.post(round);
                told.store(round + 1, Ordering::Release);
                receiver.expect(round);
            }
        });
    }
    for counter in ["drop_no_receive", "drop_held", "rnr_naks_sent"] {
        assert_eq!(lab.transport(0, counter), 0, "{counter}");
    }
}

#[test]
fn reliable_between_contexts() {
    litmus(QpType::RC, Who::Contexts);
}

#[test]
fn reliable_between_processes() {
    litmus(QpType::RC, Who::Processes);
}

#[test]
fn reliable_between_guests() {
    litmus(QpType::RC, Who::Guests);
}

#[test]
fn reliable_between_hosts() {
    litmus(QpType::RC, Who::Hosts);
}

#[test]
fn unreliable_between_contexts() {
    litmus(QpType::UC, Who::Contexts);
}

#[test]
fn datagrams_between_contexts() {
    litmus(QpType::UD, Who::Contexts);
}

#[test]
fn datagrams_between_processes() {
    litmus(QpType::UD, Who::Processes);
}

#[test]
fn datagrams_between_guests() {
    litmus(QpType::UD, Who::Guests);
}

#[test]
fn datagrams_between_hosts() {
    litmus(QpType::UD, Who::Hosts);
}

#[test]
#[ignore = "long"]
fn each_on_one_host_100000_times() {
    for who in [Who::Contexts, Who::Processes, Who::Guests] {
        rounds_of(QpType::RC, who, MANY);
        rounds_of(QpType::UD, who, MANY);
    }
    rounds_of(QpType::UC, Who::Contexts, MANY);
}

#[test]
#[ignore = "long"]
fn reliable_between_hosts_100000_times() {
    rounds_of(QpType::RC, Who::Hosts, MANY);
}

#[test]
#[ignore = "long"]
fn datagrams_between_hosts_100000_times() {
    rounds_of(QpType::UD, Who::Hosts, MANY);
}

/// Fills its channel without end.
fn fill(mut side: Side, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let remote = side.mr.remote(0);
        side.post(&Request::write(side.qp.tag(0), remote, Data::Inline(&[1; 8])));
    }
}

#[test]
fn a_process_that_never_stops_posting_puts_no_end_off() {
    let lab = Lab::new(2);
    let over = AtomicBool::new(false);
    // The process' own QP is among the ones affected. It has no receive.
    let hostile = Side::looped(&lab.guests[0], 4096);
    let options = QpOptions { rnr_retry: 1, ..QpOptions::default() };
    let idle = hostile.process.qp(&hostile.cq, &hostile.cq, &options);
    let mut sender = Side::new(&lab.guests[1], 4096, &options);
    connect(&sender.qp, &idle);
    let other = idle.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| fill(hostile, &over));
        sender.post(&Request::send(sender.qp.tag(1), Data::Inline(b"hi")).signaled(true));
        let wc = sender.cq.wait_within(wait::PATIENCE);
        // A command for a QP of that process completes, too.
        let changed = other.to_state(QpState::ERR);
        over.store(true, Ordering::Relaxed);
        assert_eq!(wc.map(|wc| wc.status()), Some(WcStatus::RNR_RETRY_EXC_ERR));
        assert_eq!(changed, Ok(()));
    });
}
