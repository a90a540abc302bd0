//! Guests that are killed while a worker copies from a pinned region of another worker's guest.

use std::sync::mpsc::channel;
use std::time::Duration;
use vrdma_backend::hooks;
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::pingpong::PingPong;
use vrdma_tests::side::pair_between;
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{Lab, LabOptions, QpOptions, proc, wait};

/// More bytes than one pinned region has.
const LEN: u64 = 256 << 10;

/// Kills guest `victim` while the first bytes of a transfer are copied.
///
/// Guest 0 writes to guest 1, or reads from it.
fn kill_within_a_copy(reads: bool, victim: u8) {
    let mut lab = Lab::without_guests(2, LabOptions { workers: 2, ..LabOptions::default() });
    let survivor = lab.connect(1 - victim);
    let mappings = || proc::guest_mappings(std::process::id());
    let alone = mappings();
    lab.guests = vec![survivor];
    let guest = lab.connect(victim);
    lab.guests.insert(victim.into(), guest);
    let (mut a, b) = pair_between(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
    // A killed peer does not answer. Nothing has to succeed before that.
    a.qp.gives_up_soon().unwrap();
    b.qp.gives_up_soon().unwrap();
    let mut is_told = false;
    let (begins, begun) = channel();
    let (go_on, may_go_on) = channel::<()>();
    hooks::within_next_copy(move || {
        begins.send(()).expect("the test waits for it");
        wait::receive("the test to let it go on", &may_go_on);
    });
    let (remote, own) = (b.mr.remote(0), [a.mr.sge(0, LEN as u32)]);
    let tag = a.qp.tag(7);
    a.post(&match reads {
        true => Request::read(tag, remote, &own).signaled(true),
        false => Request::write(tag, remote, Data::Sges(&own)).signaled(true),
    });
    wait::receive("a copy from lent memory", &begun);
    let killed = lab.guests.remove(victim.into());
    killed.front_end().disconnect();
    drop(killed);
    let why = "its session and its worker may see to it meanwhile; how far they come nothing tells, and its memory stays in any case";
    wait::pause(Duration::from_millis(50), why);
    assert_ne!(mappings(), alone, "memory that is copied from or to is mapped");
    go_on.send(()).expect("the worker waits in the hook");
    lab.expect_nothing_left(victim.into());
    // The survivor gets a completion of what it had posted, if the victim went before all was
    // copied. Otherwise it gets an error for what it posts next.
    let mut survivor = if victim == 0 {
        drop(a);
        b
    } else {
        drop(b);
        let wc = a.cq.wait();
        assert_eq!(wc.id(), 7);
        assert!([WcStatus::SUCCESS, WcStatus::RETRY_EXC_ERR].contains(&wc.status()), "{wc:?}");
        is_told = wc.status() != WcStatus::SUCCESS;
        a
    };
    if !is_told {
        survivor.post(&Request::send(survivor.qp.tag(8), Data::EMPTY).signaled(true));
        survivor.cq.expect(survivor.qp.number, 8, WcStatus::RETRY_EXC_ERR);
    }
    survivor.close();
    wait::until("its memory is unmapped", || (mappings() == alone).then_some(()));
    let guest = lab.connect(victim);
    lab.guests.insert(victim.into(), guest);
    PingPong::start(&lab.guests[0], &lab.guests[1]).stop();
}

/// The cases run one after the other, because the hook is global to the process.
#[test]
fn guests_that_are_killed_within_a_copy_from_lent_memory_give_all_back() {
    for (reads, victim) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        kill_within_a_copy(reads, victim);
    }
}
