//! Many guests of one daemon that come, leave and return at the same time.
//!
//! Shows: many-guests.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::pingpong::PingPong;
use vrdma_tests::side::{Side, pair_between};
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{Guest, GuestOptions, Lab, LabOptions, QpOptions, Rng, wait};

/// Guests that come and leave in pairs. Two more guests stay.
const GUESTS: u8 = 64;
/// How often each guest comes.
const ROUNDS: u32 = 4;
/// Messages in each direction while all guests are connected.
const MESSAGES: u32 = 20;
/// Bytes of each message.
const LEN: u64 = 5000;

/// Returns the options of guest `index`.
fn options(index: u8) -> GuestOptions {
    GuestOptions { memory: vec![(0x1000, 8 << 20)], host: index + 1, ..GuestOptions::default() }
}

fn connect(sockets: &[PathBuf], index: u8) -> Arc<Guest> {
    let socket = &sockets[usize::from(index)];
    let guest = Guest::connect(socket, options(index)).expect("the daemon accepts the guest");
    guest.set_gid();
    guest
}

/// Sends a message from one side to the other, and checks it.
fn message(from: &mut Side, to: &mut Side, rng: &mut Rng) {
    let data = rng.bytes(LEN as usize);
    from.mr.put(0, &data);
    to.recv(1, &[to.mr.sge(LEN, LEN as u32)]);
    let own = [from.mr.sge(0, LEN as u32)];
    from.post(&Request::send(from.qp.tag(2), Data::Sges(&own)).signaled(true));
    from.cq.expect(from.qp.number, 2, WcStatus::SUCCESS);
    to.cq.expect(to.qp.number, 1, WcStatus::SUCCESS);
    assert!(to.mr.get(LEN, LEN) == data, "another message came");
}

/// Waits until all threads have called this so far.
///
/// It is not a barrier, which would wait forever if a thread failed.
fn meet(there: &AtomicU32, all: u32) {
    there.fetch_add(1, Ordering::SeqCst);
    wait::until("the other guests", || (there.load(Ordering::SeqCst) >= all).then_some(()));
}

#[test]
fn guests_of_one_daemon_come_go_and_come_back_at_once() {
    let lab = Lab::without_guests(GUESTS + 2, LabOptions { channels: 3, ..LabOptions::default() });
    let sockets = &(0..GUESTS + 2).map(|index| lab.socket(index)).collect::<Vec<_>>();
    let (a, b) = (connect(sockets, GUESTS), connect(sockets, GUESTS + 1));
    let bystanders = PingPong::start(&a, &b);
    let (there, gone) = (&AtomicU32::new(0), &AtomicU32::new(0));
    let pairs = u32::from(GUESTS / 2);
    thread::scope(|scope| {
        for pair in 0..GUESTS / 2 {
            scope.spawn(move || {
                let mut rng = Rng::new(pair.into());
                for round in 1..=ROUNDS {
                    let (one, other) = (connect(sockets, 2 * pair), connect(sockets, 2 * pair + 1));
                    let (mut left, mut right) = pair_between(&one, &other, 2 * LEN, &QpOptions::default());
                    meet(there, round * pairs);
                    for _ in 0..MESSAGES {
                        message(&mut left, &mut right, &mut rng);
                        message(&mut right, &mut left, &mut rng);
                    }
                    // Some guests destroy their objects, others just leave.
                    if pair % 2 == 0 {
                        left.close();
                        right.close();
                    } else {
                        drop((left, right));
                    }
                    drop((one, other));
                    meet(gone, round * pairs);
                }
            });
        }
    });
    bystanders.stop();
    (0..GUESTS).for_each(|guest| lab.expect_nothing_left(guest.into()));
}
