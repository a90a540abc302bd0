//! Tests of the order of turns.

use super::*;
use crate::base::rng::Rng;
use crate::objects::qp::Direction::{Answers, Requests};

fn place(device: u32, qpn: u32) -> QpRef {
    QpRef { device, qpn: Qpn::truncate(qpn) }
}

/// Devices whose QPs always have more to do.
struct World {
    turns: Turns,
    /// Cost of the turns of each device.
    given: Vec<Cost>,
}

impl World {
    /// Makes as many QPs of each device as given, all with requests.
    fn new(qps: &[u32]) -> World {
        let mut turns = Turns::default();
        for (device, &qps) in qps.iter().enumerate() {
            (0..qps).for_each(|qpn| turns.push(place(device as u32, qpn), Requests));
        }
        World { turns, given: vec![0; qps.len()] }
    }

    /// Executes one turn, whose cost `cost` returns. The QP has more to do after it.
    fn turn(&mut self, cost: impl FnOnce(QpRef) -> Cost) -> QpRef {
        let (place, direction) = self.turns.pop().expect("somebody waits");
        let cost = cost(place);
        self.turns.spend(place.device, direction, cost);
        self.turns.push(place, direction);
        self.given[place.device as usize] += cost;
        place
    }
}

#[test]
fn a_device_with_one_qp_gets_as_much_as_one_with_thousands() {
    let mut world = World::new(&[16_000, 1]);
    for _ in 0..1000 {
        world.turn(|_| QUANTUM);
    }
    assert_eq!(world.given, [500 * QUANTUM; 2]);
}

#[test]
fn a_device_of_weight_3_gets_three_times_what_one_of_weight_1_gets() {
    for (weights, qps) in [([1, 3], [16_000, 1]), ([1, 3], [1, 100]), ([33, 99], [7, 7]), ([2, 6], [1, 1])] {
        for seed in 0..4 {
            let (mut rng, mut world) = (Rng::new(seed), World::new(&qps));
            (0..2).for_each(|device| world.turns.set_weight(device, weights[device as usize]));
            let rounds = 400 * weights[0] as u64;
            while world.given.iter().sum::<Cost>() < rounds * QUANTUM {
                // Devices have turns of all lengths, of no more than the credit, or of a bit more.
                let cost = 1 + rng.next() % QUANTUM;
                world.turn(|place| if place.device == 0 { cost } else { OPERATION + cost / 100 });
            }
            let [one, three] = world.given[..] else { unreachable!("there are two devices") };
            assert!((3 * one).abs_diff(three) * 20 <= three, "{weights:?}: {one} and {three}");
        }
    }
}

#[test]
fn a_weight_stays_when_a_device_is_reset_and_limits_what_posts_carry() {
    let mut turns = Turns::default();
    turns.set_weight(1, 3);
    turns.push(place(1, 1), Requests);
    turns.forget(1);
    assert_eq!(turns.len(), 0);
    // Device 0 waits, so posts of others carry what they have in a round.
    turns.push(place(0, 1), Requests);
    let carried = |turns: &mut Turns, device| {
        turns.begin_poll();
        let mut count = 0;
        while turns.may_carry(device, WITHIN_POSTS) {
            turns.carry(device, QP_TURN);
            count += 1;
        }
        count
    };
    assert_eq!([1, 2].map(|device| carried(&mut turns, device)), [3, 1]);
    // They pay for it: each is in debt by a round, however much it was.
    assert_eq!([1, 2].map(|device| carried(&mut turns, device)), [0, 0]);
    for device in [1, 2] {
        turns.push(place(device, 1), Requests);
    }
    turns.set_weight(1, 1);
    assert_eq!(turns.shares[1].credit, DEBT, "a lower weight leaves a lower debt");
}

#[test]
fn who_is_next_is_known_before_its_turn() {
    let mut world = World::new(&[3, 0]);
    for expected in [0, 1, 2, 0] {
        assert_eq!(world.turns.soon(0, Requests), Some(Qpn::truncate(expected)));
        assert_eq!(world.turn(|_| OPERATION), place(0, expected));
    }
    assert_eq!((world.turns.soon(0, Answers), world.turns.soon(1, Requests)), (None, None));
    assert_eq!(world.turns.soon(7, Requests), None);
    world.turns.push(place(0, 9), Answers);
    assert_eq!(world.turns.soon(0, Answers), Some(Qpn::truncate(9)));
}

#[test]
fn it_is_what_turns_cost_that_counts_and_not_how_many_there_are() {
    let mut world = World::new(&[3, 100, 1]);
    for _ in 0..100_000 {
        // Device 0 has few long turns, device 1 many short ones, device 2 all kinds.
        world.turn(|place| match place.device {
            0 => QUANTUM,
            1 => OPERATION + 8,
            _ => OPERATION + u64::from(place.qpn.number() + 7) * 1000,
        });
    }
    let (least, most) = (*world.given.iter().min().unwrap(), *world.given.iter().max().unwrap());
    assert!(most - least < 3 * QUANTUM, "{:?}", world.given);
}

