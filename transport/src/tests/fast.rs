//! Fast registration: requests of the kernel's QPs set the memory of a region.
//!
//! Tests run on one engine and with packets.

use super::operations::{Topology, Walk, all_walks, states};
use super::wire::{A, B};
use super::*;
use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

const PAGE: u64 = 4096;
const NOTHING: Payload<'_> = Payload::Sges(&[]);
/// Offset of the tests' page lists in B's memory.
const LIST: u64 = 0x4_0000;
/// B's pages in most tests: neither in order nor contiguous.
const PAGES: [u64; 3] = [0x2_3000, 0x2_1000, 0x2_7000];
/// I/O virtual address of the first byte, which is 16 bytes into the first page.
const FIRST: u64 = 0x5000_0010;
const LENGTH: u64 = 2 * PAGE + 100;
const RIGHTS: Access = Access(Access::ALL.0);

/// Returns all kinds of connections.
fn connections() -> impl Iterator<Item = (QpType, bool)> {
    all_walks().filter(|walk| walk.0 != QpType::Ud)
}

/// Creates two QPs of their kernels. Each of A and B has a region of all its memory.
fn kernels(service: QpType, packets: bool) -> Walk {
    let mut walk = Walk::new(service, packets);
    walk.poster = OwnerId::KERNEL;
    for at in [A, B] {
        let End { device, memory, .. } = walk.ends[at].clone();
        let (engine, ..) = walk.engine(at);
        let pd = engine.alloc_pd(device, OwnerId::KERNEL).unwrap();
        let key = engine.reg_mr(device, pd, Access::ALL, IOVA, 1 << 20, memory).unwrap();
        let init = QpInit { owner: OwnerId::KERNEL, qp_type: service, max_send_wr: 64, ..qp_init(pd) };
        let qpn = engine.create_qp(device, init).unwrap();
        walk.ends[at] = End { pd, key, qpn, ..walk.ends[at].clone() };
        walk.attrs[1 - at].dest_qpn = qpn;
    }
    walk
}

fn ready(service: QpType, packets: bool) -> Walk {
    let mut walk = kernels(service, packets);
    walk.make_ready();
    walk
}

/// Allocates a region of B for registrations of up to `max_pages` pages, and returns its key.
fn region(walk: &mut Walk, max_pages: u32) -> Rkey {
    let End { device, pd, memory, .. } = walk.ends[B].clone();
    Rkey(walk.engine(B).0.alloc_fast_mr(device, pd, max_pages, memory).unwrap())
}

fn write_list(walk: &Walk, pages: &[u64]) {
    let list: Vec<u8> = pages.iter().flat_map(|page| page.to_le_bytes()).collect();
    walk.ends[B].memory.fill(LIST as usize, &list);
}

/// Builds a registration of [`PAGES`] with the region of a key, and returns it with its new key.
///
/// Only the key's tag changes.
fn registration(key: Rkey) -> (SendOp, Rkey) {
    let key = Rkey(key.0 ^ 0x81);
    let (access, iova, length, list) = (RIGHTS, FIRST, LENGTH, LIST);
    (SendOp::RegMr { key, access, iova, length, list, page_shift: 12 }, key)
}

/// Posts a request for B's own keys, and returns the status of its completion.
fn change(walk: &mut Walk, op: SendOp) -> WcStatus {
    walk.post(B, op, NOTHING).unwrap();
    walk.run();
    let mut ends = walk.completions(B);
    ends.retain(|end| end.opcode != WcOpcode::Recv);
    assert_eq!(ends.len(), 1, "{ends:?}");
    let registers = matches!(op, SendOp::RegMr { .. });
    let opcode = if registers { WcOpcode::RegMr } else { WcOpcode::LocalInvalidate };
    assert_eq!((ends[0].opcode, ends[0].byte_len, ends[0].id), (opcode, 0, 7));
    ends[0].status
}

