//! Objects: creation, rejection, counting and destruction.

use super::*;

#[test]
fn counts_return_to_zero() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post_recv(&b, 1, &[b.sge(0, 1); 8]).unwrap();
    pair.post(&a, 2, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 1 << 20)])).unwrap();
    let full = ObjectCounts {
        pds: 1,
        mrs: 1,
        qps: 1,
        srqs: 0,
        gids: 1,
        pending_receives: 1,
        ..ObjectCounts::default()
    };
    assert_eq!(pair.engine.counts(b.device), full);
    assert_eq!(pair.engine.counts(a.device).pending_sends, 1);
    assert_eq!(pair.engine.dealloc_pd(a.device, a.pd), Err(Error::Busy));
    for end in [&a, &b] {
        assert_eq!(pair.engine.destroy_qp(end.device, end.qpn), Ok(qp_init(end.pd)));
        assert_eq!(pair.engine.destroy_qp(end.device, end.qpn), Err(Error::NotFound));
        assert_eq!(pair.engine.dealloc_pd(end.device, end.pd), Err(Error::Busy));
        assert!(pair.engine.dereg_mr(end.device, end.key).is_ok());
        assert!(pair.engine.dereg_mr(end.device, end.key).is_err());
        pair.engine.dealloc_pd(end.device, end.pd).unwrap();
        assert_eq!(pair.engine.dealloc_pd(end.device, end.pd), Err(Error::NotFound));
        pair.engine.set_gid(end.device, 0, None).unwrap();
        assert_eq!(pair.engine.counts(end.device), ObjectCounts::default());
    }
    assert_eq!((pair.sleep(), pair.statuses()), (None, vec![]));
    assert_eq!(Rc::strong_count(&a.memory.0), 2, "the test has it twice, the engine no more");
}

#[test]
fn keys_start_over_when_their_tags_are_used_up() {
    let mut pair = Pair::connected();
    let a = pair.a.clone();
    // Indices rest before they are reused in turn. Each reuse has a 16-bit tag that grows by 128 on
    // average.
    for _ in 0..64 * 1024 {
        let memory = a.memory.clone();
        let key = pair.engine.reg_mr(a.device, a.pd, Access::ALL, IOVA, 4096, memory).unwrap();
        pair.engine.dereg_mr(a.device, key).unwrap();
        assert!(pair.engine.dereg_mr(a.device, key).is_err());
    }
}

#[test]
fn a_reset_device_forgets_all_and_its_numbers_are_not_valid_again() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post(&a, 2, SEND, Payload::Inline(b"waits")).unwrap();
    pair.post(&b, 2, write_to(a.remote(0)), Payload::Sges(&[a.sge(0, 1 << 20)])).unwrap();
    let largest = pair.engine.active_mtu(a.device);
    pair.engine.set_active_mtu(a.device, Mtu::M512).unwrap();
    pair.engine.reset_device(a.device);
    assert_eq!(pair.engine.counts(a.device), ObjectCounts::default());
    assert_eq!(pair.engine.active_mtu(a.device), largest, "a driver that says nothing has the largest");
    pair.engine.set_gid(a.device, 0, Some(a.gid.into())).unwrap();
    let pd = pair.engine.alloc_pd(a.device, OWNER).unwrap();
    assert_ne!(pd, a.pd);
    let qpn = pair.engine.create_qp(a.device, qp_init(pd)).unwrap();
    assert_ne!(qpn, a.qpn);
    assert!(pair.engine.query_qp(a.device, a.qpn).is_err());
    pair.engine.remove_device(b.device);
    assert_eq!((pair.sleep(), pair.statuses()), (None, vec![]));
    assert_eq!(pair.engine.core.schedule.len(), (0, 0));
    assert_eq!(pair.engine.add_device(Limits::default()), b.device);
}

#[test]
fn no_queue_pair_has_the_number_that_means_multicast() {
    let mut engine: Engine<Mem> = Engine::new(1);
    let device = engine.add_device(Limits { max_qp: 256, ..Limits::default() });
    // With the last index, the number would be all ones.
    engine.core.devices.known_device(device.0).first_generation = 0xffff;
    let pd = engine.alloc_pd(device, OWNER).unwrap();
    let init = QpInit { max_send_wr: 1, max_recv_wr: 1, ..qp_init(pd) };
    let all: Vec<Qpn> = std::iter::from_fn(|| engine.create_qp(device, init).ok()).collect();
    assert_eq!(all.len(), 254, "all that there can be");
    assert_eq!(all.last().map(|qpn| qpn.number() & 0xff), Some(0xff));
    assert!(!all.contains(&Qpn::MULTICAST));
}

