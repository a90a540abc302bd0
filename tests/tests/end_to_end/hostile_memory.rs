//! A VMM whose memory differs from its memory table: it is huge, too short, or truncated later.
//!
//! Shows: hostile-guest.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserVirtioFeatures;
use vhost::{VhostBackend, VhostUserMemoryRegionInfo};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use vrdma_tests::control::run;
use vrdma_tests::front_end::{FrontEnd, Queue, VERSION_1};
use vrdma_tests::memory::Memory;
use vrdma_tests::pingpong::PingPong;
use vrdma_tests::ring::Ring;
use vrdma_tests::side::pair;
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{Lab, LabOptions, QpOptions, proc, wait};

/// Starts a daemon as a process of its own, with a ping-pong between guests 1 and 2.
fn lab(memory: Option<(u64, u64)>) -> (Lab, PingPong) {
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_vrdma-test-daemon")));
    let mut options = LabOptions { program, ..LabOptions::default() };
    if let Some(memory) = memory {
        options.guest.memory = vec![memory];
    }
    let mut lab = Lab::without_guests(3, options);
    lab.guests = vec![lab.connect(1), lab.connect(2)];
    let pingpong = PingPong::start(&lab.guests[0], &lab.guests[1]);
    (lab, pingpong)
}

fn queue(memory: &Arc<Memory>) -> Queue {
    let eventfd = || Arc::new(EventFd::new(EFD_NONBLOCK).unwrap());
    Queue { ring: Ring::new(memory, 64), kick: eventfd(), call: eventfd() }
}

fn wait_for_message(lab: &Lab, words: &str) {
    let found = wait::within(wait::PATIENCE, || lab.daemon.messages().contains(words).then_some(()));
    assert!(found.is_some(), "no '{words}' in {}", lab.daemon.messages());
}

#[test]
fn two_colluding_front_ends_hurt_nobody() {
    colluding_front_ends(2_000);
}

#[test]
#[ignore = "long"]
fn ten_thousand_tries_of_two_colluding_front_ends_hurt_nobody() {
    colluding_front_ends(10_000);
}

/// Runs two front-ends that try to make the daemon touch unmapped memory.
///
/// The first front-end unmaps its memory again and again. The second maps memory at the same place,
/// truncates its file, and has the daemon touch it. A third guest's memory, mapped anew all the
/// time, may get into the rest of the gap.
fn colluding_front_ends(tries: u64) {
    const LEN: u64 = 8 << 20;
    let (lab, pingpong) = lab(Some((0x1000, LEN)));
    let done = AtomicBool::new(false);
    let (first_socket, victim) = (lab.net_socket(0), lab.guests[0].clone());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Regions are mapped in order of addresses, so the large one is unmapped first.
            let more = (1..20).map(|i| (i << 32, 0x1000));
            let layout: Vec<_> = [(0, 2 * LEN)].into_iter().chain(more).collect();
            let memory = Memory::new(&layout).unwrap();
            let mut first = FrontEnd::open(&first_socket, 0, &memory).unwrap();
            while !done.load(Ordering::Relaxed) {
                first.set_memory(&memory, &memory.regions()[19..]).unwrap();
                first.set_memory(&memory, memory.regions()).unwrap();
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                victim.front_end().set_memory(&victim.memory, victim.memory.regions()).unwrap();
            }
        });
        let memory = Memory::new(&[(0x1000, LEN)]).unwrap();
        let control = queue(&memory);
        for _ in 0..tries {
            memory.truncate(LEN);
            let mut second = FrontEnd::open(&lab.socket(0), 0, &memory).unwrap();
            second.start(0, &control, 0).unwrap();
            memory.truncate(0);
            control.kick.write(1).unwrap();
            wait::until("the daemon to close the connection", || second.is_closed().then_some(()));
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(lab.stats().memory_faults() >= tries);
    pingpong.stop();
}

#[test]
fn terabytes_of_nothing_are_refused() {
    let (lab, pingpong) = lab(None);
    let memory = Memory::new(&[(0x1000, 1 << 20)]).unwrap();
    let mappings = || proc::guest_mappings(lab.daemon.pid());
    let before = mappings();
    memory.truncate(1 << 43);
    for (socket, name) in [(lab.socket(0), "RDMA"), (lab.net_socket(0), "Ethernet")] {
        let mut front_end = FrontEnd::open(&socket, 0, &memory).unwrap();
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 1 << 40,
            memory_size: 1 << 42,
            userspace_addr: 1 << 40,
            mmap_offset: 0,
            mmap_handle: memory.fd(),
        };
        assert!(front_end.link().set_mem_table(&[region]).is_err());
        wait_for_message(&lab, &format!("{name}: front-end disconnected: SET_MEM_TABLE: a memory region of"));
        let mut front_end = FrontEnd::open(&socket, 0, &memory).unwrap();
        assert!(front_end.link().add_mem_region(&region).is_err());
        wait_for_message(&lab, &format!("{name}: front-end disconnected: ADD_MEM_REG: a memory region of"));
        // More regions than there are slots are refused, too.
        let mut front_end = FrontEnd::open(&socket, 0, &memory).unwrap();
        let one = |i: u64| VhostUserMemoryRegionInfo {
            guest_phys_addr: (i + 1) << 32,
            memory_size: 0x1000,
            userspace_addr: (i + 1) << 32,
            ..region
        };
        let added = (0..600).take_while(|i| front_end.link().add_mem_region(&one(*i)).is_ok()).count();
        assert_eq!(added, 508, "beside the one that was there");
        drop(front_end);
    }
    wait_for_message(&lab, "memory_max");
    wait_for_message(&lab, "a memory region beyond 509");
    wait::until("all to be unmapped", || (mappings() == before).then_some(()));
    pingpong.stop();
}

