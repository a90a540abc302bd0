//! Random accidents of guests on two hosts with three workers each.
//!
//! Guests connect, pause, get their memory mapped anew, and leave at random. The cable between the
//! hosts is pulled again and again. All data is checked, and in the end everything is freed.
//!
//! Shows: many-guests.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::side::{Side, pair_between};
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::wait::Spell;
use vrdma_tests::{CableOptions, Guest, GuestOptions, Lab, LabOptions, QpOptions, Rng, proc, wait};

/// Pairs of connected guests.
///
/// Guests with even numbers are on the local host, on workers 0, 1, 2, 0, ... . Guests with odd
/// numbers are on the remote host, likewise.
const PAIRS: [(u8, u8); 6] = [(0, 6), (2, 4), (1, 3), (5, 7), (8, 9), (10, 11)];
/// Bytes of the longest message.
const LEN: u64 = 20_000;

/// Returns how long the test runs: 8 s, or `VRDMA_SECONDS` seconds.
fn duration() -> Duration {
    let given = std::env::var("VRDMA_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(given.unwrap_or(8.0))
}

fn connect(sockets: &[PathBuf], index: u8) -> Arc<Guest> {
    let memory = vec![(0x1000, 4 << 20), (1 << 32, 4 << 20)];
    let options = GuestOptions { memory, host: index + 1, ..GuestOptions::default() };
    let guest = Guest::connect(&sockets[usize::from(index)], options).expect("the daemon accepts the guest");
    guest.set_gid();
    guest
}

/// Transfers a SEND and a WRITE from one side to the other.
fn messages(from: &mut Side, to: &mut Side, rng: &mut Rng) {
    let len = 1 + rng.below(LEN);
    let data = rng.bytes(len as usize);
    from.mr.put(0, &data);
    let own = [from.mr.sge(0, len as u32)];
    to.recv(1, &[to.mr.sge(LEN, LEN as u32)]);
    from.post(&Request::send(from.qp.tag(2), Data::Sges(&own)).signaled(true));
    from.cq.expect(from.qp.number, 2, WcStatus::SUCCESS);
    to.cq.expect(to.qp.number, 1, WcStatus::SUCCESS);
    from.post(&Request::write(from.qp.tag(3), to.mr.remote(2 * LEN), Data::Sges(&own)).signaled(true));
    from.cq.expect(from.qp.number, 3, WcStatus::SUCCESS);
    assert!([LEN, 2 * LEN].iter().all(|at| to.mr.get(*at, len) == data), "other bytes came");
}

/// Pauses and resumes a guest, or maps its memory anew.
fn disturb(guest: &Guest, rng: &mut Rng) {
    if rng.one_in(2) {
        let bases = guest.pause().expect("a pause");
        guest.resume(&bases).expect("the guest goes on");
    } else {
        let regions = guest.memory.regions().to_vec();
        guest.front_end().set_memory(&guest.memory, &regions).expect("the memory it had");
    }
}

/// Connects two guests over and over until the time is up. Returns how often.
fn live(sockets: &[PathBuf], (one, other): (u8, u8), spell: Spell) -> u32 {
    let mut rng = Rng::new(u64::from(one) << 8 | u64::from(other));
    // What is lost while the cable is pulled is retransmitted after a second. Only a cable that
    // stays pulled would end a connection.
    let options = QpOptions { timeout: 18, retry_cnt: 7, ..QpOptions::default() };
    let mut lives = 0;
    while spell.lasts_until(lives > 1) {
        let guests = [connect(sockets, one), connect(sockets, other)];
        let (mut a, mut b) = pair_between(&guests[0], &guests[1], 3 * LEN, &options);
        for _ in 0..1 + rng.below(20) {
            messages(&mut a, &mut b, &mut rng);
            messages(&mut b, &mut a, &mut rng);
            if rng.one_in(4) {
                let guest = rng.pick(&guests[..]).clone();
                disturb(&guest, &mut rng);
            }
        }
        match rng.below(3) {
            0 => {
                a.close();
                b.close();
            }
            way => {
                // End in the middle of transfers, as if killed.
                let own = [a.mr.sge(0, LEN as u32)];
                for id in 0..8 {
                    a.post(&Request::write(a.qp.tag(id), b.mr.remote(LEN), Data::Sges(&own)));
                }
                if way == 1 {
                    guests[rng.below(2) as usize].front_end().disconnect();
                }
                drop((a, b));
            }
        }
        lives += 1;
    }
    lives
}

fn chaos(time: Duration) {
    let cable = Some(CableOptions::default());
    let guests = 2 * PAIRS.len() as u8;
    let options = LabOptions { channels: 3, workers: 3, cable, ..LabOptions::default() };
    let lab = Lab::without_guests(guests, options);
    let sockets: &Vec<_> = &(0..guests).map(|index| lab.socket(index)).collect();
    // Some memory and descriptors are allocated with the first guest, and stay.
    drop(connect(sockets, 0));
    lab_is_empty(&lab);
    let pid = std::process::id();
    let open = || (proc::descriptors(pid), proc::guest_mappings(pid));
    let before = open();
    let (spell, cable) = (Spell::of(time), lab.cable.clone().expect("a cable"));
    thread::scope(|scope| {
        let lives = PAIRS.map(|pair| scope.spawn(move || live(sockets, pair, spell)));
        let mut rng = Rng::new(1);
        while spell.lasts() {
            for up in [false, true] {
                cable.plug(up);
                let time = Duration::from_millis(20 + rng.below(if up { 400 } else { 60 }));
                wait::pause(time, "how long the cable is so; it ends plugged in");
            }
        }
        let lives = lives.map(|lives| lives.join().expect("all came as it was sent"));
        println!("lives of each pair: {lives:?}");
        assert!(lives.iter().sum::<u32>() > PAIRS.len() as u32, "nobody comes back: {lives:?}");
    });
    lab_is_empty(&lab);
    let same = wait::within(wait::PATIENCE, || (open().0 <= before.0 && open().1 <= before.1).then_some(()));
    assert!(same.is_some(), "{:?} descriptors and mappings, not {before:?}", open());
}

/// Waits until no guest has any object left.
fn lab_is_empty(lab: &Lab) {
    for stats in [Lab::stats, Lab::remote_stats] {
        let is_empty = || (0..PAIRS.len()).all(|guest| stats(lab).all_objects(guest).is_empty());
        wait::until("all to be given back", || is_empty().then_some(()));
    }
}

#[test]
fn guests_of_three_workers_have_accidents_and_all_is_given_back() {
    chaos(duration());
}

#[test]
#[ignore = "long"]
fn and_that_for_half_an_hour() {
    chaos(Duration::from_secs(30 * 60));
}
