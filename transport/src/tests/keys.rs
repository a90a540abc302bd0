//! Memory windows, and keys that are invalidated, on one engine and with packets.

use super::operations::{Topology, Walk, all_walks, states};
use super::wire::{A, B};
use super::*;
use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

/// Offset of the tests' windows in B's region. They have [`LENGTH`] bytes.
const SHOWN: u64 = 4096;
const LENGTH: u64 = 64;
const RW: Access = Access(Access::REMOTE_WRITE.0 | Access::REMOTE_READ.0);
const NOTHING: Payload<'_> = Payload::Sges(&[]);

/// Returns all kinds of connections.
fn connections() -> impl Iterator<Item = (QpType, bool)> {
    all_walks().filter(|walk| walk.0 != QpType::Ud)
}

/// Registers B's region, to which windows may be bound.
fn region(walk: &mut Walk) -> Lkey {
    let End { device, pd, memory, .. } = walk.ends[B].clone();
    let (engine, ..) = walk.engine(B);
    Lkey(engine.reg_mr(device, pd, Access::REGION, IOVA, 1 << 20, memory).unwrap())
}

fn window(walk: &mut Walk, mw_type: MwType) -> Rkey {
    let End { device, pd, .. } = walk.ends[B];
    walk.engine(B).0.alloc_mw(device, pd, mw_type).unwrap()
}

/// Returns a bind of B's window to [`LENGTH`] bytes from [`SHOWN`] on.
fn bind(rkey: Rkey, lkey: Lkey) -> Bind {
    Bind { rkey, new_rkey: Rkey(rkey.0 ^ 0x81), lkey, access: RW, addr: IOVA + SHOWN, length: LENGTH }
}

/// Posts a request for B's own keys, and returns the status of its completion.
fn change(walk: &mut Walk, op: SendOp) -> WcStatus {
    walk.post(B, op, NOTHING).unwrap();
    walk.run();
    let ends = walk.completions(B);
    assert_eq!(ends.len(), 1, "{ends:?}");
    let opcode = match op {
        SendOp::BindMw(_) => WcOpcode::BindMw,
        _ => WcOpcode::LocalInvalidate,
    };
    assert_eq!((ends[0].opcode, ends[0].byte_len, ends[0].id), (opcode, 0, 7));
    ends[0].status
}

/// Allocates and binds a window of B. Returns its key and that of its region.
fn bound(walk: &mut Walk, mw_type: MwType) -> (Rkey, Lkey) {
    let (lkey, rkey) = (region(walk), window(walk, mw_type));
    let bind = bind(rkey, lkey);
    assert_eq!(change(walk, SendOp::BindMw(bind)), WcStatus::Success);
    (bind.new_rkey, lkey)
}

/// Posts A's WRITE of 8 bytes to an address by a key of B, and returns the status of its
/// completion.
fn write(walk: &mut Walk, rkey: Rkey, addr: u64, data: &[u8; 8]) -> WcStatus {
    walk.post(A, SendOp::Write { remote: Remote { addr, rkey }, imm: None }, Payload::Inline(data)).unwrap();
    walk.run();
    walk.end().0
}

