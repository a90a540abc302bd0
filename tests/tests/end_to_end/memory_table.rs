//! A VMM that changes the memory table while queue pairs run.
//!
//! Removed memory is not touched, returned memory is used again, and no other guest notices.
//!
//! Shows: hostile-guest.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use vrdma_tests::abi::control::{QpState, access};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::abi::event::EventKind;
use vrdma_tests::memory::Region;
use vrdma_tests::pingpong::PingPong;
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{Cq, Guest, Lab, LabOptions, Mr, QpOptions, Rng, connect, proc, wait};

/// A third region of guest memory, which can be removed. It holds only what a test puts there.
const EXTRA: (u64, u64) = (0x2_0000_0000, 8 << 20);

fn lab() -> Lab {
    let mut options = LabOptions::default();
    options.guest.memory.push(EXTRA);
    Lab::with(3, options)
}

fn extra(guest: &Guest) -> Region {
    guest.memory.regions()[2]
}

fn take_away(guest: &Guest) {
    guest.front_end().remove_region(&guest.memory, &extra(guest)).unwrap();
}

fn give_back(guest: &Guest) {
    guest.front_end().add_region(&guest.memory, &extra(guest)).unwrap();
}

/// Registers a region in the removable memory.
fn mr_in_extra(side: &Side, len: u64) -> Mr {
    let guest = side.guest();
    assert!(guest.memory.reserve(EXTRA.0, len.next_multiple_of(4096)));
    Mr::register_runs(guest, side.process.pd, access::ALL, 0x5000, &[(EXTRA.0, len)]).unwrap()
}

#[test]
fn a_region_whose_memory_is_gone_fails_and_comes_back_with_it() {
    let lab = lab();
    for whole_table in [false, true] {
        let (mut a, b) = pair(&lab, 1, 4096, &QpOptions::default());
        let mr = mr_in_extra(&b, 4096);
        mr.put(0, b"before");
        let guest = b.guest();
        if whole_table {
            let regions = guest.memory.regions();
            guest.front_end().set_memory(&guest.memory, &regions[..2]).unwrap();
        } else {
            take_away(guest);
        }
        a.post(&Request::write(a.qp.tag(1), mr.remote(0), Data::Inline(b"during")).signaled(true));
        let wc = a.cq.wait();
        assert!([WcStatus::REM_OP_ERR, WcStatus::REM_ACCESS_ERR].contains(&wc.status()), "{wc:?}");
        assert_eq!(mr.get(0, 6), b"before", "memory that is gone is not written");
        give_back(guest);
        for side in [&a, &b] {
            side.qp.to_state(QpState::RESET).unwrap();
        }
        connect(&a.qp, &b.qp);
        a.post(&Request::write(a.qp.tag(2), mr.remote(0), Data::Inline(b"after!")).signaled(true));
        a.cq.expect(a.qp.number, 2, WcStatus::SUCCESS);
        assert_eq!(mr.get(0, 6), b"after!");
        mr.deregister().unwrap();
        guest.memory.free(EXTRA.0, 4096);
        while guest.async_events().recv_within(std::time::Duration::from_millis(20)).is_some() {}
        a.close();
        b.close();
    }
}

#[test]
fn own_memory_that_is_gone_is_a_local_error() {
    let lab = lab();
    let (mut a, b) = pair(&lab, 1, 4096, &QpOptions::default());
    let mr = mr_in_extra(&a, 4096);
    take_away(a.guest());
    a.post(&Request::write(a.qp.tag(1), b.mr.remote(0), Data::Sges(&[mr.sge(0, 100)])).signaled(true));
    a.cq.expect(a.qp.number, 1, WcStatus::LOC_PROT_ERR);
    give_back(a.guest());
}

