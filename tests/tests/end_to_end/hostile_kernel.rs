//! A guest kernel that breaks the rules of the control queue, of binding channels and of limits.
//!
//! It breaks one rule at a time.
//!
//! Shows: hostile-guest.

use std::time::Duration;
use vrdma_backend::config::GuestLimits;
use vrdma_tests::abi::control::*;
use vrdma_tests::abi::zerocopy::IntoBytes;
use vrdma_tests::control::run;
use vrdma_tests::pingpong::{Canary, PingPong};
use vrdma_tests::ring::{INDIRECT, NEXT, Ring, WRITE};
use vrdma_tests::wait::{self, PATIENCE};
use vrdma_tests::{Context, Cq, Guest, Lab, LabOptions, Mr, Qp, QpOptions};

/// First guest-physical address of a gap in the guest's memory.
const HOLE: u64 = (32 << 20) + 0x1000;

/// Runs `test` with guest 0 as the culprit, while two other guests play ping-pong.
fn besieged(test: impl FnOnce(&Lab, &Guest)) {
    let lab = Lab::new(3);
    let canaries = [1, 2].map(|i| Canary::new(&lab.guests[i].memory, i as u64));
    let pingpong = PingPong::start(&lab.guests[1], &lab.guests[2]);
    test(&lab, &lab.guests[0]);
    pingpong.stop();
    canaries.iter().for_each(Canary::check);
}

#[test]
fn a_descriptor_table_that_is_not_the_window_is_refused() {
    besieged(|lab, guest| {
        let context = guest.alloc_context().unwrap();
        let queue = guest.first_channel() + 1;
        let ring = &guest.queues[usize::from(queue)].ring;
        let size = u64::from(ring.size);
        let window = guest.memory.alloc(64 * size);
        type Spoil = fn(&Ring, u64);
        let ways: [(&str, Spoil); 16] = [
            ("before the window", |r, w| r.set_desc(3, w - 64, 64, 0, 0)),
            ("behind the window", |r, w| r.set_desc(3, w + 64 * 256, 64, 0, 0)),
            ("half outside", |r, w| r.set_desc(3, w + 64 * 256 - 32, 64, 0, 0)),
            ("the descriptor table itself", |r, _| r.set_desc(3, r.desc, 64, 0, 0)),
            ("in a hole", |r, _| r.set_desc(3, HOLE, 64, 0, 0)),
            ("beyond all memory", |r, _| r.set_desc(3, u64::MAX - 63, 64, 0, 0)),
            ("wraps", |r, _| r.set_desc(3, u64::MAX - 31, 64, 0, 0)),
            ("too long", |r, w| r.set_desc(3, w, 65, 0, 0)),
            ("too short", |r, w| r.set_desc(3, w, 63, 0, 0)),
            ("longer than 32 bits show", |r, w| r.set_desc(3, w, u32::MAX, 0, 0)),
            ("chained", |r, w| r.set_desc(3, w, 64, NEXT, 4)),
            ("chained to itself", |r, w| r.set_desc(3, w, 64, NEXT, 3)),
            ("writable", |r, w| r.set_desc(3, w, 64, WRITE, 0)),
            ("indirect", |r, w| r.set_desc(3, w, 64, INDIRECT, 0)),
            ("used before", |r, _| r.set_avail_idx(1)),
            ("misaligned", |r, w| r.set_desc(3, w + 4, 64, 0, 0)),
        ];
        for (what, spoil) in ways {
            ring.clear();
            (0..ring.size).for_each(|i| ring.set_desc(i, window + 64 * u64::from(i), 64, 0, 0));
            spoil(ring, window);
            let answer = guest.bind_channel(context, queue, &[run(window, 64 * size)]);
            assert_eq!(answer, Err(Status::FAULT), "{what}");
        }
        ring.clear();
        (0..ring.size).for_each(|i| ring.set_desc(i, window + 64 * u64::from(i), 64, 0, 0));
        let half = 32 * size;
        for (what, runs, status) in [
            ("window with a gap", vec![run(window, half), run(window + half + 64, half - 64)], Status::FAULT),
            ("window in a hole", vec![run(HOLE, 64 * size)], Status::FAULT),
            ("window that wraps", vec![run(window, u64::MAX)], Status::FAULT),
            ("slot cut by two runs", vec![run(window, 32), run(window + 32, 64 * size - 32)], Status::FAULT),
            ("empty run", vec![run(window, 64 * size), run(window, 0)], Status::FAULT),
            ("no window", vec![], Status::INVALID),
        ] {
            let answer = guest.bind_channel(context, queue, &runs);
            assert_eq!(answer, Err(status), "{what}");
        }
        assert_eq!(lab.stats().objects(0, "channels"), 0);
        assert_eq!(
            guest.bind_channel(context, queue, &[run(window, half), run(window + half, half)]),
            Ok(())
        );
    });
}