#[test]
fn whoever_has_work_has_a_turn_in_each_round_and_no_other_has_more_than_two_quanta_meanwhile() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let devices = 2 + (rng.next() % 6) as u32;
        let qps: Vec<u32> = (0..devices).map(|_| 1 + (rng.next() % 50) as u32).collect();
        let mut world = World::new(&qps);
        // Cost of the turns of each other device since a device had its turn.
        let mut others = vec![vec![0; devices as usize]; devices as usize];
        for _ in 0..5000 {
            let cost = 1 + rng.next() % if rng.next().is_multiple_of(2) { QUANTUM } else { 2000 };
            let place = world.turn(|_| cost);
            let device = place.device as usize;
            others[device].fill(0);
            for (of, others) in others.iter_mut().enumerate().filter(|(of, _)| *of != device) {
                others[device] += cost;
                assert!(others[device] < 2 * QUANTUM, "seed {seed}: {device} before {of}");
            }
        }
    }
}

#[test]
fn a_device_alone_has_all_turns_and_owes_nobody() {
    let mut world = World::new(&[5]);
    for turn in 0..1000 {
        assert_eq!(world.turn(|_| QUANTUM).qpn.number(), turn % 5);
    }
}

#[test]
fn what_a_device_did_not_use_is_not_kept_and_what_it_took_too_much_is() {
    let mut turns = Turns::default();
    for round in 0..100 {
        turns.push(place(0, round), Requests);
        assert_eq!(turns.pop(), Some((place(0, round), Requests)));
        turns.spend(0, Requests, 1);
        assert_eq!(turns.pop(), None);
    }
    // The device gets as much as if it had never been there.
    let mut world = World { turns, ..World::new(&[0, 0]) };
    (0..10).for_each(|qpn| world.turns.push(place(0, qpn), Requests));
    world.turns.push(place(1, 0), Requests);
    assert_eq!([0, 1, 0, 1].map(|_| world.turn(|_| QUANTUM).device), [0, 1, 0, 1]);
    // A device that takes nearly two quanta and leaves lacks one of them when it comes back.
    let mut turns = Turns::default();
    for cost in [QUANTUM - 1, QUANTUM] {
        turns.push(place(0, 1), Requests);
        turns.pop().unwrap();
        turns.spend(0, Requests, cost);
    }
    assert_eq!(turns.pop(), None);
    turns.push(place(0, 1), Requests);
    turns.pop().unwrap();
    assert_eq!(turns.credit(0), 1);
}

#[test]
fn answers_go_before_requests_of_the_same_device_until_they_have_cost_a_quantum_more() {
    let mut world = World::new(&[1000]);
    world.turns.push(place(0, 5000), Answers);
    assert_eq!(world.turn(|_| QUANTUM / 2).qpn.number(), 5000);
    assert_eq!(world.turn(|_| QUANTUM / 2).qpn.number(), 5000);
    // READ responses without end: from here on answers get half of all turns.
    let (mut answers, mut requests) = (0, 0);
    for _ in 0..1000 {
        match world.turn(|_| QUANTUM / 2).qpn.number() {
            5000 => answers += 1,
            _ => requests += 1,
        }
    }
    assert_eq!((answers, requests), (500, 500));
}

#[test]
fn acknowledges_wait_for_no_requests() {
    let mut turns = Turns::default();
    (0..16_000).for_each(|qpn| turns.push(place(0, qpn), Requests));
    for _ in 0..100 {
        turns.push(place(0, 20_000), Answers);
        assert_eq!(turns.pop(), Some((place(0, 20_000), Answers)));
        turns.spend(0, Answers, OPERATION);
        let (_, direction) = turns.pop().unwrap();
        assert_eq!(direction, Requests);
        turns.spend(0, Requests, QUANTUM);
    }
}

#[test]
fn requests_that_come_after_many_answers_wait_for_none() {
    let mut turns = Turns::default();
    for _ in 0..1000 {
        turns.push(place(0, 1), Answers);
        turns.pop().unwrap();
        turns.spend(0, Answers, QUANTUM);
    }
    turns.push(place(0, 1), Answers);
    turns.push(place(0, 2), Requests);
    assert_eq!(turns.pop(), Some((place(0, 2), Requests)));
    turns.spend(0, Requests, QUANTUM);
    // But requests do not get back what answers took while no requests waited.
    turns.push(place(0, 2), Requests);
    turns.spend(0, Requests, 1);
    assert_eq!(turns.pop(), Some((place(0, 1), Answers)));
}