fn shown(walk: &Walk) -> Vec<u8> {
    walk.ends[B].memory.bytes(SHOWN as usize, 8)
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

#[test]
fn peers_reach_a_window_while_it_is_bound() {
    for (service, packets) in connections() {
        for mw_type in [MwType::Type1, MwType::Type2B] {
            let case = format!("{service:?}, packets: {packets}, {mw_type:?}");
            let refused = if service == QpType::Rc { WcStatus::RemAccess } else { WcStatus::Success };
            let mut walk = Walk::ready(service, packets);
            let (key, lkey) = bound(&mut walk, mw_type);
            assert_eq!(write(&mut walk, key, IOVA + SHOWN, b"in it..."), WcStatus::Success, "{case}");
            assert_eq!(shown(&walk), b"in it...", "{case}");
            assert_eq!(write(&mut walk, key, IOVA + SHOWN + LENGTH - 7, b"past it."), refused, "{case}");
            assert_eq!(walk.ends[B].memory.bytes((SHOWN + LENGTH) as usize, 8), [0; 8], "{case}");
            if service == QpType::Rc {
                connect_again(&mut walk);
            }
            let key = match mw_type {
                MwType::Type1 => {
                    let end = SendOp::BindMw(Bind { length: 0, ..bind(key, lkey) });
                    assert_eq!(change(&mut walk, end), WcStatus::Success, "{case}");
                    bind(key, lkey).new_rkey
                }
                // The reset of the QP has removed the window.
                MwType::Type2B if service == QpType::Rc => key,
                MwType::Type2B => {
                    assert_eq!(
                        change(&mut walk, SendOp::LocalInvalidate { key }),
                        WcStatus::Success,
                        "{case}"
                    );
                    key
                }
            };
            assert_eq!(write(&mut walk, key, IOVA + SHOWN, b"too late"), refused, "{case}");
            assert_eq!(shown(&walk), b"in it...", "{case}");
        }
    }
}

#[test]
fn a_window_serves_reads_and_atomics_as_its_rights_say() {
    for packets in [false, true] {
        for access in (0..16).map(|bits| Access(bits << 1 & Access::ALL.0)) {
            let case = format!("packets: {packets}, {access:?}");
            for zero_based in [false, true] {
                let mut walk = Walk::ready(QpType::Rc, packets);
                let (lkey, rkey) = (region(&mut walk), window(&mut walk, MwType::Type2B));
                let extra = if zero_based { Access::ZERO_BASED } else { Access::NONE };
                let request = Bind { access: access | extra, ..bind(rkey, lkey) };
                assert_eq!(change(&mut walk, SendOp::BindMw(request)), WcStatus::Success, "{case}");
                let addr = if zero_based { 8 } else { IOVA + SHOWN + 8 };
                let remote = Remote { addr, rkey: request.new_rkey };
                walk.ends[B].memory.fill(SHOWN as usize + 8, &7u64.to_ne_bytes());
                for (op, right) in [
                    (SendOp::Write { remote, imm: None }, Access::REMOTE_WRITE),
                    (SendOp::Read { remote }, Access::REMOTE_READ),
                    (SendOp::atomic(remote, Atomic::FetchAdd { add: 1 }), Access::REMOTE_ATOMIC),
                ] {
                    let payload = [walk.ends[A].sge(16_384, 8)];
                    walk.post(A, op, Payload::Sges(&payload)).unwrap();
                    walk.run();
                    let (status, _) = walk.end();
                    if access.contains(right) {
                        assert_eq!(status, WcStatus::Success, "{case} {op:?}");
                    } else {
                        assert_eq!(status, WcStatus::RemAccess, "{case} {op:?}");
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn a_bad_bind_or_invalidation_ends_with_its_status_and_stops_the_queue() {
    for (service, packets) in connections() {
        for case in 0..6 {
            let mut walk = Walk::ready(service, packets);
            let (one, lkey) = bound(&mut walk, MwType::Type1);
            let (two, _) = bound(&mut walk, MwType::Type2B);
            let free = window(&mut walk, MwType::Type2B);
            let (op, status) = match case {
                0 => (SendOp::BindMw(bind(two, lkey)), WcStatus::MwBind),
                1 => (SendOp::BindMw(bind(Rkey(one.0 ^ 2), lkey)), WcStatus::MwBind),
                2 => (SendOp::LocalInvalidate { key: one }, WcStatus::LocQpOp),
                3 => (SendOp::LocalInvalidate { key: free }, WcStatus::LocQpOp),
                4 => (SendOp::LocalInvalidate { key: Rkey(lkey.0) }, WcStatus::LocQpOp),
                _ => (SendOp::LocalInvalidate { key: Rkey(two.0 ^ 2) }, WcStatus::LocQpOp),
            };
            let case = format!("{service:?}, packets: {packets}, {op:?}");
            walk.post(B, op, NOTHING).unwrap();
            walk.post(B, SEND, NOTHING).unwrap();
            walk.run();
            let sends = walk.completions(B).into_iter().filter(|end| end.opcode != WcOpcode::Recv);
            let statuses: Vec<_> = sends.map(|end| end.status).collect();
            assert_eq!(statuses, [status, WcStatus::Flush], "{case}");
            assert_eq!(walk.query(B).state, if service == QpType::Rc { Err } else { Sqe }, "{case}");
            if service == QpType::Uc {
                let found = [one, two].map(|key| write(&mut walk, key, IOVA + SHOWN, b"still in"));
                assert_eq!((found, shown(&walk)), ([WcStatus::Success; 2], b"still in".to_vec()), "{case}");
            }
        }
    }
}

#[test]
fn what_has_a_payload_is_no_bind() {
    for packets in [false, true] {
        let mut walk = Walk::ready(QpType::Rc, packets);
        let (lkey, rkey) = (region(&mut walk), window(&mut walk, MwType::Type1));
        let op = SendOp::BindMw(bind(rkey, lkey));
        walk.post(B, op, Payload::Inline(b"?")).unwrap();
        walk.run();
        assert_eq!(walk.completions(B)[0].status, WcStatus::LocLen);
    }
}

#[test]
fn requests_of_keys_are_refused_carried_out_held_or_flushed_as_the_state_says() {
    for (service, packets) in all_walks() {
        for (state, with_inv) in states(service).flat_map(|state| [(state, false), (state, true)]) {
            let case = format!("{service:?}, packets: {packets}, in {state:?}, {with_inv}");
            let mut walk = Walk::new(service, packets);
            let (lkey, rkey) = (region(&mut walk), window(&mut walk, MwType::Type2B));
            walk.go(A, Rts);
            walk.go(B, state);
            let op = match with_inv {
                true => SendOp::LocalInvalidate { key: rkey },
                false => SendOp::BindMw(bind(rkey, lkey)),
            };
            let posted = walk.post(B, op, NOTHING);
            walk.run();
            let found: Vec<_> = walk.completions(B).iter().map(|end| end.status).collect();
            if matches!(state, Reset | Init | Rtr) {
                assert_eq!((posted, found), (Result::Err(PostError::BadState), vec![]), "{case}");
                continue;
            }
            assert_eq!(posted, Ok(()), "{case}");
            let right = match (service, with_inv) {
                (QpType::Ud | QpType::Gsi, _) | (_, true) => WcStatus::LocQpOp,
                (_, false) => WcStatus::Success,
            };
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
fn a_send_invalidates_a_key_before_its_receive_completes() {
    for packets in [false, true] {
        for length in [0, 8, 3000] {
            let case = format!("packets: {packets}, {length} bytes");
            let mut walk = Walk::ready(QpType::Rc, packets);
            let (key, lkey) = bound(&mut walk, MwType::Type2B);
            assert_eq!(write(&mut walk, key, IOVA + SHOWN, b"before.."), WcStatus::Success, "{case}");
            let sges = [walk.ends[A].sge(0, length)];
            walk.post(A, SendOp::SendInvalidate { key }, Payload::Sges(&sges)).unwrap();
            walk.run();
            assert_eq!(walk.end(), (WcStatus::Success, WcOpcode::Send), "{case}");
            let received = walk.completions(B);
            assert_eq!(received.len(), 1, "{case}");
            let Completion { opcode, status, byte_len, imm, invalidated, .. } = received[0];
            assert_eq!((opcode, status, byte_len), (WcOpcode::Recv, WcStatus::Success, length), "{case}");
            assert_eq!((imm, invalidated), (None, Some(key)), "{case}");
            assert_eq!(write(&mut walk, key, IOVA + SHOWN, b"too late"), WcStatus::RemAccess, "{case}");
            assert_eq!(shown(&walk), b"before..", "{case}");
            let device = walk.ends[B].device;
            let counters = walk.engine(B).0.counters(device).clone();
            assert_eq!((counters.peer_invalidations, counters.binds, counters.invalidations), (1, 1, 0));
            walk.engine(B).0.dereg_mr(device, lkey.0).expect("no window is bound to it any more");
        }
    }
}

#[test]
fn a_send_that_invalidates_what_it_may_not_is_refused() {
    for packets in [false, true] {
        for case in 0..4 {
            let mut walk = Walk::ready(QpType::Rc, packets);
            let (one, lkey) = bound(&mut walk, MwType::Type1);
            let (two, _) = bound(&mut walk, MwType::Type2B);
            let key = [one, Rkey(lkey.0), Rkey(two.0 ^ 1), window(&mut walk, MwType::Type2B)][case];
            let sges = [walk.ends[A].sge(0, 2000)];
            walk.post(A, SendOp::SendInvalidate { key }, Payload::Sges(&sges)).unwrap();
            walk.run();
            assert_eq!(walk.end(), (WcStatus::RemAccess, WcOpcode::Send), "{packets} {case}");
            let received: Vec<_> =
                walk.completions(B).iter().map(|end| (end.status, end.invalidated)).collect();
            assert_eq!(received, [(WcStatus::RemInvReq, None)], "{packets} {case}");
            assert_eq!([A, B].map(|at| walk.query(at).state), [Err; 2], "{packets} {case}");
        }
    }
}

#[test]
fn unreliable_services_cannot_invalidate_a_peers_key() {
    for (service, packets) in all_walks().filter(|walk| walk.0 != QpType::Rc) {
        let mut walk = Walk::ready(service, packets);
        walk.post(A, SendOp::SendInvalidate { key: Rkey(1) }, NOTHING).unwrap();
        walk.run();
        assert_eq!(walk.end(), (WcStatus::LocQpOp, WcOpcode::Send), "{service:?} {packets}");
        assert_eq!(walk.completions(B), [], "{service:?} {packets}");
    }
}

/// Requests for keys wait for all requests before them, and all requests after them wait for these.
///
/// With packets, several requests are in flight at once.
#[test]
fn requests_of_keys_begin_when_all_before_them_have_ended() {
    let mut walk = Walk::ready(QpType::Rc, true);
    let (key, _) = bound(&mut walk, MwType::Type2B);
    let [a, b] = walk.ends.clone();
    let out = [b.sge(0, 3000)];
    walk.post(B, write_to(a.remote(0)), Payload::Sges(&out)).unwrap();
    walk.post(B, SendOp::Read { remote: a.remote(0) }, Payload::Sges(&[b.sge(8192, 2000)])).unwrap();
    walk.post(B, SendOp::LocalInvalidate { key }, NOTHING).unwrap();
    walk.post(B, write_to(a.remote(0)), NOTHING).unwrap();
    let Topology::Packets(net) = &mut walk.topology else { unreachable!() };
    net.work(B);
    assert_eq!(net.hosts[B].cable.frames.len(), 4, "three packets and a request, and nothing behind");
    // The last response is lost, and requested again.
    net.carry(B, |_, _| true);
    net.work(A);
    net.carry(A, |index, _| index != 1);
    net.work(B);
    let ended = |net: &mut super::wire::Net| net.hosts[B].log.completions.len();
    assert_eq!(ended(net), 1, "the WRITE");
    net.settle();
    let opcodes: Vec<_> = walk.completions(B).iter().map(|end| (end.opcode, end.status)).collect();
    let all = [WcOpcode::Write, WcOpcode::Read, WcOpcode::LocalInvalidate, WcOpcode::Write];
    assert_eq!(opcodes, all.map(|opcode| (opcode, WcStatus::Success)));
}

#[test]
fn many_requests_of_keys_are_carried_out_in_turns() {
    let mut walk = Walk::ready(QpType::Rc, true);
    let (lkey, first) = (region(&mut walk), window(&mut walk, MwType::Type1));
    let mut rkey = first;
    for _ in 0..16 {
        let request = bind(rkey, lkey);
        walk.post(B, SendOp::BindMw(request), NOTHING).unwrap();
        rkey = request.new_rkey;
    }
    let Topology::Packets(net) = &mut walk.topology else { unreachable!() };
    let now = net.now;
    let host = &mut net.hosts[B];
    for turn in 1..=4 {
        host.engine.transmit(now, 4, &mut host.cable, &mut host.log);
        assert_eq!(host.log.completions.len(), 4 * turn);
    }
    assert_eq!((host.cable.frames.len(), host.counters().binds), (0, 16));
}

#[test]
fn no_byte_moves_by_a_key_that_was_invalidated_under_way() {
    const LONG: u32 = 900_000;
    for read in [false, true] {
        let mut pair = Pair::connected();
        let (a, b) = (pair.a.clone(), pair.b.clone());
        let engine = &mut pair.engine;
        let lkey =
            Lkey(engine.reg_mr(b.device, b.pd, Access::REGION, IOVA, 1 << 20, b.memory.clone()).unwrap());
        let rkey = engine.alloc_mw(b.device, b.pd, MwType::Type2B).unwrap();
        let request = Bind { addr: IOVA, length: LONG.into(), ..bind(rkey, lkey) };
        pair.post(&b, 1, SendOp::BindMw(request), NOTHING).unwrap();
        assert_eq!(pair.statuses(), [('b', 1, WcStatus::Success)]);
        let key = request.new_rkey;
        let (from, to) = if read { (&b, &a) } else { (&a, &b) };
        from.memory.fill(0, &[5; LONG as usize]);
        let remote = Remote { addr: IOVA, rkey: key };
        let op = if read { SendOp::Read { remote } } else { write_to(remote) };
        pair.post(&a, 2, op, Payload::Sges(&[a.sge(0, LONG)])).unwrap();
        let Pair { engine, now, log, .. } = &mut pair;
        engine.poll(*now, 1, log);
        let moved = |end: &End| end.memory.bytes(0, LONG as usize).iter().filter(|&&byte| byte == 5).count();
        let before = moved(to);
        assert!(before > 0 && before < LONG as usize, "{before}");
        pair.post(&b, 3, SendOp::LocalInvalidate { key }, NOTHING).unwrap();
        assert_eq!(pair.statuses(), [('b', 3, WcStatus::Success)]);
        pair.run();
        assert_eq!((pair.statuses(), moved(to)), (vec![('a', 2, WcStatus::RemAccess)], before));
    }
}

#[test]
fn no_response_is_made_by_a_key_that_was_invalidated_under_way() {
    let mut walk = Walk::ready(QpType::Rc, true);
    let (lkey, rkey) = (region(&mut walk), window(&mut walk, MwType::Type2B));
    let request = Bind { length: 8192, ..bind(rkey, lkey) };
    assert_eq!(change(&mut walk, SendOp::BindMw(request)), WcStatus::Success);
    let remote = Remote { addr: IOVA + SHOWN, rkey: request.new_rkey };
    let sges = [walk.ends[A].sge(0, 8192)];
    walk.post(A, SendOp::Read { remote }, Payload::Sges(&sges)).unwrap();
    let Topology::Packets(net) = &mut walk.topology else { unreachable!() };
    net.work(A);
    net.carry(A, |_, _| true);
    net.hosts[B].cable.room = Some(3);
    net.work(B);
    net.hosts[B].cable.room = None;
    net.post(B, 9, SendOp::LocalInvalidate { key: request.new_rkey }, NOTHING);
    // The request is executed first: there is room for responses only afterwards.
    net.run();
    assert_eq!(walk.completions(B)[0].status, WcStatus::Success);
    let Topology::Packets(net) = &mut walk.topology else { unreachable!() };
    net.settle();
    let (status, _) = walk.end();
    let served = walk.engine(B).0.counters(DeviceId(0)).bytes_served;
    assert!(
        matches!((status, served), (WcStatus::RemAccess, 3072..8192) | (WcStatus::Success, 8192)),
        "{status:?} {served}"
    );
}

#[test]
fn windows_of_a_qp_end_with_it() {
    for packets in [false, true] {
        for destroy in [false, true] {
            let mut walk = Walk::ready(QpType::Rc, packets);
            let (key, lkey) = bound(&mut walk, MwType::Type2B);
            let (one, _) = bound(&mut walk, MwType::Type1);
            let End { device, pd, qpn, .. } = walk.ends[B];
            match destroy {
                false => connect_again(&mut walk),
                true => {
                    let engine = walk.engine(B).0;
                    engine.destroy_qp(device, qpn).unwrap();
                    let qpn = engine.create_qp(device, qp_init(pd)).unwrap();
                    walk.ends[B].qpn = qpn;
                    walk.attrs[A].dest_qpn = qpn;
                    walk.modify(A, AttrMask::STATE, QpAttr { state: Reset, ..QpAttr::default() });
                    walk.make_ready();
                }
            }
            assert_eq!(
                write(&mut walk, one, IOVA + SHOWN, b"type one"),
                WcStatus::Success,
                "{packets} {destroy}"
            );
            assert_eq!(
                write(&mut walk, key, IOVA + SHOWN, b"too late"),
                WcStatus::RemAccess,
                "{packets} {destroy}"
            );
            assert_eq!(shown(&walk), b"type one");
            let (engine, log, now) = walk.engine(B);
            while engine.is_unbinding(device) {
                engine.poll(now, 1, log);
            }
            engine.dereg_mr(device, lkey.0).expect("its window is unbound");
        }
    }
}

#[test]
fn another_qps_peer_cannot_use_a_window_of_type_2b() {
    for packets in [false, true] {
        let mut walk = Walk::ready(QpType::Rc, packets);
        let (key, _) = bound(&mut walk, MwType::Type2B);
        // A second connection between the same two devices, in the same PDs.
        for at in [A, B] {
            let End { device, pd, .. } = walk.ends[at];
            let qpn = walk.engine(at).0.create_qp(device, qp_init(pd)).unwrap();
            walk.ends[at].qpn = qpn;
            walk.attrs[1 - at].dest_qpn = qpn;
        }
        walk.make_ready();
        assert_eq!(write(&mut walk, key, IOVA + SHOWN, b"not mine"), WcStatus::RemAccess, "{packets}");
        assert_eq!(shown(&walk), [0; 8]);
        connect_again(&mut walk);
        walk.post(A, SendOp::SendInvalidate { key }, NOTHING).unwrap();
        walk.run();
        assert_eq!(walk.end().0, WcStatus::RemAccess, "{packets}");
    }
}

#[test]
fn regions_and_pds_stay_while_windows_need_them() {
    let mut walk = Walk::ready(QpType::Rc, false);
    let End { device, pd, .. } = walk.ends[B];
    let (key, lkey) = bound(&mut walk, MwType::Type1);
    let engine = walk.engine(B).0;
    let counts = engine.counts(device);
    assert_eq!((counts.mrs, counts.mws), (2, 1));
    assert_eq!(engine.dereg_mr(device, lkey.0).err(), Some(Error::Busy));
    let nothing = Rereg { pd: None, access: Some(Access::NONE), memory: None };
    assert_eq!(engine.rereg_mr(device, lkey.0, nothing).err(), Some(Error::Busy));
    assert_eq!(engine.dereg_mr(device, key.0).err(), Some(Error::NotFound), "it is no region");
    assert_eq!(engine.dealloc_mw(device, Rkey(lkey.0)), Result::Err(Error::NotFound), "it is no window");
    assert_eq!(engine.region(device, key.0).err(), Some(Error::NotFound));
    let other = engine.alloc_pd(device, OWNER).unwrap();
    let spare = engine.alloc_mw(device, other, MwType::Type2B).unwrap();
    assert_eq!(engine.dealloc_pd(device, other), Result::Err(Error::Busy));
    assert_eq!(engine.alloc_mw(device, PdId(999), MwType::Type1), Result::Err(Error::NotFound));
    engine.dealloc_mw(device, Rkey(spare.0 ^ 0xff)).unwrap();
    engine.dealloc_pd(device, other).unwrap();
    // A bound window can be freed, and then its region.
    engine.dealloc_mw(device, key).unwrap();
    assert_eq!(engine.dealloc_mw(device, key), Result::Err(Error::NotFound));
    engine.dereg_mr(device, lkey.0).unwrap();
    assert_eq!((engine.counts(device).mws, engine.pd_owner(device, pd)), (0, Ok(OWNER)));
    assert_eq!(write(&mut walk, key, IOVA + SHOWN, b"too late"), WcStatus::RemAccess);
}

#[test]
fn windows_and_regions_are_so_many_together() {
    let mut engine = Engine::<Mem>::new(1);
    let device = engine.add_device(Limits { max_mr: 3, ..Limits::default() });
    let pd = engine.alloc_pd(device, OWNER).unwrap();
    engine.reg_mr(device, pd, Access::NONE, 0, 8, Mem::new(8)).unwrap();
    let windows = [(); 2].map(|()| engine.alloc_mw(device, pd, MwType::Type1).unwrap());
    assert_eq!(engine.alloc_mw(device, pd, MwType::Type1), Result::Err(Error::NoResources));
    assert_eq!(engine.reg_mr(device, pd, Access::NONE, 0, 8, Mem::new(8)), Result::Err(Error::NoResources));
    engine.dealloc_mw(device, windows[0]).unwrap();
    engine.reg_mr(device, pd, Access::NONE, 0, 8, Mem::new(8)).unwrap();
    engine.reset_device(device);
    assert_eq!(engine.counts(device), ObjectCounts::default());
}

#[test]
fn a_region_is_registered_again_as_a_whole_or_not_at_all() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let engine = &mut pair.engine;
    let other = engine.alloc_pd(b.device, OWNER).unwrap();
    let foreign = engine.alloc_pd(b.device, OwnerId(8)).unwrap();
    let memory = || Some((0x5000, 64, Mem::new(64)));
    let refused = [
        (Error::Denied, Rereg { pd: Some(foreign), access: Some(Access::NONE), memory: memory() }),
        (Error::NotFound, Rereg { pd: Some(PdId(999)), access: None, memory: memory() }),
        (Error::Invalid, Rereg { pd: Some(other), access: Some(Access::REMOTE_WRITE), memory: memory() }),
        (Error::Invalid, Rereg { pd: None, access: Some(Access(32)), memory: None }),
        (Error::Invalid, Rereg { pd: None, access: None, memory: Some((u64::MAX, 2, Mem::new(2))) }),
    ];
    for (error, change) in refused {
        assert_eq!(pair.engine.rereg_mr(b.device, b.key, change).err(), Some(error));
        pair.post(&a, 1, write_to(b.remote(0)), Payload::Inline(b"stays")).unwrap();
        assert_eq!(pair.statuses(), [('a', 1, WcStatus::Success)], "after {error:?}");
    }
    pair.engine.dealloc_pd(b.device, other).expect("nothing uses it");
    let mut key = b.key;
    let mut seen = vec![key];
    for bits in 1..8 {
        let pair = &mut pair;
        let new = Mem::new(64);
        let other = pair.engine.alloc_pd(b.device, OWNER).unwrap();
        // From a region with all rights to the changed one, and back.
        let change = Rereg {
            pd: (bits & 1 != 0).then_some(other),
            access: (bits & 2 != 0).then_some(Access::LOCAL_WRITE | Access::REMOTE_WRITE),
            memory: (bits & 4 != 0).then(|| (0x5000, 64, new.clone())),
        };
        let (changed, old) = pair.engine.rereg_mr(b.device, key, change).unwrap();
        assert_eq!(
            seen.contains(&changed),
            bits & 4 == 0,
            "the key is new with the memory, and none comes again soon"
        );
        assert_eq!(changed == key, bits & 4 == 0);
        seen.push(changed);
        assert_eq!(old.is_some(), bits & 4 != 0);
        let addr = if bits & 4 != 0 { 0x5000 } else { IOVA };
        let writes = |pair: &mut Pair, key, addr| {
            let remote = Remote { addr, rkey: Rkey(key) };
            pair.post(&a, 1, write_to(remote), Payload::Inline(&[bits as u8; 4])).unwrap();
            pair.run();
            let status = pair.statuses().pop().unwrap().2;
            if status != WcStatus::Success {
                for (own, peer) in [(&a, &b), (&b, &a)] {
                    pair.go(own, Reset);
                    pair.connect(own, attr_to(peer), Rts);
                }
            }
            status == WcStatus::Success
        };
        assert!(bits & 4 == 0 || !writes(pair, key, IOVA), "{bits}: the old key names nothing");
        assert_eq!(writes(pair, changed, addr), bits & 1 == 0, "{bits}: of the other PD it is out of reach");
        let found = if bits & 4 != 0 { new.bytes(0, 4) } else { b.memory.bytes(0, 4) };
        assert_eq!(found == [bits as u8; 4], bits & 1 == 0, "{bits}");
        let busy = pair.engine.dealloc_pd(b.device, other).err();
        assert_eq!(busy, (bits & 1 != 0).then_some(Error::Busy), "{bits}");
        let back = Rereg {
            pd: Some(b.pd),
            access: Some(Access::ALL),
            memory: Some((IOVA, 1 << 20, b.memory.clone())),
        };
        (key, _) = pair.engine.rereg_mr(b.device, changed, back).unwrap();
        assert!(!seen.contains(&key));
        seen.push(key);
    }
    assert_eq!(
        pair.engine.rereg_mr(b.device, b.key, Rereg { pd: None, access: None, memory: None }).err(),
        Some(Error::NotFound)
    );
    pair.engine.dereg_mr(b.device, key).unwrap();
}