/// The expected outcome of a chain that a kernel writes by hand.
///
/// Such a chain is a list of descriptors: address, length, flags, next.
#[derive(Debug)]
enum Outcome {
    /// Answered, with this status.
    Answered(Status),
    /// Returned with nothing written.
    Returned,
}

#[test]
fn chains_of_any_shape_are_answered_or_returned() {
    besieged(|_, guest| {
        use Outcome::*;
        let at = guest.memory.alloc(4096);
        let header = ReqHeader { opcode: Opcode::QUERY_PORT.0.into(), ..ReqHeader::default() };
        let reply = at + 2048;
        let room = (RespHeader::SIZE + QueryPortResp::SIZE) as u32;
        let table = at + 1024;
        type Chain = Vec<(u64, u32, u16, u16)>;
        let chains: Vec<(&str, Chain, Outcome)> = vec![
            ("decent", vec![(at, 16, NEXT, 1), (reply, room, WRITE, 0)], Answered(Status::OK)),
            (
                "in many pieces",
                vec![
                    (at, 1, NEXT, 1),
                    (at + 1, 7, NEXT, 2),
                    (at + 8, 8, NEXT, 3),
                    (reply, 3, WRITE | NEXT, 4),
                    (reply + 3, 1, WRITE | NEXT, 5),
                    (reply + 4, room - 4, WRITE, 0),
                ],
                Answered(Status::OK),
            ),
            ("no room", vec![(at, 16, 0, 0)], Returned),
            ("too little room", vec![(at, 16, NEXT, 1), (reply, 15, WRITE, 0)], Returned),
            (
                "room for a status only",
                vec![(at, 16, NEXT, 1), (reply, 16, WRITE, 0)],
                Answered(Status::INVALID),
            ),
            ("nothing to read", vec![(reply, room, WRITE, 0)], Answered(Status::INVALID)),
            ("short", vec![(at, 15, NEXT, 1), (reply, room, WRITE, 0)], Answered(Status::INVALID)),
            ("long", vec![(at, 17, NEXT, 1), (reply, room, WRITE, 0)], Answered(Status::OK)),
            (
                "long, and it asks for something",
                vec![(at, 16, NEXT, 1), (reply, 1, NEXT, 2), (reply, room, WRITE, 0)],
                Answered(Status::UNSUPPORTED),
            ),
            ("the wrong way round", vec![(reply, room, WRITE | NEXT, 1), (at, 16, 0, 0)], Returned),
            ("reads from a hole", vec![(HOLE, 16, NEXT, 1), (reply, room, WRITE, 0)], Returned),
            ("reads into a hole", vec![(HOLE - 8, 16, NEXT, 1), (reply, room, WRITE, 0)], Returned),
            ("writes to a hole", vec![(at, 16, NEXT, 1), (HOLE, room, WRITE, 0)], Returned),
            (
                "room for a status, the reply in a hole",
                vec![(at, 16, NEXT, 1), (reply, 16, WRITE | NEXT, 2), (HOLE, room, WRITE, 0)],
                Answered(Status::FAULT),
            ),
            ("4 GiB to read", vec![(at, u32::MAX, NEXT, 1), (reply, room, WRITE, 0)], Returned),
            ("wraps", vec![(u64::MAX - 7, 16, NEXT, 1), (reply, room, WRITE, 0)], Returned),
            ("2 GiB of room", vec![(at, 16, NEXT, 1), (reply, 1 << 31, WRITE, 0)], Answered(Status::OK)),
            ("more than 4 GiB in all", vec![(at, 16, NEXT, 1), (reply, u32::MAX, WRITE, 0)], Returned),
        ];
        for (what, chain, outcome) in chains {
            guest.memory.fill(reply, 1024, 0xee);
            guest.memory.write(at, header.as_bytes());
            let (_, len) = play(guest, &chain, PATIENCE).unwrap_or_else(|| panic!("{what}: no answer"));
            let status = u32::from_le_bytes(guest.memory.bytes(reply, 4).try_into().unwrap());
            match outcome {
                Answered(wanted) => {
                    let bytes = if wanted == Status::OK { room } else { 16 };
                    assert_eq!((Status(status), len), (wanted, bytes), "{what}");
                }
                Returned => assert_eq!(len, 0, "{what}"),
            }
        }
        // An invalid chain may be returned or break its own queue, but no other.
        for (what, chain) in [
            ("a loop", vec![(at, 8, NEXT, 1), (at, 8, NEXT, 0)]),
            ("a loop of one", vec![(at, 16, NEXT, 0)]),
            ("leads out of the table", vec![(at, 16, NEXT, 0xffff)]),
            ("an indirect table in a hole", vec![(HOLE, 64, INDIRECT, 0)]),
            ("an indirect table of no length", vec![(table, 0, INDIRECT, 0)]),
            ("an indirect table of an odd length", vec![(table, 17, INDIRECT, 0)]),
            ("indirect within indirect", vec![(table, 32, INDIRECT, 0)]),
            ("an empty piece", vec![(at, 0, NEXT, 1), (reply, room, WRITE, 0)]),
        ] {
            let words = [table, 32 | u64::from(INDIRECT) << 32, at, 16];
            guest.memory.write(table, words.as_bytes());
            if let Some((_, len)) = play(guest, &chain, Duration::from_millis(200)) {
                assert!(len == 0 || len >= 16, "{what}: {len}");
            }
            guest.reset().unwrap();
            assert!(guest.query_port().is_ok(), "{what}");
        }
    });
}

