//! A CQ that ignores an overrun loses completions, and nothing else fails.
//!
//! For CQs that do not ignore overruns see `statuses.rs` and `hostile_process.rs`.

use std::time::Duration;
use vrdma_tests::abi::control::{QpState, Status, cq_flags};
use vrdma_tests::abi::event::EventKind;
use vrdma_tests::events::Told;
use vrdma_tests::verbs::{Arm, Request};
use vrdma_tests::{Context, Cq, Lab, QpOptions, wait};

fn complete(lab: &Lab, process: &mut Context, qp: &vrdma_tests::Qp, ids: std::ops::Range<u32>) {
    let wanted = lab.stats().device(0, "completions") + u64::from(ids.end - ids.start);
    ids.for_each(|id| process.post(&Request::recv(qp.tag(id), &[])));
    wait::until("all completions", || (lab.stats().device(0, "completions") == wanted).then_some(()));
}

#[test]
fn a_cq_that_ignores_an_overrun_goes_on() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    let mut process = Context::open(guest).unwrap();
    let mut cq = Cq::create_with(guest, process.number, 8, 0, cq_flags::IGNORE_OVERRUN).unwrap();
    let qp = process.qp(&cq, &cq, &QpOptions::default());
    qp.to_init().unwrap();
    qp.to_state(QpState::ERR).unwrap();
    complete(&lab, &mut process, &qp, 0..16);
    // Two laps later the phase bits look new again. The completions of the second lap have replaced
    // those of the first.
    complete(&lab, &mut process, &qp, 16..24);
    let found: Vec<u32> = std::iter::from_fn(|| cq.poll()).map(|wc| wc.id()).collect();
    assert_eq!(found, (16..24).collect::<Vec<_>>());
    // A ring too small for the pending completions is refused, as for any CQ. The new ring ignores
    // overruns, too.
    complete(&lab, &mut process, &qp, 24..100);
    assert_eq!(cq.resize(4), Err(Status::INVALID));
    cq.resize(16).unwrap();
    while cq.poll().is_some() {}
    cq.driver.arm(Arm::Next);
    complete(&lab, &mut process, &qp, 100..200);
    let told = Told { kind: EventKind::COMPLETION, object: cq.number };
    assert_eq!(guest.comp_events(0).recv(), told);
    assert_eq!(guest.async_events().recv_within(Duration::from_millis(10)), None);
    assert_eq!(lab.stats().device(0, "cq_overruns"), 0);
    assert_eq!(qp.state(), QpState::ERR);
    qp.destroy().unwrap();
    cq.destroy().unwrap();
    for flags in [4, 5, 6, 1 << 31, u32::MAX] {
        let refused = Cq::create_with(guest, process.number, 8, 0, flags);
        assert_eq!(refused.map(|cq| cq.number), Err(Status::INVALID), "{flags:#x}");
    }
}
