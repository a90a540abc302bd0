//! Memory that a VMM shares and has never touched.
//!
//! If the daemon touched its pages, they would be accounted to the daemon.

use vrdma_backend::config::GuestLimits;
use vrdma_tests::abi::control::{Status, access};
use vrdma_tests::pingpong::PingPong;
use vrdma_tests::side::pair;
use vrdma_tests::{Lab, LabOptions, Mr, QpOptions, wait};

const MIB: u64 = 1 << 20;

#[test]
fn registrations_that_would_make_too_many_pages_are_refused_and_others_go_on() {
    let limits = GuestLimits { pages_max: 8, all_pages_max: 14, ..GuestLimits::default() };
    let mut options = LabOptions { limits, ..LabOptions::default() };
    options.guest.memory = vec![(0x1000, 256 * MIB)];
    let mut lab = Lab::with(4, options);
    let pingpong = PingPong::start(&lab.guests[2], &lab.guests[3]);
    let (a, b) = pair(&lab, 1, 4096, &QpOptions::default());
    // The command's answer comes before the counter changes.
    let expect_refused = |wanted: [u64; 2]| {
        let refused = |guest: usize| lab.stats().device(guest, "refused_pages");
        wait::until("the count of refusals", || ([0, 1].map(refused) == wanted).then_some(()));
    };
    // Nothing touches this memory.
    let untouched = 128 * MIB;
    lab.guests.iter().for_each(|guest| assert!(guest.memory.reserve(untouched, 100 * MIB)));
    let register = |guest: usize, len: u64| {
        let pd = if guest == 0 { a.process.pd } else { b.process.pd };
        Mr::register_runs(&lab.guests[guest], pd, access::LOCAL_WRITE, 1 << 40, &[(untouched, len)])
    };
    let too_many = |answer: Result<Mr, _>| assert_eq!(answer.err(), Some(Status::NO_RESOURCES));
    // Each guest has a share of its own.
    too_many(register(0, 100 * MIB));
    expect_refused([1, 0]);
    let first = register(0, 4 * MIB).expect("there is room: what was refused took nothing");
    // Pages that the VMM has touched do not count.
    let gpa = lab.guests[0].memory.alloc(64 * MIB);
    let (iova, runs) = (1 << 41, [(gpa, 64 * MIB)]);
    Mr::register_runs(&lab.guests[0], a.process.pd, access::LOCAL_WRITE, iova, &runs).expect("it is there");
    // All guests together have a share, too.
    too_many(register(1, 100 * MIB));
    expect_refused([1, 1]);
    pingpong.expect_another_round();
    drop((first, a, b));
    // Memory that is unmapped no longer counts.
    lab.guests[0].front_end().disconnect();
    lab.expect_nothing_left(0);
    lab.guests[0] = lab.connect(0);
    let (a, b) = pair(&lab, 1, 4 * MIB, &QpOptions::default());
    a.close();
    b.close();
    pingpong.stop();
}