/// Writes a chain into the control queue as its first entry.
///
/// Returns the entry of the used ring, or `None` if none comes in time.
fn play(guest: &Guest, chain: &[(u64, u32, u16, u16)], time: Duration) -> Option<(u32, u32)> {
    guest.reset().unwrap();
    let queue = &guest.queues[0];
    for (i, &(addr, len, flags, next)) in chain.iter().enumerate() {
        queue.ring.set_desc(i as u16, addr, len, flags, next);
    }
    queue.ring.set_avail_entry(0, 0);
    queue.ring.set_avail_idx(1);
    queue.kick.write(1).unwrap();
    let used = wait::within(time, || (queue.ring.used_idx() == 1).then(|| queue.ring.used_entry(0)));
    guest.reset().unwrap();
    used
}

#[test]
fn a_control_ring_that_makes_no_sense_stops_only_itself() {
    besieged(|lab, guest| {
        type Spoil = fn(&Ring);
        let ways: [(&str, Spoil); 4] = [
            ("index too far ahead", |r| r.set_avail_idx(r.size + 1)),
            ("index behind", |r| r.set_avail_idx(0xffff)),
            ("a head that does not exist", |r| {
                r.set_avail_entry(0, r.size);
                r.set_avail_idx(1);
            }),
            ("heads that do not exist, a ring full", |r| {
                (0..r.size).for_each(|i| r.set_avail_entry(i, 0x8000 + i));
                r.set_avail_idx(r.size);
            }),
        ];
        for (what, spoil) in ways {
            spoil(&guest.queues[0].ring);
            guest.queues[0].kick.write(1).unwrap();
            wait::pause(
                Duration::from_millis(5),
                "the worker may look meanwhile; it does so at the reset, too",
            );
            assert!(lab.guests[1].query_port().is_ok(), "{what}");
            guest.reset().unwrap();
            assert!(guest.query_port().is_ok(), "{what}");
        }
        // Event queues with invalid indices.
        for queue in [1, 2] {
            guest.queues[queue].ring.set_avail_idx(0x4000);
            guest.queues[queue].ring.set_avail_entry(0, 0xffff);
        }
        let process = Context::open(guest_of(lab)).unwrap();
        let mut cq = process.cq(4);
        let qp = process.qp(&cq, &cq, &QpOptions { recv_wr: 1, ..QpOptions::default() });
        qp.to_init().unwrap();
        assert_eq!(cq.arm(vrdma_tests::verbs::Arm::Next), None);
        let mut process = process;
        (0..4).for_each(|id| process.post(&vrdma_tests::verbs::Request::recv(qp.tag(id), &[])));
        process.channel.drain();
        assert_eq!(qp.state(), QpState::ERR);
    });
}

