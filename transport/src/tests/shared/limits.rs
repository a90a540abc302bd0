//! The limit event, sizes, and the memory that all queues may take together.

use super::*;

#[test]
fn the_limit_is_told_once() {
    let mut group = Group::new(1);
    let reached = [('b', Event::SrqLimitReached(group.shared.srq))];
    (1..=4).for_each(|id| group.post_shared(id));
    group.modify(None, Some(3)).unwrap();
    group.send(0, 10, b"x");
    assert_eq!((group.pair.events(), group.query().limit), (vec![], 3));
    group.send(0, 11, b"x");
    assert_eq!((group.pair.events(), group.query().limit), (reached.to_vec(), 0));
    group.send(0, 12, b"x");
    assert_eq!(group.pair.events(), []);
    group.modify(None, Some(2)).unwrap();
    assert_eq!((group.pair.events(), group.query().limit), (reached.to_vec(), 0), "it was below already");
    group.modify(None, Some(1)).unwrap();
    group.modify(None, Some(0)).unwrap();
    group.send(0, 13, b"x");
    assert_eq!(group.pair.events(), [], "it was disarmed");
}

#[test]
fn a_queue_changes_its_size_within_bounds() {
    let mut group = Group::new(1);
    (1..=4).for_each(|id| group.post_shared(id));
    for (max_wr, limit) in
        [(Some(3), None), (Some(0), None), (Some(16385), None), (None, Some(9)), (Some(4), Some(5))]
    {
        assert_eq!(group.modify(max_wr, limit), Err(Error::Invalid), "{max_wr:?} {limit:?}");
    }
    assert_eq!(group.query(), SrqAttr { max_wr: 8, max_sge: 2, limit: 0 });
    let promised = |group: &Group| group.pair.engine.core.devices.promised();
    let before = promised(&group);
    group.modify(Some(16), None).unwrap();
    assert!(promised(&group) > before);
    group.modify(Some(4), Some(4)).unwrap();
    assert!(promised(&group) < before);
    assert_eq!(group.query(), SrqAttr { max_wr: 4, max_sge: 2, limit: 4 });
    assert_eq!(group.pair.events(), []);
}

#[test]
fn a_queue_keeps_the_place_of_receives_that_are_taken() {
    let mut group = Group::new(2);
    let Group { pair, shared, receivers, .. } = &mut group;
    let b = receivers[0].clone();
    for id in 1..=8 {
        shared.post(&mut pair.engine, id, LONG, &mut pair.log).unwrap();
    }
    group.begin(0, 5);
    assert_eq!((group.srq().receives.len(), group.srq().outstanding()), (7, 8));
    assert_eq!(group.modify(Some(7), None), Err(Error::Invalid), "the eighth may come back");
    group.pair.engine = save::copied(&group.pair.engine);
    assert_eq!(group.modify(Some(7), None), Err(Error::Invalid));
    group.modify(Some(9), None).unwrap();
    group.post_shared(9);
    group.pair.go(&b, QpState::Reset);
    assert_eq!((group.srq().receives.len(), group.srq().outstanding()), (9, 9));
    for id in 1..=9 {
        group.send(1, 10, b"x");
        assert_eq!(group.received(), [(1, id, OK)]);
    }
    assert_eq!(group.srq().outstanding(), 0);
    group.modify(Some(1), None).unwrap();
}

#[test]
fn what_shared_queues_could_take_counts_with_all_other_queues() {
    let mut pair = Pair::new();
    let device = pair.b.device;
    let Pair { engine, log, .. } = &mut pair;
    let pd = engine.alloc_pd(device, OWNER).unwrap();
    let before = engine.core.devices.promised();
    let srq = engine.create_srq(device, init(pd)).unwrap();
    let cost = engine.core.devices.promised() - before;
    // There is room for one more SRQ.
    engine.set_request_memory(before + 2 * cost);
    let other = engine.create_srq(device, init(pd)).unwrap();
    assert_eq!(engine.create_srq(device, init(pd)), Err(Error::NoResources));
    assert_eq!(engine.modify_srq(device, srq, (Some(9), None), log), Err(Error::NoResources));
    for max_wr in [7, 8] {
        engine.modify_srq(device, srq, (Some(max_wr), None), log).unwrap();
    }
    engine.destroy_srq(device, other).unwrap();
    engine.set_request_memory(u64::MAX);
    // Receives that a QP takes from the SRQ use the SRQ's memory.
    let mut cost_of = |srq, max_recv_wr, max_recv_sge| {
        let before = engine.core.devices.promised();
        let init = QpInit { receives: Option::into(srq), max_recv_wr, max_recv_sge, ..qp_init(pd) };
        let qpn = engine.create_qp(device, init).unwrap();
        let cost = engine.core.devices.promised() - before;
        engine.destroy_qp(device, qpn).unwrap();
        cost
    };
    assert_eq!(cost_of(Some(srq), 16, 8), cost_of(None, 0, 2));
    // A copied engine has promised as much memory, and knows what is in use.
    let qpn = engine.create_qp(device, QpInit { receives: Receives::Shared(srq), ..qp_init(pd) }).unwrap();
    let mut copy = save::copied(engine);
    assert_eq!(copy.core.devices.promised(), engine.core.devices.promised());
    assert_eq!(copy.destroy_srq(device, srq), Err(Error::Busy));
    copy.destroy_qp(device, qpn).unwrap();
    assert_eq!(copy.dealloc_pd(device, pd), Err(Error::Busy));
    copy.destroy_srq(device, srq).unwrap();
    copy.dealloc_pd(device, pd).unwrap();
    assert_eq!(copy.core.devices.promised(), before);
}