/// Opens a front-end that has sent `RESET_OWNER` and continues.
fn open_and_reset(socket: &Path, memory: &Memory) -> FrontEnd {
    let mut front_end = FrontEnd::open(socket, 0, memory).unwrap();
    let link = front_end.link();
    link.reset_owner().unwrap();
    link.set_owner().unwrap();
    link.set_features(VERSION_1 | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()).unwrap();
    front_end
}

#[test]
fn memory_is_limited_after_a_reset_owner_too() {
    let (lab, pingpong) = lab(None);
    let memory = Memory::new(&[(0x1000, 1 << 20)]).unwrap();
    memory.truncate(1 << 43);
    for (socket, name) in [(lab.socket(0), "RDMA"), (lab.net_socket(0), "Ethernet")] {
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 1 << 40,
            memory_size: 1 << 42,
            userspace_addr: 1 << 40,
            mmap_offset: 0,
            mmap_handle: memory.fd(),
        };
        assert!(open_and_reset(&socket, &memory).link().set_mem_table(&[region]).is_err(), "{name}");
        wait_for_message(&lab, &format!("{name}: front-end disconnected: SET_MEM_TABLE: a memory region of"));
    }
    wait_for_message(&lab, "memory_max");
    pingpong.stop();
}

#[test]
fn memory_that_is_cut_short_after_a_reset_owner_ends_the_connection() {
    let (lab, pingpong) = lab(None);
    let memory = Memory::new(&[(0x1000, 1 << 20)]).unwrap();
    let queue = queue(&memory);
    // The virtqueue that the function reads after a kick: control queue, transmit queue.
    for (socket, index) in [(lab.socket(0), 0), (lab.net_socket(0), 1)] {
        memory.truncate(1 << 20);
        let mut front_end = open_and_reset(&socket, &memory);
        front_end.set_memory(&memory, memory.regions()).unwrap();
        front_end.start(index, &queue, 0).unwrap();
        memory.truncate(0);
        queue.kick.write(1).unwrap();
        wait::until("the daemon to close the connection", || front_end.is_closed().then_some(()));
    }
    assert!(lab.stats().memory_faults() >= 2);
    pingpong.stop();
}

/// A new owner of a connection starts without any state.
///
/// A VMM may plug a device anew over its previous connection, as QEMU does by `device_del` and
/// `device_add` with one chardev. It then sends everything again, and nothing from before applies.
#[test]
fn who_owns_a_connection_anew_starts_from_nothing() {
    let (lab, pingpong) = lab(None);
    let memory = Memory::new(&[(0x1000, 1 << 20)]).unwrap();
    let queue = queue(&memory);
    for (socket, index) in [(lab.socket(0), 0), (lab.net_socket(0), 1)] {
        let mut front_end = FrontEnd::open(&socket, 0, &memory).unwrap();
        for _ in 0..3 {
            front_end.start(index, &queue, 0).unwrap();
            front_end.link().set_owner().unwrap();
            let features = VERSION_1 | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
            front_end.link().set_features(features).unwrap();
            for region in memory.regions() {
                front_end.add_region(&memory, region).unwrap();
            }
        }
    }
    pingpong.stop();
}

#[test]
fn a_file_shorter_than_its_region_is_refused() {
    let (lab, pingpong) = lab(None);
    let memory = Memory::new(&[(0x1000, 1 << 20)]).unwrap();
    memory.truncate(0xff000);
    for socket in [lab.socket(0), lab.net_socket(0)] {
        assert!(FrontEnd::open(&socket, 0, &memory).is_err());
    }
    wait_for_message(
        &lab,
        "g0, RDMA: front-end disconnected: SET_MEM_TABLE: a memory region of 1048576 bytes at offset 0 of a file that has 1044480",
    );
    assert_eq!(lab.stats().memory_faults(), 0);
    pingpong.stop();
}