fn guest_of(lab: &Lab) -> &std::sync::Arc<Guest> {
    &lab.guests[0]
}

/// The device leaves an unreadable event queue alone: it costs neither wake-ups nor log messages.
#[test]
fn a_broken_event_queue_is_not_tried_for_ever() {
    let program = Some(std::path::PathBuf::from(env!("CARGO_BIN_EXE_vrdma-test-daemon")));
    let lab = Lab::with(1, LabOptions { program, ..LabOptions::default() });
    let guest = &lab.guests[0];
    guest.queues[1].ring.set_avail_idx(0x8000);
    let mut process = Context::open(guest).unwrap();
    let cq = process.cq(64);
    for _ in 0..50 {
        let qp = process.qp(&cq, &cq, &QpOptions { recv_wr: 1, ..QpOptions::default() });
        qp.to_init().unwrap();
        (0..2).for_each(|id| process.post(&vrdma_tests::verbs::Request::recv(qp.tag(id), &[])));
    }
    process.channel.drain();
    assert_eq!(lab.stats().device(0, "events"), 50);
    wait::until("half a second in which the worker is hardly woken", || {
        let before = lab.stats().worker_sleeps();
        wait::pause(Duration::from_millis(500), "a queue that is tried for ever is so in any half second");
        (lab.stats().worker_sleeps() - before < 10).then_some(())
    });
    let lines = lab.daemon.messages().lines().count();
    assert!(lines < 10, "{lines} messages");
}

#[test]
fn sizes_that_overflow_are_refused() {
    besieged(|lab, guest| {
        let pd = guest.alloc_pd(0).unwrap();
        let page = guest.memory.alloc(8192);
        let before = lab.stats().all_objects(0);
        // A number of extents that does not match the length of the request.
        for num_runs in [2, 1 << 28, u32::MAX] {
            let header = ReqHeader {
                opcode: Opcode::REG_MR.0.into(),
                num_runs: num_runs.into(),
                ..ReqHeader::default()
            };
            let body = RegMrReq { pdn: pd.into(), access: 1.into(), iova: 0.into(), length: 4096.into() };
            let request = [header.as_bytes(), body.as_bytes(), run(page, 4096).as_bytes()].concat();
            let reply = guest.control().exchange(&request, 64, PATIENCE).unwrap();
            let status = Status(u32::from_le_bytes(reply[..4].try_into().unwrap()));
            assert!([Status::INVALID, Status::TOO_LARGE].contains(&status), "{num_runs}: {status:?}");
        }
        // Lengths whose sum wraps around to the right one.
        let wraps = [run(page, 1 << 63), run(page, 1 << 63), run(page, 4096)];
        assert_eq!(guest.reg_mr(pd, 1, 0, 4096, &wraps).err(), Some(Status::FAULT));
        // More memory than exists, by repeating an extent. It costs only the list.
        let many: Vec<Run> = (0..60_000).map(|_| run(page, 8192)).collect();
        let mr = guest.reg_mr(pd, 1, 0, 60_000 * 8192, &many).unwrap();
        guest.dereg_mr(mr.lkey.get()).unwrap();
        for (entries, len) in [(1u32 << 31, 128), (0, 128), (1 << 30, u64::MAX), (2, 191), (2, 193)] {
            let answer = guest.create_cq(0, entries, 0, &[run(page, len)]);
            assert!(answer.is_err(), "{entries} entries in {len} bytes: {answer:?}");
        }
        // A CQE or the record that two extents share, or a misaligned ring.
        for runs in [
            vec![run(page, 40), run(page + 4096, 24 + 128)],
            vec![run(page, 64 + 64), run(page + 4096, 64)],
            vec![run(page + 4, 192)],
        ] {
            let answer = guest.create_cq(0, 2, 0, &runs);
            assert!([Err(Status::INVALID), Err(Status::FAULT)].contains(&answer), "{runs:?}: {answer:?}");
        }
        assert_eq!(guest.set_ah_table(u32::MAX, &[run(page, 4096)]), Err(Status::NO_RESOURCES));
        assert_eq!(guest.set_ah_table(64, &[run(HOLE, 4096)]), Err(Status::FAULT));
        assert_eq!(lab.stats().all_objects(0), before);
    });
}