#[test]
fn the_qp_of_the_kernels_mad_has_receives_of_its_own() {
    let mut pair = Pair::new();
    let (device, owner) = (pair.b.device, OwnerId::KERNEL);
    let pd = pair.engine.alloc_pd(device, owner).unwrap();
    let srq = pair.engine.create_srq(device, SrqInit { owner, ..init(pd) }).unwrap();
    let gsi = QpInit { owner, qp_type: QpType::Gsi, receives: Receives::Shared(srq), ..qp_init(pd) };
    assert_eq!(pair.engine.create_qp(device, gsi), Err(Error::Denied));
    assert_eq!(pair.engine.create_qp(device, QpInit { receives: Receives::Own, ..gsi }), Ok(Qpn::GSI));
}

#[test]
fn queues_are_made_and_destroyed_within_limits() {
    let mut pair = Pair::new();
    let limits = Limits { max_srq: 2, max_request_memory: 10_000, ..Limits::default() };
    let device = pair.engine.add_device(limits);
    let engine = &mut pair.engine;
    let pd = engine.alloc_pd(device, OWNER).unwrap();
    let (fine, promised) = (init(pd), engine.core.devices.promised());
    for (init, error) in [
        (SrqInit { pd: PdId(99), ..fine }, Error::NotFound),
        (SrqInit { owner: OwnerId(8), ..fine }, Error::Denied),
        (SrqInit { max_wr: 0, ..fine }, Error::Invalid),
        (SrqInit { max_wr: 16385, ..fine }, Error::Invalid),
        (SrqInit { max_sge: 31, ..fine }, Error::Invalid),
        (SrqInit { max_wr: 1000, ..fine }, Error::NoResources),
    ] {
        assert_eq!(engine.create_srq(device, init), Err(error), "{init:?}");
    }
    let srqs = [(); 2].map(|()| engine.create_srq(device, fine).unwrap());
    assert_eq!(engine.create_srq(device, fine), Err(Error::NoResources));
    assert_eq!(
        engine.modify_srq(device, srqs[0], (Some(1000), None), &mut pair.log),
        Err(Error::NoResources)
    );
    let small = QpInit { max_send_wr: 1, receives: Receives::Shared(srqs[0]), ..qp_init(pd) };
    let others = engine.alloc_pd(device, OwnerId(8)).unwrap();
    for (init, error) in [
        (QpInit { receives: Receives::Shared(SrqId(77)), ..small }, Error::NotFound),
        (QpInit { owner: OwnerId::KERNEL, ..small }, Error::Denied),
        (QpInit { owner: OwnerId(8), pd: Some(others), ..small }, Error::Denied),
    ] {
        assert_eq!(engine.create_qp(device, init), Err(error), "{init:?}");
    }
    let qpn = engine.create_qp(device, small).unwrap();
    assert_eq!(engine.qp_init(device, qpn).unwrap().max_recv_wr, 0);
    assert_eq!(engine.destroy_srq(device, srqs[0]), Err(Error::Busy));
    assert_eq!(engine.dealloc_pd(device, pd), Err(Error::Busy));
    engine.destroy_qp(device, qpn).unwrap();
    srqs.iter().for_each(|&srq| engine.destroy_srq(device, srq).unwrap());
    assert_eq!(engine.destroy_srq(device, srqs[0]), Err(Error::NotFound));
    assert_eq!(engine.query_srq(device, srqs[0]), Err(Error::NotFound));
    [pd, others].into_iter().for_each(|pd| engine.dealloc_pd(device, pd).unwrap());
    assert_eq!(engine.counts(device), ObjectCounts::default());
    assert_eq!(engine.core.devices.promised(), promised, "it has given back what it promised");
}