/// Objects in memory that a new table leaves out keep no old table mapped.
///
/// CQs, channels and virtqueues are in memory that comes and goes with the tables. The guest leaves
/// them unchanged meanwhile.
#[test]
fn what_a_new_table_leaves_out_keeps_no_old_one_mapped() {
    const EXTRA: (u64, u64) = (0x2_0000_0000, 1 << 20);
    const ROUNDS: u64 = 40;
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_vrdma-test-daemon")));
    let mut options = LabOptions { program, ..LabOptions::default() };
    options.guest.memory.push(EXTRA);
    let mut lab = Lab::without_guests(3, options);
    lab.guests = vec![lab.connect(1), lab.connect(2)];
    let pingpong = PingPong::start(&lab.guests[0], &lab.guests[1]);
    let guest = lab.connect(0);
    let memory = &guest.memory;
    assert!(memory.reserve(EXTRA.0, EXTRA.1));
    let (all, rest) = (memory.regions(), &memory.regions()[..2]);
    let mut net = FrontEnd::open(&lab.net_socket(0), 0, memory).unwrap();
    let set_memory = |net: &mut FrontEnd, table| {
        guest.front_end().set_memory(memory, table).unwrap();
        net.set_memory(memory, table).unwrap();
    };
    let mapped = || proc::guest_bytes(lab.daemon.pid());
    let whole = mapped();
    set_memory(&mut net, rest);
    wait::until("the old tables to go", || (mapped() == whole - 2 * EXTRA.1).then_some(()));
    let context = guest.alloc_context().unwrap();
    let (mut cqs, mut channels) = (Vec::new(), Vec::new());
    let mut at = EXTRA.0;
    let mut place = |len: u64| {
        let place = at;
        at += len.next_multiple_of(0x1000);
        place
    };
    for round in 0..ROUNDS {
        set_memory(&mut net, all);
        cqs.push(guest.create_cq(context, 16, 0, &[run(place(0x1000), 16 * 32 + 128)]).unwrap());
        if let Some(queue) = guest.take_channel() {
            let ring = &guest.queues[usize::from(queue)].ring;
            let window = (place(64 * u64::from(ring.size)), 64 * u64::from(ring.size));
            ring.clear();
            (0..ring.size).for_each(|i| ring.set_desc(i, window.0 + 64 * u64::from(i), 64, 0, 0));
            guest.bind_channel(context, queue, &[run(window.0, window.1)]).unwrap();
            channels.push(queue);
        }
        if round < 2 {
            let (memory, page) = (memory.clone(), place(0x1000));
            let ring = Ring { memory, size: 16, desc: page, avail: page + 0x400, used: page + 0x800 };
            net.start(round as u16, &Queue { ring, ..queue(&guest.memory) }, 0).unwrap();
        }
        set_memory(&mut net, rest);
    }
    let back = wait::within(wait::PATIENCE, || (mapped() == whole - 2 * EXTRA.1).then_some(()));
    assert!(back.is_some(), "{} bytes of guests are mapped, {whole} with the extra memory", mapped());
    assert_eq!((cqs.len() as u64, channels.len()), (ROUNDS, 12));
    // They stay broken when their memory returns, and can be destroyed.
    set_memory(&mut net, all);
    channels.into_iter().for_each(|queue| guest.unbind_channel(queue).unwrap());
    cqs.into_iter().for_each(|cqn| guest.destroy_cq(cqn).unwrap());
    (0..2).for_each(|index| assert_eq!(net.stop(index).unwrap(), 0));
    pingpong.stop();
}

/// The daemon disconnects a guest that truncates its memory, and keeps nothing.
///
/// Otherwise the pages that the device writes in place of the truncated file would stay with the
/// daemon.
#[test]
fn memory_that_is_cut_short_costs_its_guest_the_device_and_the_daemon_nothing() {
    const LEN: u64 = 16 << 20;
    let (mut lab, pingpong) = lab(None);
    let pid = lab.daemon.pid();
    let (open, resident) = (proc::descriptors(pid), proc::anonymous(pid));
    for round in 0..4 {
        let guest = lab.connect(0);
        lab.guests.insert(0, guest);
        let (a, mut b) = pair(&lab, 1, LEN, &QpOptions { timeout: 14, retry_cnt: 1, ..QpOptions::default() });
        let victim = a.guest().clone();
        victim.memory.truncate(0);
        // Data that arrives from here on goes to pages that nothing else uses.
        let own = [b.mr.sge(0, LEN as u32)];
        b.post(&Request::write(b.qp.tag(1), a.mr.remote(0), Data::Sges(&own)).signaled(true));
        let closed = || victim.front_end().is_closed().then_some(());
        wait::until("the daemon to close the connection", closed);
        b.cq.wait();
        // This process must not touch the guest's remaining memory either.
        std::mem::forget(a);
        lab.guests.remove(0);
        lab.expect_nothing_left(0);
        b.close();
        wait_for_message(&lab, "g0, RDMA: front-end disconnected: it cut the file behind its memory short");
        println!("round {round}: {} MiB of its own", proc::anonymous(pid) >> 20);
    }
    let back = || (proc::descriptors(pid) <= open && proc::anonymous(pid) < resident + LEN / 2).then_some(());
    let back = wait::within(wait::PATIENCE, back);
    assert!(back.is_some(), "{} bytes of its own, {resident} before", proc::anonymous(pid));
    assert!(lab.stats().memory_faults() >= 4);
    pingpong.stop();
}