/// A CQ with one extent for each entry takes no longer than others.
///
/// The daemon is a process of its own, which can be killed if it counts for hours.
#[test]
fn a_cq_in_as_many_pieces_as_it_has_entries_takes_no_longer_than_others() {
    const ENTRIES: u32 = 1 << 18;
    let program = Some(std::path::PathBuf::from(env!("CARGO_BIN_EXE_vrdma-test-daemon")));
    let lab = Lab::with(1, LabOptions { program, ..LabOptions::default() });
    let guest = &lab.guests[0];
    let at = guest.memory.alloc(64 * u64::from(ENTRIES) + 4096);
    let mut runs: Vec<Run> = (0..u64::from(ENTRIES)).rev().map(|i| run(at + 64 * i, 32)).collect();
    runs.push(run(at + 64 * u64::from(ENTRIES), 128));
    let cqn = guest.create_cq(0, ENTRIES, 0, &runs).unwrap();
    // A new memory table takes no longer either.
    guest.front_end().set_memory(&guest.memory, guest.memory.regions()).unwrap();
    guest.destroy_cq(cqn).unwrap();
}

/// Shared receive queues count against the guest's limit of outstanding requests.
///
/// The guest may have 1,000 requests outstanding, and 100 in a queue. None is in use before and
/// after. A QP that uses a shared receive queue has 100 sends.
fn shared_queues_share_requests(guest: &Guest, pdn: u32, make: impl Fn(u32) -> Result<Qp, Status>) {
    let create = |max_wr: u32| {
        let (none, context) = (limit::NONE.into(), 0.into());
        let (pdn, max_wr, max_sge) = (pdn.into(), max_wr.into(), 1.into());
        guest.create_srq(&CreateSrqReq { context, pdn, max_wr, max_sge, xrcdn: none, cqn: none })
    };
    let resize = |srqn: u32, max_wr: u32| {
        let (srqn, mask) = (srqn.into(), srq_attr::MAX_WR.into());
        guest.modify_srq(&ModifySrqReq { srqn, mask, max_wr: max_wr.into(), limit: 0.into() })
    };
    let refused = Some(Status::NO_RESOURCES);
    let mut srqs: Vec<u32> = (0..9).map(|_| create(100).unwrap()).collect();
    srqs.push(create(50).unwrap());
    assert_eq!(create(51).err(), refused);
    let other = create(50).unwrap();
    assert_eq!(resize(srqs[9], 51).err(), refused);
    guest.destroy_srq(other).unwrap();
    resize(srqs[9], 100).unwrap();
    assert_eq!(create(1).err(), refused);
    assert_eq!(make(srqs[0]).map(|qp| qp.number).err(), refused);
    resize(srqs[9], 1).unwrap();
    resize(srqs[8], 1).unwrap();
    // Of the remaining 198 requests the QP's sends take 100. A QP with a shared receive queue has
    // no receives of its own.
    let qp = make(srqs[0]).unwrap();
    assert_eq!(create(99).err(), refused);
    srqs.push(create(98).unwrap());
    qp.destroy().unwrap();
    srqs.into_iter().for_each(|srqn| guest.destroy_srq(srqn).unwrap());
    // All requests are available again.
    let all: Vec<u32> = (0..10).map(|_| create(100).unwrap()).collect();
    all.into_iter().for_each(|srqn| guest.destroy_srq(srqn).unwrap());
}