/// Registers [`PAGES`] with a new region of B, and returns its key.
fn registered(walk: &mut Walk) -> Rkey {
    let key = region(walk, 8);
    write_list(walk, &PAGES);
    let (op, key) = registration(key);
    assert_eq!(change(walk, op), WcStatus::Success);
    key
}

fn counters(walk: &mut Walk) -> Counters {
    let device = walk.ends[B].device;
    walk.engine(B).0.counters(device).clone()
}

/// Posts A's WRITE of these bytes by a key of B, and returns the status of its completion.
fn write(walk: &mut Walk, rkey: Rkey, addr: u64, data: &[u8]) -> WcStatus {
    walk.ends[A].memory.fill(0, data);
    let sges = [walk.ends[A].sge(0, data.len() as u32)];
    walk.post(A, write_to(Remote { addr, rkey }), Payload::Sges(&sges)).unwrap();
    walk.run();
    walk.end().0
}

/// Returns the bytes of B's memory at `offset` of the registered pages.
fn found(walk: &Walk, offset: u64, length: u64) -> Vec<u8> {
    let at = |offset: u64| PAGES[(offset / PAGE) as usize] + offset % PAGE;
    let bytes = (0..length).map(|n| at(FIRST % PAGE + offset + n));
    bytes.flat_map(|at| walk.ends[B].memory.bytes(at as usize, 1)).collect()
}

/// Resets both QPs from any state, and connects them again.
fn connect_again(walk: &mut Walk) {
    for at in [A, B] {
        walk.modify(at, AttrMask::STATE, QpAttr { state: Reset, ..QpAttr::default() });
    }
    walk.make_ready();
    // Drop the flushed completions.
    [A, B].into_iter().for_each(|at| drop(walk.completions(at)));
}

/// Returns the status that the requester gets for a refused WRITE.
fn refused(service: QpType) -> WcStatus {
    if service == QpType::Rc { WcStatus::RemAccess } else { WcStatus::Success }
}

#[test]
fn peers_reach_what_was_registered_until_it_is_invalidated() {
    for (service, packets) in connections() {
        let case = format!("{service:?}, packets: {packets}");
        let mut walk = ready(service, packets);
        let free = region(&mut walk, 8);
        write_list(&walk, &PAGES);
        for key in [free, Rkey(free.0 ^ 0x81)] {
            assert_eq!(write(&mut walk, key, FIRST, b"too soon"), refused(service), "{case}");
            connect_again(&mut walk);
        }
        let (op, key) = registration(free);
        assert_eq!(change(&mut walk, op), WcStatus::Success, "{case}");
        // The list is read only once.
        write_list(&walk, &[0x8_0000; 3]);
        let data: Vec<u8> = (0..LENGTH).map(|n| (n % 251) as u8 + 1).collect();
        assert_eq!(write(&mut walk, key, FIRST, &data), WcStatus::Success, "{case}");
        assert_eq!(found(&walk, 0, LENGTH), data, "{case}");
        assert_eq!(write(&mut walk, key, FIRST + LENGTH - 3, b"past it."), refused(service), "{case}");
        connect_again(&mut walk);
        assert_eq!(write(&mut walk, free, FIRST, b"old tag."), refused(service), "{case}");
        connect_again(&mut walk);
        assert_eq!(found(&walk, 0, LENGTH), data, "{case}");
        assert_eq!(change(&mut walk, SendOp::LocalInvalidate { key }), WcStatus::Success, "{case}");
        assert_eq!(write(&mut walk, key, FIRST, b"too late"), refused(service), "{case}");
        connect_again(&mut walk);
        assert_eq!(found(&walk, 0, LENGTH), data, "{case}");
        // Register again, with other pages.
        let (op, key) = registration(key);
        write_list(&walk, &[0x6_0000, 0x6_1000, 0x6_2000]);
        assert_eq!(change(&mut walk, op), WcStatus::Success, "{case}");
        assert_eq!(write(&mut walk, key, FIRST, b"again..."), WcStatus::Success, "{case}");
        assert_eq!(walk.ends[B].memory.bytes(0x6_0010, 8), b"again...", "{case}");
        assert_eq!(found(&walk, 0, LENGTH), data, "{case}");
        let counters = counters(&mut walk);
        assert_eq!((counters.registrations, counters.invalidations), (2, 1), "{case}");
    }
}

