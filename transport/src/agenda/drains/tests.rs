//! The order of questions, and which askers an answer serves.

use super::*;
use vrdma_wire::num::Qpn;

fn question(device: u32, owner: u32) -> DrainRequest {
    DrainRequest { device: DeviceId(device), owner: OwnerId(owner) }
}

/// Makes the QP with this number of device 9 ask.
fn ask(looks: &mut Drains, question: DrainRequest, number: u32) {
    looks.ask(question, Waiter::Send(QpRef { device: 9, qpn: Qpn::truncate(number) }, number));
}

fn numbers(askers: Vec<Waiter>) -> Vec<u32> {
    let number = |asker| match asker {
        Waiter::Send(_, number) => number,
        Waiter::Frame(..) | Waiter::Near(_) | Waiter::Stream(..) => panic!("no frame or stream asked"),
    };
    askers.into_iter().map(number).collect()
}

#[test]
fn a_question_about_one_device_waits_for_one_about_each_other_however_many_there_are() {
    let mut looks = Drains::default();
    (0..1000).for_each(|owner| ask(&mut looks, question(0, owner), owner));
    ask(&mut looks, question(1, 0), 0);
    ask(&mut looks, question(2, 0), 0);
    let taken = [(); 4].map(|()| looks.take());
    assert_eq!(taken, [question(0, 0), question(1, 0), question(2, 0), question(0, 1)].map(Some));
}

#[test]
fn the_caller_owes_few_answers_about_a_device_at_once_and_gets_all_questions_in_order() {
    let mut looks = Drains::default();
    (0..100).for_each(|owner| ask(&mut looks, question(0, owner), owner));
    let mut taken: Vec<_> = std::iter::from_fn(|| looks.take()).collect();
    assert_eq!((taken.len(), looks.any()), (UNDER_WAY as usize, false));
    // Questions about other devices are still taken.
    ask(&mut looks, question(1, 7), 0);
    assert_eq!((looks.take(), looks.take()), (Some(question(1, 7)), None));
    for at in 0..100 {
        assert_eq!(numbers(looks.answered(taken[at])), [at as u32]);
        taken.extend(looks.take());
    }
    assert!(taken.into_iter().eq((0..100).map(|owner| question(0, owner))));
    assert_eq!((looks.open.len(), looks.any()), (1, false));
}

#[test]
fn an_answer_serves_some_of_many_and_the_others_ask_again() {
    let mut looks = Drains::default();
    let all = 3 * SERVED as u32 + 10;
    (0..all).for_each(|number| ask(&mut looks, question(0, 1), number));
    ask(&mut looks, question(0, 2), all);
    let mut served = Vec::new();
    while let Some(question) = looks.take() {
        let some = numbers(looks.answered(question));
        assert!(!some.is_empty() && some.len() <= SERVED);
        served.extend(some);
    }
    // The other owner's question comes between the first answer and the second.
    served.retain(|&number| number != all);
    assert!(served.into_iter().eq(0..all));
    assert_eq!((looks.open.len(), looks.devices[0].under_way), (0, 0));
}

#[test]
fn of_many_who_asked_about_a_device_that_is_reset_some_are_served_and_the_others_ask_again() {
    let mut looks = Drains::default();
    let all = 2 * SERVED as u32;
    (0..all - 1).for_each(|number| ask(&mut looks, question(0, number % 2), number));
    let taken = looks.take().unwrap();
    ask(&mut looks, taken, all - 1);
    let mut served = numbers(looks.forget(DeviceId(0), SERVED));
    assert_eq!(served.len(), SERVED);
    while let Some(question) = looks.take() {
        served.extend(numbers(looks.answered(question)));
    }
    served.sort_unstable();
    assert!(served.into_iter().eq(0..all));
    assert_eq!((looks.open.len(), looks.round.len()), (0, 0));
}