#[test]
fn limits_hold_and_what_is_freed_can_be_had_again() {
    let limits = GuestLimits {
        contexts: 3,
        pds: 4,
        cqs: 5,
        cq_entries: 64,
        mrs: 6,
        mr_runs: 10,
        total_runs: 30,
        qps: 16,
        qp_requests: 100,
        total_requests: 1000,
        ..GuestLimits::default()
    };
    let lab = Lab::with(2, LabOptions { limits, ..LabOptions::default() });
    let guest = &lab.guests[0];
    /// Creates objects until `NO_RESOURCES`, and returns them.
    fn most<T>(mut make: impl FnMut() -> Result<T, Status>) -> Vec<T> {
        let mut made = Vec::new();
        for _ in 0..1000 {
            match make() {
                Ok(object) => made.push(object),
                Err(status) => {
                    assert_eq!(status, Status::NO_RESOURCES);
                    return made;
                }
            }
        }
        panic!("there is no limit");
    }
    for _ in 0..3 {
        let contexts = most(|| guest.alloc_context());
        assert_eq!(contexts.len(), 3);
        let pds = most(|| guest.alloc_pd(0));
        assert_eq!(pds.len(), 4);
        let cqs = most(|| Cq::create(guest, 0, 16, 0));
        assert_eq!(cqs.len(), 5);
        assert_eq!(Cq::create(guest, 0, 128, 0).err(), Some(Status::NO_RESOURCES));
        let mrs = most(|| Mr::register(guest, pds[0], 1, 4096));
        assert_eq!(mrs.len(), 6);
        let cq = cqs[0].number;
        let make = |options: &QpOptions| Qp::create(guest, 0, pds[0], cq, cq, options);
        let small = QpOptions { send_wr: 10, recv_wr: 10, ..QpOptions::default() };
        let qps = most(|| make(&small));
        // Two QP numbers are not for ordinary QPs.
        assert_eq!(qps.len(), 14);
        qps.iter().for_each(|qp| qp.destroy().unwrap());
        let large = QpOptions { send_wr: 100, recv_wr: 100, ..QpOptions::default() };
        let few = most(|| make(&large));
        assert_eq!(few.len(), 5, "1000 requests in all");
        few.iter().for_each(|qp| qp.destroy().unwrap());
        shared_queues_share_requests(guest, pds[0], |srqn| make(&QpOptions { srqn, ..large.clone() }));
        for wrong in [
            QpOptions { send_wr: 101, ..small.clone() },
            QpOptions { recv_wr: u32::MAX, ..small.clone() },
            QpOptions { sges: 33, ..small.clone() },
            QpOptions { inline: 513, ..small.clone() },
        ] {
            let status = make(&wrong).err();
            assert!(
                [Some(Status::INVALID), Some(Status::NO_RESOURCES)].contains(&status),
                "{wrong:?}: {status:?}"
            );
        }
        mrs.iter().for_each(|mr| mr.deregister().unwrap());
        // Extents: the CQs already use 5.
        let page = guest.memory.alloc(4096);
        let many = vec![run(page, 4096); 10];
        assert_eq!(guest.reg_mr(pds[0], 1, 0, 40_960, &many).map(|_| ()), Ok(()));
        assert_eq!(guest.reg_mr(pds[0], 1, 0, 40_960, &many).map(|_| ()), Ok(()));
        assert_eq!(guest.reg_mr(pds[0], 1, 0, 40_960, &many).err(), Some(Status::NO_RESOURCES));
        assert_eq!(guest.reg_mr(pds[0], 1, 0, 45_056, &[run(page, 4096); 11]).err(), Some(Status::TOO_LARGE));
        // The other guest has a quota of its own.
        assert!(lab.guests[1].alloc_pd(0).is_ok());
        lab.guests[1].reset().unwrap();
        guest.reset().unwrap();
        lab.expect_nothing_left(0);
    }
}

#[test]
fn no_guest_has_more_requests_than_the_memory_for_them_allows() {
    let limits =
        GuestLimits { request_memory: 1 << 20, all_request_memory: 3 << 19, ..GuestLimits::default() };
    let lab = Lab::with(2, LabOptions { limits, ..LabOptions::default() });
    let most = |guest: &std::sync::Arc<vrdma_tests::Guest>| {
        let (pd, cq) = (guest.alloc_pd(0).unwrap(), Cq::create(guest, 0, 16, 0).unwrap());
        let make = || Qp::create(guest, 0, pd, cq.number, cq.number, &QpOptions::default());
        let mut made = Vec::new();
        loop {
            match make() {
                Ok(qp) => made.push(qp),
                Err(status) => {
                    assert_eq!(status, Status::NO_RESOURCES);
                    break;
                }
            }
        }
        // What one object used is available to another.
        made.pop().expect("a QP").destroy().unwrap();
        made.push(make().unwrap());
        made.len()
    };
    let [one, other] = [0, 1].map(|guest| most(&lab.guests[guest]));
    assert!((4..100).contains(&one), "{one}");
    if lab.are_apart(0, 1) {
        assert_eq!(other, one, "each worker has its part of what all may have");
    } else {
        assert!(other < one, "half of that is left for {other}");
    }
}