#[test]
fn own_requests_use_what_was_registered() {
    for packets in [false, true] {
        let mut walk = ready(QpType::Rc, packets);
        let free = region(&mut walk, 8);
        let sge = |key: Rkey, offset| Sge { addr: FIRST + offset, length: 5000, lkey: Lkey(key.0) };
        let to = walk.ends[A].remote(0);
        let ends = |walk: &mut Walk, op, sge| {
            walk.post(B, op, Payload::Sges(&[sge])).unwrap();
            walk.run();
            walk.completions(B).iter().map(|end| end.status).collect::<Vec<_>>()
        };
        assert_eq!(
            ends(&mut walk, write_to(to), sge(free, 0))[0],
            WcStatus::LocProt,
            "{packets}: it is free"
        );
        connect_again(&mut walk);
        let key = registered(&mut walk);
        let data: Vec<u8> = (0..5000).map(|n| (n % 253) as u8).collect();
        let at = (PAGES[0] + FIRST % PAGE) as usize;
        let first = (PAGE - FIRST % PAGE) as usize;
        walk.ends[B].memory.fill(at, &data[..first]);
        walk.ends[B].memory.fill(PAGES[1] as usize, &data[first..]);
        assert_eq!(ends(&mut walk, write_to(to), sge(key, 0)), [WcStatus::Success], "{packets}");
        assert_eq!(walk.ends[A].memory.bytes(0, 5000), data, "{packets}");
        walk.ends[A].memory.fill(0, &[9; 5000]);
        assert_eq!(ends(&mut walk, SendOp::Read { remote: to }, sge(key, 100)), [WcStatus::Success]);
        assert_eq!(found(&walk, 100, 5000), [9; 5000], "{packets}");
        assert_eq!(change(&mut walk, SendOp::LocalInvalidate { key }), WcStatus::Success);
        assert_eq!(ends(&mut walk, write_to(to), sge(key, 0))[0], WcStatus::LocProt, "{packets}");
    }
}