#[test]
fn calls_for_devices_and_objects_that_do_not_exist_are_refused() {
    let mut pair = Pair::connected();
    let a = pair.a.clone();
    for device in [DeviceId(2), DeviceId(u32::MAX)] {
        let engine = &mut pair.engine;
        assert_eq!(engine.counts(device), ObjectCounts::default());
        assert_eq!(engine.counters(device), &Counters::ZERO);
        engine.reset_device(device);
        engine.remove_device(device);
        engine.cq_failed(device, a.qpn, &mut pair.log);
        assert_eq!(engine.regions_mut(device, 0..usize::MAX).count(), 0);
        assert_eq!(engine.alloc_pd(device, OWNER), Err(Error::NotFound));
        assert_eq!(engine.create_qp(device, qp_init(a.pd)), Err(Error::NotFound));
        assert_eq!(engine.query_qp(device, a.qpn), Err(Error::NotFound));
        assert_eq!(engine.gid(device, 0), Err(Error::NotFound));
        assert_eq!(engine.set_gid(device, 0, None), Err(Error::NotFound));
        assert!(engine.limits(device).is_err());
    }
    assert_eq!(pair.engine.pd_owner(a.device, PdId(77)), Err(Error::NotFound));
    assert_eq!(pair.engine.qp_owner(a.device, Qpn::GSI), Err(Error::NotFound));
    assert_eq!(pair.engine.mr_owner(a.device, 1), Err(Error::NotFound));
    assert_eq!(pair.engine.mr_owner(a.device, a.key), Ok(OWNER));
    assert_eq!(pair.engine.regions_mut(a.device, 0..usize::MAX).count(), 1);
}

#[test]
fn an_address_belongs_to_one_device() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let engine = &mut pair.engine;
    assert_eq!(engine.set_gid(b.device, 3, Some(a.gid.into())), Err(Error::Denied));
    assert_eq!(engine.set_gid(a.device, 3, Some(a.gid.into())), Ok(()));
    assert_eq!(engine.set_gid(a.device, 0, None), Ok(()));
    assert_eq!(engine.set_gid(b.device, 3, Some(a.gid.into())), Err(Error::Denied));
    assert_eq!(engine.set_gid(a.device, 3, Some(Gid([9; 16]).into())), Ok(()));
    assert_eq!(engine.set_gid(b.device, 3, Some(a.gid.into())), Ok(()));
    assert_eq!((engine.gid(b.device, 3), engine.gid(b.device, 16)), (Ok(a.gid.into()), Err(Error::Invalid)));
    assert_eq!(engine.set_gid(b.device, 16, None), Err(Error::Invalid));
    assert_eq!(engine.set_gid(b.device, 1, Some(Gid([0xff; 16]).into())), Err(Error::Invalid));
}

#[test]
fn a_changed_address_moves_its_qps() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Inline(b"x")).unwrap();
    pair.engine.set_gid(b.device, 0, Some(Gid([9; 16]).into())).unwrap();
    pair.post(&a, 2, write_to(b.remote(0)), Payload::Inline(b"y")).unwrap();
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::Success)]);
    pair.engine.set_gid(b.device, 0, Some(b.gid.into())).unwrap();
    pair.sleep();
    assert_eq!(pair.statuses(), [('a', 2, WcStatus::Success)]);
}

