//! Receives that are posted together behave like receives that are posted one by one.

use super::*;
use crate::objects::srq::SrqInit;
use crate::verbs::request::RecvList;
use proptest::prelude::*;

/// Posts receives of 16 bytes each, together or one by one.
fn post(pair: &mut Pair, owner: OwnerId, qpn: Qpn, ids: &[u32], together: bool) -> Result<(), PostError> {
    let Pair { engine, now, log, b, .. } = pair;
    let sges: Vec<Sge> = ids.iter().map(|&id| b.sge(u64::from(id) << 8, 16)).collect();
    if together {
        return engine.post_recvs(*now, b.device, owner, qpn, RecvList::new(ids, &sges), log);
    }
    let mut result = Ok(());
    for (&id, sge) in ids.iter().zip(&sges) {
        let request = RecvRequest { id, sges: std::slice::from_ref(sge) };
        result = result.and(engine.post_recv(*now, b.device, owner, qpn, request, log));
    }
    result
}

/// Posts receives to an SRQ, together or one by one.
fn post_shared(
    pair: &mut Pair,
    owner: OwnerId,
    srq: SrqId,
    ids: &[u32],
    together: bool,
) -> Result<(), PostError> {
    let Pair { engine, log, b, .. } = pair;
    let sges: Vec<Sge> = ids.iter().map(|&id| b.sge(u64::from(id) << 8, 16)).collect();
    if together {
        return engine.post_srq_recvs(b.device, owner, srq, RecvList::new(ids, &sges), log);
    }
    let mut result = Ok(());
    for (&id, sge) in ids.iter().zip(&sges) {
        let request = RecvRequest { id, sges: std::slice::from_ref(sge) };
        result = result.and(engine.post_srq_recv(b.device, owner, srq, request, log));
    }
    result
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Posts `count` receives to the QP or to the SRQ.
    Receives { count: u32, shared: bool, owner: OwnerId },
    /// Sends a message through the QP, or through the QP that uses the SRQ.
    Message { shared: bool },
    /// The QP fails.
    Fails,
    /// The QP goes back to RESET.
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    let owner = prop_oneof![8 => Just(OWNER), 1 => Just(OwnerId::KERNEL), 1 => Just(OwnerId(8))];
    prop_oneof![
        8 => (1..=5u32, any::<bool>(), owner)
            .prop_map(|(count, shared, owner)| Step::Receives { count, shared, owner }),
        12 => any::<bool>().prop_map(|shared| Step::Message { shared }),
        1 => Just(Step::Fails),
        1 => Just(Step::Reset),
    ]
}

/// Returns the outcome of these steps: completions and events in order, results of posts, counters.
fn outcome(steps: &[Step], together: bool) -> String {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let init = SrqInit { owner: OWNER, pd: b.pd, max_wr: 12, max_sge: 1, xrc: None };
    let srq = pair.engine.create_srq(b.device, init).unwrap();
    let shared = QpInit { receives: Receives::Shared(srq), ..qp_init(b.pd) };
    let [from, to] = [(&a, qp_init(a.pd)), (&b, shared)]
        .map(|(end, init)| End { qpn: pair.engine.create_qp(end.device, init).unwrap(), ..end.clone() });
    pair.connect(&from, attr_to(&to), QpState::Rts);
    pair.connect(&to, attr_to(&from), QpState::Rts);
    let mut results = Vec::new();
    let mut id = 0;
    for &step in steps {
        match step {
            Step::Receives { count, shared, owner } => {
                let ids: Vec<u32> = (id..id + count).collect();
                id += count;
                results.push(match shared {
                    true => post_shared(&mut pair, owner, srq, &ids, together),
                    false => post(&mut pair, owner, b.qpn, &ids, together),
                });
                pair.run();
            }
            Step::Message { shared } => {
                let sender = if shared { &from } else { &a };
                results.push(pair.post(sender, 1000 + id, SEND, Payload::Inline(b"a message")));
                pair.run();
            }
            Step::Fails => {
                let _refused =
                    pair.modify(&b, AttrMask::STATE, QpAttr { state: QpState::Err, ..QpAttr::default() });
                pair.run();
            }
            Step::Reset => pair.go(&b, QpState::Reset),
        }
    }
    format!(
        "{:?} {:?} {:?} {:?}",
        pair.log.completions,
        pair.log.events,
        results,
        pair.engine.counters(b.device)
    )
}

proptest! {
    #[test]
    fn they_are_as_if_posted_one_by_one(steps in proptest::collection::vec(step(), 1..60)) {
        prop_assert_eq!(outcome(&steps, true), outcome(&steps, false));
    }
}

#[test]
#[should_panic(expected = "each receive has an element")]
fn a_receive_without_an_element_is_our_fault() {
    let _list = RecvList::new(&[1, 2], &[Sge::default()]);
}