/// A wrong registration of a region for 8 pages: what is wrong, its builder, and the expected
/// status.
type Wrong = (&'static str, fn(&mut Walk, Rkey) -> SendOp, WcStatus);

/// Returns the tests' usual registration with changes.
fn but(key: Rkey, changed: impl FnOnce(&mut (Rkey, Access), &mut (u64, u64), &mut (u64, u8))) -> SendOp {
    let (mut of, mut range, mut pages) = ((key, RIGHTS), (FIRST, LENGTH), (LIST, 12));
    changed(&mut of, &mut range, &mut pages);
    let ((key, access), (iova, length), (list, page_shift)) = (of, range, pages);
    SendOp::RegMr { key, access, iova, length, list, page_shift }
}

#[test]
fn a_bad_registration_ends_with_its_status_and_changes_nothing() {
    use WcStatus::{LocProt, MwBind};
    let cases: [Wrong; 17] = [
        ("an ordinary region", |walk, _| but(Rkey(walk.ends[B].key), |_, _, _| {}), MwBind),
        (
            "a window",
            |walk, _| {
                let End { device, pd, .. } = walk.ends[B];
                but(walk.engine(B).0.alloc_mw(device, pd, MwType::Type2B).unwrap(), |_, _, _| {})
            },
            MwBind,
        ),
        ("nothing", |_, key| but(Rkey(key.0 + 0x100), |_, _, _| {}), MwBind),
        (
            "another PD",
            |walk, _| {
                let End { device, memory, .. } = walk.ends[B].clone();
                let (engine, ..) = walk.engine(B);
                let pd = engine.alloc_pd(device, OwnerId::KERNEL).unwrap();
                but(Rkey(engine.alloc_fast_mr(device, pd, 8, memory).unwrap()), |_, _, _| {})
            },
            MwBind,
        ),
        (
            "one that is not free",
            |walk, _| {
                let key = registered(walk);
                but(key, |_, _, _| {})
            },
            MwBind,
        ),
        ("a page too many", |_, key| but(key, |_, range, _| range.1 = 8 * PAGE - 15), MwBind),
        ("more than any region has", |_, key| but(key, |_, range, _| range.1 = 513 * PAGE), MwBind),
        ("addresses that wrap", |_, key| but(key, |_, range, _| range.0 = 0xffff_ffff_ffff_f010), MwBind),
        ("pages that are small", |_, key| but(key, |_, range, pages| (range.1, pages.1) = (9, 11)), MwBind),
        ("pages of no size", |_, key| but(key, |_, _, pages| pages.1 = 255), MwBind),
        ("windows", |_, key| but(key, |of, _, _| of.1 = Access::REGION), MwBind),
        ("unknown rights", |_, key| but(key, |of, _, _| of.1 = Access(0x8000_0000)), MwBind),
        ("peers that write alone", |_, key| but(key, |of, _, _| of.1 = Access::REMOTE_WRITE), MwBind),
        ("a list that is no memory", |_, key| but(key, |_, _, pages| pages.0 = (1 << 20) - 16), LocProt),
        ("a list at the end of all", |_, key| but(key, |_, _, pages| pages.0 = u64::MAX - 7), LocProt),
        (
            "a page that is no memory",
            |walk, key| {
                write_list(walk, &[PAGES[0], 1 << 20, PAGES[2]]);
                but(key, |_, _, _| {})
            },
            LocProt,
        ),
        (
            "a page that begins anywhere",
            |walk, key| {
                write_list(walk, &[PAGES[0], PAGES[1], PAGES[2] + 8]);
                but(key, |_, _, _| {})
            },
            LocProt,
        ),
    ];
    for (service, packets) in connections() {
        for (what, wrong, status) in &cases {
            let case = format!("{what}: {service:?}, packets: {packets}");
            let mut walk = ready(service, packets);
            let (key, other) = (region(&mut walk, 8), registered(&mut walk));
            let op = wrong(&mut walk, key);
            walk.completions(B);
            walk.post(B, op, NOTHING).unwrap();
            walk.post(B, SEND, NOTHING).unwrap();
            walk.run();
            let sends = walk.completions(B).into_iter().filter(|end| end.opcode != WcOpcode::Recv);
            let statuses: Vec<_> = sends.map(|end| end.status).collect();
            assert_eq!(statuses, [*status, WcStatus::Flush], "{case}");
            assert_eq!(walk.query(B).state, if service == QpType::Rc { Err } else { Sqe }, "{case}");
            connect_again(&mut walk);
            // The region is free under its previous key.
            write_list(&walk, &PAGES);
            assert_eq!(write(&mut walk, other, FIRST, b"as it was"), WcStatus::Success, "{case}");
            assert_eq!(change(&mut walk, SendOp::LocalInvalidate { key }), WcStatus::Success, "{case}");
            let (op, key) = registration(key);
            assert_eq!(change(&mut walk, op), WcStatus::Success, "{case}");
            assert_eq!(write(&mut walk, key, FIRST, b"then."), WcStatus::Success, "{case}");
            assert_eq!(found(&walk, 0, 9), b"then. was", "{case}");
        }
    }
}

#[test]
fn a_list_of_pages_is_for_the_kernels_qps_alone() {
    for (service, packets) in connections() {
        let mut walk = kernels(service, packets);
        let key = region(&mut walk, 8);
        // A process' QPs cannot register, whoever posts to them.
        for poster in [OWNER, OwnerId::KERNEL] {
            let mut walk = Walk::ready(service, packets);
            walk.poster = poster;
            let End { device, pd, memory, .. } = walk.ends[B].clone();
            let (engine, ..) = walk.engine(B);
            let refused = engine.alloc_fast_mr(device, pd, 8, memory.clone()).err();
            assert_eq!(refused, Some(Error::Denied));
            let pd = engine.alloc_pd(device, OwnerId::KERNEL).unwrap();
            let key = Rkey(engine.alloc_fast_mr(device, pd, 8, memory).unwrap());
            write_list(&walk, &PAGES);
            let (op, _) = registration(key);
            assert_eq!(change(&mut walk, op), WcStatus::LocQpOp, "{service:?} {packets} {poster:?}");
            let counters = counters(&mut walk);
            assert_eq!((counters.registrations, counters.refused_registrations), (0, 1));
            connect_again(&mut walk);
            // They cannot invalidate a registration either.
            assert_eq!(change(&mut walk, SendOp::LocalInvalidate { key }), WcStatus::LocQpOp);
        }
        // The process may not post to the kernel's QP.
        walk.make_ready();
        walk.poster = OWNER;
        let (op, _) = registration(key);
        assert_eq!(walk.post(B, op, NOTHING), Result::Err(PostError::NotOwner));
        assert_eq!(counters(&mut walk).post_not_owner, 1);
    }
}

#[test]
fn datagrams_and_states_have_registrations_as_they_have_binds() {
    for (service, packets) in all_walks() {
        for state in states(service) {
            let case = format!("{service:?}, packets: {packets}, in {state:?}");
            let mut walk = kernels(service, packets);
            let key = region(&mut walk, 8);
            write_list(&walk, &PAGES);
            walk.go(A, Rts);
            walk.go(B, state);
            let (op, _) = registration(key);
            let posted = walk.post(B, op, NOTHING);
            walk.run();
            let found: Vec<_> = walk.completions(B).iter().map(|end| end.status).collect();
            if matches!(state, Reset | Init | Rtr) {
                assert_eq!((posted, found), (Result::Err(PostError::BadState), vec![]), "{case}");
                continue;
            }
            let right = if service == QpType::Ud { WcStatus::LocQpOp } else { WcStatus::Success };
            let expected = match state {
                Sqd => {
                    assert_eq!(found, [], "{case}");
                    walk.modify(B, AttrMask::STATE, QpAttr { state: Rts, ..QpAttr::default() });
                    walk.run();
                    assert_eq!(walk.completions(B)[0].status, right, "{case}");
                    continue;
                }
                Sqe | Err => WcStatus::Flush,
                _ => right,
            };
            assert_eq!(found, [expected], "{case}");
        }
    }
}

#[test]
fn a_send_of_the_peer_invalidates_what_it_can_reach() {
    for packets in [false, true] {
        for (access, right) in
            [(RIGHTS, true), (Access::REMOTE_READ, true), (Access::LOCAL_WRITE, false), (Access::NONE, false)]
        {
            let case = format!("packets: {packets}, {access:?}");
            let mut walk = ready(QpType::Rc, packets);
            let key = region(&mut walk, 8);
            write_list(&walk, &PAGES);
            let op = but(key, |of, _, _| of.1 = access);
            assert_eq!(change(&mut walk, op), WcStatus::Success, "{case}");
            walk.post(A, SendOp::SendInvalidate { key }, NOTHING).unwrap();
            walk.run();
            let expected = if right { WcStatus::Success } else { WcStatus::RemAccess };
            assert_eq!(walk.end(), (expected, WcOpcode::Send), "{case}");
            let received: Vec<_> =
                walk.completions(B).iter().map(|end| (end.status, end.invalidated)).collect();
            if !right {
                assert_eq!(received, [(WcStatus::RemInvReq, None)], "{case}");
                continue;
            }
            assert_eq!(received, [(WcStatus::Success, Some(key))], "{case}");
            assert_eq!(counters(&mut walk).peer_invalidations, 1, "{case}");
            assert_eq!(write(&mut walk, key, FIRST, b"too late"), WcStatus::RemAccess, "{case}");
            connect_again(&mut walk);
            // The region is free, and stays free if it is invalidated again.
            assert_eq!(change(&mut walk, SendOp::LocalInvalidate { key }), WcStatus::Success, "{case}");
            walk.post(A, SendOp::SendInvalidate { key }, NOTHING).unwrap();
            walk.run();
            assert_eq!(walk.end().0, WcStatus::Success, "{case}");
            walk.completions(B);
            let (op, key) = registration(key);
            assert_eq!(change(&mut walk, op), WcStatus::Success, "{case}");
            assert_eq!(write(&mut walk, key, FIRST, b"in time."), WcStatus::Success, "{case}");
            assert_eq!(found(&walk, 0, 8), b"in time.", "{case}");
        }
    }
}

/// A registration waits for all requests before it, and all requests after it wait for it.
///
/// With packets, several requests are in flight at once.
#[test]
fn a_registration_begins_when_all_before_it_have_ended_and_serves_those_behind() {
    let mut walk = ready(QpType::Rc, true);
    let key = region(&mut walk, 8);
    let [a, b] = walk.ends.clone();
    write_list(&walk, &PAGES);
    let (op, key) = registration(key);
    walk.post(B, write_to(a.remote(0)), Payload::Sges(&[b.sge(0, 3000)])).unwrap();
    walk.post(B, op, NOTHING).unwrap();
    let sges = [Sge { addr: FIRST, length: 8, lkey: Lkey(key.0) }];
    walk.post(B, write_to(a.remote(8192)), Payload::Sges(&sges)).unwrap();
    walk.post(B, SendOp::LocalInvalidate { key }, NOTHING).unwrap();
    let (again, _) = registration(key);
    walk.post(B, again, NOTHING).unwrap();
    let Topology::Packets(net) = &mut walk.topology else { unreachable!() };
    net.work(B);
    assert_eq!(net.hosts[B].cable.frames.len(), 3, "and nothing behind");
    assert_eq!(net.hosts[B].engine.counters(b.device).registrations, 0);
    b.memory.fill((PAGES[0] + FIRST % PAGE) as usize, b"in order");
    walk.run();
    let opcodes: Vec<_> = walk.completions(B).iter().map(|end| (end.opcode, end.status)).collect();
    let all = [WcOpcode::Write, WcOpcode::RegMr, WcOpcode::Write, WcOpcode::LocalInvalidate, WcOpcode::RegMr];
    assert_eq!(opcodes, all.map(|opcode| (opcode, WcStatus::Success)));
    assert_eq!(a.memory.bytes(8192, 8), b"in order");
}

#[test]
fn memory_that_is_gone_gives_errors() {
    let mut walk = ready(QpType::Rc, false);
    let (key, free) = (registered(&mut walk), region(&mut walk, 8));
    walk.ends[B].memory.vanish();
    assert_eq!(write(&mut walk, key, FIRST, b"nowhere."), WcStatus::RemOp);
    connect_again(&mut walk);
    let (op, _) = registration(free);
    assert_eq!(change(&mut walk, op), WcStatus::LocProt);
}

#[test]
fn long_lists_cost_what_they_take() {
    let most = MAX_PAGES;
    let pages = vec![0x3_0000; most as usize];
    // Within a post, as many registrations as 4 MiB allow.
    let mut walk = ready(QpType::Rc, false);
    let key = region(&mut walk, most);
    write_list(&walk, &pages);
    let length = u64::from(most) * PAGE;
    for _ in 0..70 {
        let op = but(key, |_, range, _| *range = (0x7000_0000, length));
        walk.post(B, op, NOTHING).unwrap();
        walk.post(B, SendOp::LocalInvalidate { key }, NOTHING).unwrap();
    }
    let done = counters(&mut walk).registrations;
    assert!((60..65).contains(&done), "{done} of 70");
    walk.run();
    assert_eq!(counters(&mut walk).registrations, 70);
    assert!(walk.completions(B).iter().all(|end| end.status == WcStatus::Success));
    // With packets, as many registrations as the byte budget of a round allows.
    let mut walk = ready(QpType::Rc, true);
    let key = region(&mut walk, most);
    write_list(&walk, &pages);
    for _ in 0..10 {
        let op = but(key, |_, range, _| *range = (0x7000_0000, length));
        walk.post(B, op, NOTHING).unwrap();
        walk.post(B, SendOp::LocalInvalidate { key }, NOTHING).unwrap();
    }
    let Topology::Packets(net) = &mut walk.topology else { unreachable!() };
    let (now, host) = (net.now, &mut net.hosts[B]);
    host.engine.transmit(now, 300, &mut host.cable, &mut host.log);
    let done = host.engine.counters(DeviceId(0)).registrations;
    assert!((1..5).contains(&done), "{done} of 10");
    walk.run();
    assert_eq!(counters(&mut walk).registrations, 10);
}

#[test]
fn regions_for_registration_are_made_and_go_like_others() {
    let mut walk = ready(QpType::Rc, false);
    let End { device, pd, memory, .. } = walk.ends[B].clone();
    let key = registered(&mut walk);
    let (engine, ..) = walk.engine(B);
    let counts = engine.counts(device);
    assert_eq!((counts.mrs, counts.mws), (3, 0));
    for (pd, pages, error) in
        [(PdId(999), 8, Error::NotFound), (pd, 0, Error::Invalid), (pd, MAX_PAGES + 1, Error::Invalid)]
    {
        assert_eq!(engine.alloc_fast_mr(device, pd, pages, memory.clone()).err(), Some(error), "{pages}");
    }
    let nothing = Rereg { pd: None, access: Some(Access::NONE), memory: None };
    assert_eq!(engine.rereg_mr(device, key.0, nothing).err(), Some(Error::Invalid));
    assert_eq!(engine.dealloc_mw(device, key), Result::Err(Error::NotFound), "it is no window");
    let other = engine.alloc_pd(device, OwnerId::KERNEL).unwrap();
    let spare = engine.alloc_fast_mr(device, other, 1, memory).unwrap();
    assert_eq!(engine.dealloc_pd(device, other), Result::Err(Error::Busy));
    // The tag does not matter: a request may not have changed it.
    engine.dereg_mr(device, spare ^ 0xff).unwrap();
    engine.dealloc_pd(device, other).unwrap();
    assert_eq!(engine.dereg_mr(device, spare).err(), Some(Error::NotFound));
    engine.dereg_mr(device, key.0 ^ 0x81).unwrap();
    assert_eq!(write(&mut walk, key, FIRST, b"too late"), WcStatus::RemAccess);
    connect_again(&mut walk);
    let (op, _) = registration(key);
    assert_eq!(change(&mut walk, op), WcStatus::MwBind);
    let mut engine = Engine::<Mem>::new(1);
    let device = engine.add_device(Limits { max_mr: 1, ..Limits::default() });
    let pd = engine.alloc_pd(device, OwnerId::KERNEL).unwrap();
    engine.alloc_fast_mr(device, pd, 8, Mem::new(8)).unwrap();
    assert_eq!(engine.alloc_fast_mr(device, pd, 8, Mem::new(8)).err(), Some(Error::NoResources));
    engine.reset_device(device);
    assert_eq!(engine.counts(device), ObjectCounts::default());
}

#[test]
fn no_window_is_bound_to_what_was_registered() {
    let mut walk = ready(QpType::Rc, false);
    let key = registered(&mut walk);
    let End { device, pd, .. } = walk.ends[B];
    let rkey = walk.engine(B).0.alloc_mw(device, pd, MwType::Type1).unwrap();
    let (lkey, access) = (Lkey(key.0), Access::REMOTE_READ);
    let bind = Bind { rkey, new_rkey: rkey, lkey, access, addr: FIRST, length: 8 };
    walk.post(B, SendOp::BindMw(bind), NOTHING).unwrap();
    walk.run();
    assert_eq!(walk.completions(B)[0].status, WcStatus::MwBind);
}