#[test]
fn a_cq_whose_memory_is_gone_fails_with_its_qps() {
    let lab = lab();
    let mut a = Side::new(&lab.guests[0], 4096, &QpOptions::default());
    let b = Side::new(&lab.guests[1], 4096, &QpOptions::default());
    let guest = a.guest().clone();
    assert!(guest.memory.reserve(EXTRA.0, 4096));
    let runs = [vrdma_tests::control::run(EXTRA.0, 16 * 32 + 128)];
    let cqn = guest.create_cq(a.process.number, 16, 0, &runs).unwrap();
    let qp = vrdma_tests::Qp::create(&guest, a.process.number, a.process.pd, cqn, a.cq.number, &a.qp.options);
    let qp = qp.unwrap();
    connect(&qp, &b.qp);
    guest.memory.fill(EXTRA.0, 4096, 0);
    take_away(&guest);
    a.post(&Request::write(qp.tag(1), b.mr.remote(0), Data::Inline(b"x")).signaled(true));
    let told = guest.async_events().recv();
    assert_eq!((told.kind, told.object), (EventKind::CQ_ERR, cqn));
    a.process.channel.drain();
    assert_eq!(qp.state(), QpState::ERR);
    assert_eq!(guest.memory.bytes(EXTRA.0, 4096), [0; 4096], "memory that is gone is not written");
    give_back(&guest);
    qp.destroy().unwrap();
    guest.destroy_cq(cqn).unwrap();
}

#[test]
fn a_channel_whose_slots_are_gone_is_broken_and_tells() {
    let lab = lab();
    let guest = &lab.guests[0];
    let side = Side::new(guest, 4096, &QpOptions::default());
    let queue = guest.take_channel().unwrap();
    let ring = &guest.queues[usize::from(queue)].ring;
    let len = 64 * u64::from(ring.size);
    assert!(guest.memory.reserve(EXTRA.0, len));
    ring.clear();
    (0..ring.size).for_each(|i| ring.set_desc(i, EXTRA.0 + 64 * u64::from(i), 64, 0, 0));
    guest.bind_channel(side.process.number, queue, &[vrdma_tests::control::run(EXTRA.0, len)]).unwrap();
    take_away(guest);
    let told = guest.async_events().recv();
    assert_eq!((told.kind, told.object), (EventKind::CHANNEL_ERR, queue.into()));
    ring.set_avail_idx(1);
    guest.queues[usize::from(queue)].kick.write(1).unwrap();
    assert!(guest.query_port().is_ok());
    assert_eq!(ring.used_idx(), 0);
    give_back(guest);
    guest.unbind_channel(queue).unwrap();
}

