//! A moderated CQ raises a completion event for several completions, and no event is missed.

use std::time::Duration;
use vrdma_tests::abi::control::{QpState, Status};
use vrdma_tests::abi::event::EventKind;
use vrdma_tests::events::Told;
use vrdma_tests::side::Side;
use vrdma_tests::verbs::{Arm, Data, Request};
use vrdma_tests::wait::Spell;
use vrdma_tests::{Lab, LabOptions, wait};

/// Long enough for a wrong event to show.
const QUIET: Duration = Duration::from_millis(10);
/// Longest attempt that counts. An attempt that the machine delayed longer proves nothing.
const CERTAIN: Duration = Duration::from_millis(50);
/// Moderation period in microseconds, longer than [`CERTAIN`].
const PERIOD: u16 = u16::MAX;

/// Returns one lab with a worker that sleeps, and one with a worker that never sleeps.
///
/// Further workers without a guest would only take processor time.
fn labs() -> impl Iterator<Item = Lab> {
    let lab = |busy_poll| Lab::with(1, LabOptions { busy_poll, workers: 1, ..LabOptions::default() });
    [false, true].into_iter().map(lab)
}

fn event(side: &Side, time: Duration) -> bool {
    let told = side.guest().comp_events(0).recv_within(time);
    let expected = Told { kind: EventKind::COMPLETION, object: side.cq.number };
    assert!(told.is_none() || told == Some(expected), "{told:?}");
    told.is_some()
}

/// Posts requests that succeed, `count` of them. All completions are in the CQ when this returns.
fn complete(lab: &Lab, side: &mut Side, count: u64, solicited: bool) {
    let wanted = lab.stats().device(0, "completions") + count;
    for id in 0..count as u32 {
        let request = Request::write(side.qp.tag(id), side.mr.remote(0), Data::EMPTY);
        side.post(&request.signaled(true).solicited(solicited));
    }
    wait::until("all completions", || (lab.stats().device(0, "completions") == wanted).then_some(()));
}

fn drain(side: &mut Side) {
    while side.cq.poll().is_some() {}
}

/// Arms the CQ and runs `attempt`, repeatedly until the machine did not delay an attempt.
fn certainly(lab: &Lab, side: &mut Side, mut attempt: impl FnMut(&Lab, &mut Side) -> bool) {
    let result = wait::until("an attempt that the machine does not hold up", || {
        drain(side);
        while event(side, 2 * Duration::from_micros(PERIOD.into())) {}
        let certain = Spell::of(CERTAIN);
        assert_eq!(side.cq.arm(Arm::Next), None);
        let result = attempt(lab, side);
        certain.lasts().then_some(result)
    });
    assert!(result);
}

#[test]
fn an_event_is_raised_by_number() {
    for lab in labs() {
        let mut side = Side::looped(&lab.guests[0], 4096);
        side.guest().modify_cq(side.cq.number, 4, PERIOD).unwrap();
        certainly(&lab, &mut side, |lab, side| {
            complete(lab, side, 3, false);
            let early = event(side, QUIET);
            complete(lab, side, 1, false);
            !early && event(side, wait::PATIENCE)
        });
        // One event each time that it is armed.
        complete(&lab, &mut side, 8, false);
        assert!(!event(&side, Duration::from_millis(100)));
    }
}

#[test]
fn an_event_is_raised_by_time() {
    for lab in labs() {
        let mut side = Side::looped(&lab.guests[0], 4096);
        for (count, period) in [(100, PERIOD), (0, PERIOD), (100, 1), (2, 300)] {
            side.guest().modify_cq(side.cq.number, count, period).unwrap();
            for _ in 0..3 {
                drain(&mut side);
                assert_eq!(side.cq.arm(Arm::Next), None);
                complete(&lab, &mut side, 1, false);
                assert!(event(&side, wait::PATIENCE), "{count} or {period} us");
            }
        }
        assert!(!event(&side, Duration::from_millis(100)));
    }
}

#[test]
fn solicited_and_unsuccessful_completions_are_told_at_once() {
    for lab in labs() {
        let mut side = Side::looped(&lab.guests[0], 4096);
        side.guest().modify_cq(side.cq.number, 100, PERIOD).unwrap();
        certainly(&lab, &mut side, |_, side| {
            side.recv(0, &[]);
            let request = Request::send(side.qp.tag(0), Data::EMPTY);
            side.post(&request.solicited(true));
            event(side, wait::PATIENCE)
        });
        side.qp.to_state(QpState::ERR).unwrap();
        certainly(&lab, &mut side, |_, side| {
            side.recv(1, &[]);
            event(side, wait::PATIENCE)
        });
    }
}

#[test]
fn without_moderation_each_event_is_raised_at_once() {
    for lab in labs() {
        let mut side = Side::looped(&lab.guests[0], 4096);
        for (count, period) in [(1, PERIOD), (100, 0), (0, 0)] {
            side.guest().modify_cq(side.cq.number, 100, PERIOD).unwrap();
            side.guest().modify_cq(side.cq.number, count, period).unwrap();
            certainly(&lab, &mut side, |lab, side| {
                complete(lab, side, 1, false);
                event(side, wait::PATIENCE)
            });
        }
    }
}

#[test]
fn a_cq_that_is_resized_or_destroyed_while_its_event_waits() {
    for lab in labs() {
        let mut side = Side::looped(&lab.guests[0], 4096);
        side.guest().modify_cq(side.cq.number, 100, PERIOD).unwrap();
        assert_eq!(side.cq.arm(Arm::Next), None);
        complete(&lab, &mut side, 1, false);
        side.cq.resize(8).unwrap();
        assert!(event(&side, wait::PATIENCE));
        drain(&mut side);
        assert_eq!(side.cq.arm(Arm::Next), None);
        complete(&lab, &mut side, 1, false);
        let guest = side.guest().clone();
        side.close();
        let told = guest.comp_events(0).recv_within(Duration::from_millis(100));
        assert_eq!(told, None);
        assert_eq!(guest.modify_cq(77, 1, 1), Err(Status::NOT_FOUND));
    }
}

/// Waits as programs wait, thousands of times, with changing moderation: no event is missed.
#[test]
fn no_event_is_missed() {
    for lab in labs() {
        let mut side = Side::looped(&lab.guests[0], 4096);
        for n in 0..2_000u32 {
            if n % 50 == 0 {
                let (count, period) = ((n / 50 % 7) as u16, (n / 50 % 11) as u16 * 10);
                side.guest().modify_cq(side.cq.number, count, period).unwrap();
            }
            let request = Request::write(side.qp.tag(n), side.mr.remote(0), Data::EMPTY);
            side.post(&request.signaled(true));
            let mut found = side.cq.poll().is_some();
            while !found {
                found = side.cq.arm(Arm::Next).is_some();
                if !found {
                    assert!(event(&side, wait::PATIENCE), "after {n}");
                    found = side.cq.poll().is_some();
                }
            }
        }
    }
}