#[test]
fn regions_and_qps_beyond_rules_and_limits_are_refused() {
    let mut engine = Engine::<Mem>::new(3);
    let limits = Limits { max_pd: 2, max_mr: 2, max_qp: 4, max_request_memory: 100_000, ..Limits::default() };
    let device = engine.add_device(limits);
    let pd = engine.alloc_pd(device, OWNER).unwrap();
    assert!(engine.alloc_pd(device, OWNER).is_ok());
    assert_eq!(engine.alloc_pd(device, OWNER), Err(Error::NoResources));
    let mut reg = |access, iova, length| engine.reg_mr(device, pd, access, iova, length, Mem::new(0));
    assert_eq!(reg(Access::ALL, 2, u64::MAX), Err(Error::Invalid));
    assert_eq!(reg(Access(32), 0, 1), Err(Error::Invalid));
    assert_eq!(reg(Access::REMOTE_WRITE, 0, 1), Err(Error::Invalid));
    assert_eq!(reg(Access::REMOTE_ATOMIC, 0, 1), Err(Error::Invalid));
    assert!(reg(Access::ALL, 1, u64::MAX).is_ok() && reg(Access::REMOTE_READ, u64::MAX, 1).is_ok());
    assert_eq!(reg(Access::ALL, 0, 1), Err(Error::NoResources));
    let init = QpInit { max_send_wr: 1, max_recv_wr: 1, ..qp_init(pd) };
    let too_much: [(QpInit, Error); 9] = [
        (QpInit { qp_type: QpType::Gsi, ..init }, Error::Denied),
        (QpInit { pd: Some(PdId(9)), ..init }, Error::NotFound),
        (QpInit { owner: OwnerId(8), ..init }, Error::Denied),
        (QpInit { max_send_wr: 16385, ..init }, Error::Invalid),
        (QpInit { max_recv_wr: u32::MAX, ..init }, Error::Invalid),
        (QpInit { max_send_sge: 31, ..init }, Error::Invalid),
        (QpInit { max_recv_sge: u32::MAX, ..init }, Error::Invalid),
        (QpInit { max_inline: 481, ..init }, Error::Invalid),
        (QpInit { max_send_wr: 1000, ..init }, Error::NoResources),
    ];
    for (init, error) in too_much {
        assert_eq!(engine.create_qp(device, init), Err(error));
    }
    let qpns: Vec<_> = (0..2).map(|_| engine.create_qp(device, init).unwrap().number() % 4).collect();
    assert_eq!(qpns, [2, 3], "0 and 1 are special");
    assert_eq!(engine.create_qp(device, init), Err(Error::NoResources));
}

#[test]
fn what_queues_could_take_is_promised_and_given_back() {
    let mut pair = Pair::new();
    let device = pair.engine.add_device(Limits { max_request_memory: 1 << 20, ..Limits::default() });
    let pd = pair.engine.alloc_pd(device, OWNER).unwrap();
    for _ in 0..3 {
        let qpns: Vec<_> = std::iter::from_fn(|| pair.engine.create_qp(device, qp_init(pd)).ok()).collect();
        assert!((50..500).contains(&qpns.len()), "{}", qpns.len());
        for qpn in qpns {
            pair.engine.destroy_qp(device, qpn).unwrap();
        }
    }
}

#[test]
fn qpns_of_destroyed_qps_are_not_valid_soon_again() {
    let mut pair = Pair::new();
    let a = pair.a.clone();
    let mut seen = std::collections::BTreeSet::from([a.qpn]);
    for _ in 0..20_000 {
        let qpn = pair.engine.create_qp(a.device, qp_init(a.pd)).unwrap();
        assert!(seen.insert(qpn) && qpn.number() % 1024 > 1 && qpn.number() % 1024 != a.qpn.number() % 1024);
        pair.engine.destroy_qp(a.device, qpn).unwrap();
    }
}

#[test]
fn qps_that_come_and_go_while_ready_or_waiting_leave_nothing_behind() {
    let mut pair = Pair::new();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    for round in 0..2000 {
        let end = End { qpn: pair.engine.create_qp(a.device, qp_init(a.pd)).unwrap(), ..a.clone() };
        pair.connect(&end, attr_to(&b), QpState::Rts);
        let length = if round % 2 == 0 { 1 } else { 100_000 };
        pair.post(&end, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, length)])).unwrap();
        pair.engine.destroy_qp(a.device, end.qpn).unwrap();
        let (ready, timers) = pair.engine.core.schedule.len();
        assert!(ready <= 66 && timers == 0, "{ready} {timers}");
    }
}

#[test]
fn what_all_queues_could_take_together_is_limited() {
    let mut pair = Pair::new();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let promised = pair.engine.core.devices.promised();
    // There is room for two more QPs.
    pair.engine.set_request_memory(2 * promised);
    let first = pair.engine.create_qp(a.device, qp_init(a.pd)).unwrap();
    pair.engine.create_qp(b.device, qp_init(b.pd)).unwrap();
    assert_eq!(pair.engine.create_qp(b.device, qp_init(b.pd)), Err(Error::NoResources));
    pair.engine.destroy_qp(a.device, first).unwrap();
    assert!(pair.engine.create_qp(b.device, qp_init(b.pd)).is_ok());
}
