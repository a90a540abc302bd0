//! What observers see of QPs and regions.

use super::*;
use crate::{TransportKind, WaitsFor};

#[test]
fn a_qp_is_seen_with_its_peer_and_its_requests() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post_recv(&b, 1, &[b.sge(0, 1)]).unwrap();
    let seen = |pair: &Pair, end: &End| pair.engine.qp_view(end.device, end.qpn).unwrap();
    let (of_a, of_b) = (seen(&pair, &a), seen(&pair, &b));
    assert_eq!((of_a.qpn, of_a.attr.state, of_a.attr.dest_qpn), (a.qpn, QpState::Rts, b.qpn));
    assert_eq!((of_a.transport, of_b.transport), (Some(TransportKind::Local), Some(TransportKind::Local)));
    assert_eq!(of_a.attr.dgid, of_b.source.gid);
    assert_eq!((of_a.sends, of_a.receives, of_b.sends, of_b.receives), (0, 0, 0, 1));
    assert_eq!(of_a.init, qp_init(a.pd));
    for id in 2..4 {
        pair.post(&a, id, SEND, Payload::Inline(b"x")).unwrap();
    }
    pair.run();
    let of_a = seen(&pair, &a);
    assert_eq!((of_a.sends, seen(&pair, &b).receives), (1, 0), "one receive was there");
    assert_eq!(of_a.waits_for, Some(WaitsFor::Receive));
    assert_eq!(pair.engine.qp_view(a.device, Qpn::MULTICAST), Err(Error::NotFound));
}

#[test]
fn all_qps_and_regions_are_listed_in_slices() {
    let mut pair = Pair::connected();
    let a = pair.a.clone();
    let mut qpns = vec![a.qpn];
    qpns.extend((0..4).map(|_| pair.engine.create_qp(a.device, qp_init(a.pd)).unwrap()));
    pair.engine.destroy_qp(a.device, qpns.remove(2)).unwrap();
    let (mut seen, mut from) = (Vec::new(), 0);
    while from < pair.engine.qp_indices(a.device) {
        seen.extend(pair.engine.qps(a.device, from..from + 2));
        from += 2;
    }
    assert_eq!(seen.iter().map(|qp| qp.qpn).collect::<Vec<_>>(), qpns);
    let states: Vec<_> = seen.iter().map(|qp| (qp.attr.state, qp.transport.is_some())).collect();
    assert_eq!(states[..2], [(QpState::Rts, true), (QpState::Reset, false)]);

    let memory = a.memory.clone();
    let key = pair.engine.reg_mr(a.device, a.pd, Access::LOCAL_WRITE, 0x1000, 77, memory).unwrap();
    let all = pair.engine.region_indices(a.device);
    let seen: Vec<_> = pair.engine.region_views(a.device, 0..all + 5).collect();
    assert_eq!(seen.len(), 2);
    let region = seen.iter().find(|region| region.key == key).unwrap();
    assert_eq!((region.pd, region.owner, region.is_fast), (a.pd, OWNER, false));
    assert_eq!((region.iova, region.length, region.access), (0x1000, 77, Access::LOCAL_WRITE));
}