/// The table changes all the time while a guest transfers data.
///
/// All data arrives, because its memory is in each table.
#[test]
fn tables_change_under_running_queue_pairs() {
    let lab = lab();
    let bystanders = PingPong::start(&lab.guests[2], &lab.guests[1]);
    let stop = AtomicBool::new(false);
    let changes = AtomicU32::new(0);
    let guest = lab.guests[0].clone();
    let (mut a, b) = pair(&lab, 1, 2 << 20, &QpOptions::default());
    std::thread::scope(|scope| {
        let (stop, changes) = (&stop, &changes);
        scope.spawn(move || {
            let mut rng = Rng::from_env("tables_change");
            for round in (0..).take_while(|&round| round < 60 || changes.load(Ordering::Relaxed) <= 10) {
                let data = rng.bytes(2 << 20);
                a.mr.put(0, &data);
                let own = [a.mr.sge(0, 2 << 20)];
                a.post(&Request::write(a.qp.tag(round), b.mr.remote(0), Data::Sges(&own)).signaled(true));
                a.cq.expect(a.qp.number, round, WcStatus::SUCCESS);
                assert!(b.mr.get(0, 2 << 20) == data, "round {round}");
                a.post(&Request::read(a.qp.tag(round), b.mr.remote(0), &own).signaled(true));
                a.cq.expect(a.qp.number, round, WcStatus::SUCCESS);
                assert!(a.mr.get(0, 2 << 20) == data, "round {round}");
            }
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            take_away(&guest);
            give_back(&guest);
            guest.front_end().set_memory(&guest.memory, guest.memory.regions()).unwrap();
            changes.fetch_add(1, Ordering::Relaxed);
        }
    });
    bystanders.stop();
}

/// Removes memory that a driver needs during work, again and again.
#[test]
fn regions_removed_in_the_midst_of_work_harm_nobody_else() {
    let lab = lab();
    let bystanders = PingPong::start(&lab.guests[2], &lab.guests[1]);
    let mut rng = Rng::from_env("regions_removed");
    for _ in 0..30 {
        let options = QpOptions { timeout: 14, retry_cnt: 1, ..QpOptions::default() };
        let (mut a, b) = pair(&lab, 1, 1 << 20, &options);
        for id in 0..20 {
            let own = [a.mr.sge(0, 1 << 20)];
            a.post(&Request::write(a.qp.tag(id), b.mr.remote(0), Data::Sges(&own)).signaled(true));
            a.recv_any(id);
        }
        let guest = a.guest().clone();
        // Remove one region, with rings, objects and payload, or all regions but one.
        let mut left = guest.memory.regions().to_vec();
        left.remove(rng.below(3) as usize);
        if rng.one_in(2) {
            left.remove(rng.below(2) as usize);
        }
        guest.front_end().set_memory(&guest.memory, &left).unwrap();
        if rng.one_in(2) {
            a.process.channel.driver.kick();
        }
        assert!(lab.guests[1].query_port().is_ok());
        guest.front_end().set_memory(&guest.memory, guest.memory.regions()).unwrap();
        guest.reset().unwrap();
        assert_eq!(lab.stats().all_objects(0), []);
        guest.set_gid();
        b.close();
    }
    wait::until("another round", || (bystanders.rounds() > 2).then_some(()));
    bystanders.stop();
    drop(Cq::create(&lab.guests[0], 0, 4, 0).unwrap());
}

/// The pages of a region are present after its registration and after a remapping.
///
/// The worker takes no page faults for them.
#[test]
fn the_worker_takes_no_page_faults_for_memory_that_is_registered() {
    const LEN: u64 = 16 << 20;
    let lab = lab();
    let worker = || proc::thread_page_faults(lab.daemon.pid(), lab.first_worker());
    let (mut a, b) = pair(&lab, 1, LEN, &QpOptions::default());
    let own = [a.mr.sge(0, LEN as u32)];
    let mut write = |id| {
        let before = worker();
        a.post(&Request::write(a.qp.tag(id), b.mr.remote(0), Data::Sges(&own)).signaled(true));
        a.cq.expect(a.qp.number, id, WcStatus::SUCCESS);
        worker() - before
    };
    if lab.are_apart(0, 1) {
        // Buffers for frames to other workers are allocated when they are first used.
        (10..14).for_each(|id| _ = write(id));
    }
    // The transfer touches 8,192 pages.
    let faults = write(1);
    assert!(faults < 100, "{faults} page faults");
    for guest in &lab.guests[..2] {
        guest.front_end().set_memory(&guest.memory, guest.memory.regions()).unwrap();
    }
    let faults = write(2);
    assert!(faults < 100, "{faults} page faults after a new memory table");
}

/// The guest's own session translates millions of extents, not the worker.
#[test]
fn a_memory_table_that_changes_under_a_million_runs_costs_the_worker_little() {
    const RUNS: u64 = 1 << 20;
    let program = Some(std::path::PathBuf::from(env!("CARGO_BIN_EXE_vrdma-test-daemon")));
    let lab = Lab::with(2, LabOptions { program, poll_us: 0, ..LabOptions::default() });
    let pid = lab.daemon.pid();
    let (guest, pages) = (&lab.guests[0], lab.guests[0].memory.alloc(8192));
    let process = vrdma_tests::Context::open(guest).unwrap();
    // No two extents are adjacent, so none are merged.
    let runs: Vec<_> = (0..RUNS).map(|i| (pages + 4096 * ((i + 1) % 2), 4096)).collect();
    let mr = Mr::register_runs(guest, process.pd, access::ALL, 0x1000, &runs).unwrap();
    let times = || (proc::thread_cpu_time(pid, lab.first_worker()), proc::thread_cpu_time(pid, "RDMA g0"));
    let before = times();
    for _ in 0..20 {
        guest.front_end().set_memory(&guest.memory, guest.memory.regions()).unwrap();
    }
    let after = times();
    let (worker, session) = (after.0 - before.0, after.1 - before.1);
    println!("worker {worker:?}, session {session:?}");
    assert!(worker < session / 4, "{worker:?} of the worker, {session:?} of the session");
    mr.deregister().unwrap();
}