#[test]
fn what_is_gone_leaves_nothing() {
    let mut turns = Turns::default();
    for device in 0..3 {
        (0..200).for_each(|qpn| turns.push(place(device, qpn), Requests));
        (0..100).for_each(|qpn| turns.push(place(device, qpn), Answers));
    }
    assert_eq!(turns.pop(), Some((place(0, 0), Answers)));
    turns.spend(0, Answers, QUANTUM - 1);
    turns.forget(0);
    assert_eq!(turns.len(), 600);
    // 199 of 200 QPs are destroyed. From time to time all destroyed ones are removed.
    for gone in 0..199 {
        if turns.removed(1, Requests) {
            turns.sweep(1, Requests, |qpn| qpn.number() > gone);
        }
    }
    assert!(turns.len() <= 600 - 130, "{}", turns.len());
    // A new device at the same index begins with nothing.
    turns.push(place(0, 7), Requests);
    for device in [1, 2] {
        turns.forget(device);
    }
    assert_eq!((turns.pop(), turns.credit(0)), (Some((place(0, 7), Requests)), QUANTUM));
    assert_eq!((turns.pop(), turns.len(), turns.round.len()), (None, 0, 0));
}

#[test]
fn few_entries_are_looked_up_when_a_qp_of_many_is_destroyed_and_the_others_keep_their_order() {
    let mut turns = Turns::default();
    let all = 16_000;
    (0..all).for_each(|qpn| turns.push(place(0, qpn), Requests));
    // Nine of ten QPs are destroyed, from the last on.
    let mut first_gone = all;
    let looked_up = std::cell::Cell::new(0);
    for gone in (0..all).rev().filter(|gone| gone % 10 != 0) {
        first_gone = gone;
        looked_up.set(0);
        if turns.removed(0, Requests) {
            turns.sweep(0, Requests, |qpn| {
                looked_up.set(looked_up.get() + 1);
                qpn.number() < gone || qpn.number() % 10 == 0
            });
        }
        assert!(looked_up.get() <= LOOKED_UP);
    }
    assert_eq!(first_gone, 1);
    assert!(turns.len() < all as usize / 4, "{}", turns.len());
    let mut live = Vec::new();
    while let Some((place, direction)) = turns.pop() {
        turns.spend(place.device, direction, 1);
        live.extend(Some(place.qpn.number()).filter(|qpn| qpn % 10 == 0));
    }
    assert!(live.into_iter().eq((0..all).filter(|qpn| qpn % 10 == 0)));
}

#[test]
fn posts_carry_a_quantum_at_once_while_others_wait_and_pay_for_it() {
    let mut turns = Turns::default();
    let most = 16 * QUANTUM;
    let carried = |turns: &mut Turns| {
        let mut count = 0;
        while turns.may_carry(0, most) {
            turns.carry(0, 64 << 10);
            count += 1;
        }
        count
    };
    turns.begin_poll();
    assert_eq!(carried(&mut turns), 64);
    // Requests of the device itself do not count.
    turns.push(place(0, 1), Requests);
    turns.begin_poll();
    assert_eq!(carried(&mut turns), 64);
    turns.push(place(1, 1), Requests);
    assert!(!turns.may_carry(0, most) && turns.may_carry(1, most));
    turns.begin_poll();
    assert_eq!(carried(&mut turns), 4);
    turns.pop().unwrap();
    assert!(turns.credit(0) < QUANTUM / 100, "{}", turns.credit(0));
}

#[test]
fn a_device_whose_last_entry_was_taken_waits_no_longer() {
    let mut turns = Turns::default();
    let most = 16 * QUANTUM;
    turns.push(place(1, 1), Requests);
    turns.begin_poll();
    assert_eq!(turns.pop(), Some((place(1, 1), Requests)));
    for _ in 0..4 * 16 {
        assert!(turns.may_carry(0, most));
        turns.carry(0, 64 << 10);
    }
    // The device also does not pay for what it carried alone.
    assert_eq!(turns.shares[0].credit, 0);
}

#[test]
fn who_posts_at_once_beside_others_gets_no_more_than_they() {
    let mut world = World::new(&[1; 11]);
    let most = 16 * QUANTUM;
    for _ in 0..500 {
        world.turns.begin_poll();
        while world.turns.may_carry(0, most) {
            world.turns.carry(0, 64 << 10);
            world.given[0] += (64 << 10) + OPERATION;
        }
        // A poll has time for only a few turns.
        for _ in 0..4 {
            world.turn(|_| QUANTUM);
        }
    }
    let others = world.given[1];
    assert!(world.given[0] <= others + 2 * QUANTUM, "{:?}", world.given);
}

#[test]
fn all_devices_together_carry_little_more_at_once_than_one_may() {
    let mut turns = Turns::default();
    let most = 16 * QUANTUM;
    turns.begin_poll();
    let mut carried = 0;
    for device in 0..30 {
        while turns.may_carry(device, most) {
            turns.carry(device, 64 << 10);
            carried += Cost::from(64u32 << 10);
        }
    }
    assert!(carried < most + 31 * QUANTUM, "{carried}");
}
