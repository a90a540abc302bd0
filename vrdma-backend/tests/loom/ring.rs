//! The inter-worker rings, and the wake-up of a sleeping worker.

mod sync {
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::Arc;
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
}

#[path = "../../src/port/worker_port/ring.rs"]
#[allow(unsafe_code, reason = "the ring's own")]
mod queue;
#[path = "../../src/port/worker_port/sleeper.rs"]
mod sleeper;
#[path = "../../src/port/worker_port/slots.rs"]
#[allow(unsafe_code, reason = "the ring's own")]
mod slots;

use loom::sync::{Arc, Notify};
use loom::thread;
use queue::ring;
use sleeper::Sleeper;
use slots::slots;
use sync::AtomicBool;

#[test]
fn values_come_whole_in_order_and_once() {
    loom::model(|| {
        let (mut sender, mut receiver) = ring::<[usize; 2]>(2);
        // There are more values than slots, so that slots are reused.
        let sender = thread::spawn(move || {
            let mut refused = 0;
            for value in 1..=3 {
                let has_room = sender.has_room(1);
                let is_refused = sender.push([value; 2]).is_err();
                assert!(!(has_room && is_refused), "who was told of room has it");
                refused += usize::from(is_refused);
                sender.publish();
            }
            (sender, refused)
        });
        let mut seen = Vec::new();
        let mut take = |receiver: &mut queue::RingReceiver<[usize; 2]>| {
            while let Some([one, two]) = receiver.pop() {
                assert_eq!(one, two);
                seen.push(one);
            }
            receiver.release();
        };
        take(&mut receiver);
        let (_sender, refused) = sender.join().unwrap();
        take(&mut receiver);
        // Only the last value may have found no room.
        let wanted: &[usize] = if refused == 0 { &[1, 2, 3] } else { &[1, 2] };
        assert!(refused <= 1 && seen == wanted, "{seen:?}, {refused} refused");
    });
}

#[test]
fn what_a_receiver_released_the_sender_uses_again() {
    loom::model(|| {
        let (mut sender, mut receiver) = ring::<usize>(1);
        sender.push(1).unwrap();
        sender.publish();
        assert_eq!(sender.push(2), Err(2));
        let receiver = thread::spawn(move || {
            let first = receiver.pop();
            receiver.release();
            (receiver, first)
        });
        let early = sender.push(2).is_ok();
        sender.publish();
        let (mut receiver, first) = receiver.join().unwrap();
        assert_eq!((first, receiver.pop()), (Some(1), early.then_some(2)));
    });
}

#[test]
fn values_that_nobody_took_are_dropped_with_the_ring() {
    loom::model(|| {
        let value = std::sync::Arc::new(());
        let (mut sender, receiver) = ring(2);
        sender.push(value.clone()).unwrap();
        sender.publish();
        let other = thread::spawn(move || drop(receiver));
        drop(sender);
        other.join().unwrap();
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
    });
}

#[test]
fn a_worker_that_sleeps_is_woken_for_what_was_published() {
    loom::model(|| {
        let (mut sender, mut receiver) = ring::<usize>(2);
        let sleeper = Arc::new(Sleeper { asleep: AtomicBool::new(false) });
        let bell = Arc::new(Notify::new());
        let (theirs, rung) = (sleeper.clone(), bell.clone());
        let sender = thread::spawn(move || {
            sender.push(7).unwrap();
            sender.publish();
            if theirs.is_to_be_woken() {
                rung.notify();
            }
        });
        loop {
            sleeper.sleeps();
            // The last check before it sleeps.
            if receiver.pop() == Some(7) {
                break;
            }
            // This would never return if a value came without a wake-up.
            bell.wait();
            sleeper.is_awake();
        }
        sender.join().unwrap();
    });
}

#[test]
fn values_in_places_come_whole_in_order_and_once() {
    loom::model(|| {
        let (mut sender, mut receiver) = slots::<usize, usize>(2);
        // There are more values than slots, so that slots are reused, both with a second part and
        // without.
        let sender = thread::spawn(move || {
            let mut refused = 0;
            for value in 1..=3 {
                let has_room = sender.has_room(1);
                let is_refused = !sender.push(value, (value % 2 == 0).then_some(value));
                assert!(!(has_room && is_refused), "who was told of room has it");
                refused += usize::from(is_refused);
            }
            (sender, refused)
        });
        let mut seen = Vec::new();
        let mut take = |receiver: &mut slots::SlotReceiver<usize, usize>| {
            while let Some((value, rest)) = receiver.pop() {
                assert_eq!(rest, (value % 2 == 0).then_some(value));
                seen.push(value);
            }
            receiver.release();
        };
        take(&mut receiver);
        let (_sender, refused) = sender.join().unwrap();
        take(&mut receiver);
        // Only the last value may have found no room.
        let wanted: &[usize] = if refused == 0 { &[1, 2, 3] } else { &[1, 2] };
        assert!(refused <= 1 && seen == wanted, "{seen:?}, {refused} refused");
    });
}

#[test]
fn places_that_a_receiver_released_the_sender_uses_again() {
    loom::model(|| {
        let (mut sender, mut receiver) = slots::<usize, ()>(1);
        assert!(sender.push(1, None) && !sender.push(2, None));
        let receiver = thread::spawn(move || {
            let first = receiver.pop();
            receiver.release();
            (receiver, first)
        });
        let early = sender.push(2, None);
        let (mut receiver, first) = receiver.join().unwrap();
        assert_eq!(first, Some((1, None)));
        assert_eq!(receiver.pop(), early.then_some((2, None)));
    });
}

#[test]
fn values_in_places_are_dropped_once_whoever_is_last() {
    loom::model(|| {
        let value = std::sync::Arc::new(());
        let (mut sender, mut receiver) = slots(2);
        sender.push(value.clone(), None);
        let (theirs, second) = (value.clone(), value.clone());
        let other = thread::spawn(move || {
            let taken = receiver.pop();
            assert!(taken.is_none_or(|(_, rest)| rest.is_none()));
            drop(theirs);
            drop(receiver);
        });
        sender.push(second.clone(), Some(second));
        drop(sender);
        other.join().unwrap();
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
    });
}

#[test]
fn a_worker_that_sleeps_is_woken_for_what_is_in_a_place() {
    loom::model(|| {
        let (mut sender, mut receiver) = slots::<usize, ()>(2);
        let sleeper = Arc::new(Sleeper { asleep: AtomicBool::new(false) });
        let bell = Arc::new(Notify::new());
        let (theirs, rung) = (sleeper.clone(), bell.clone());
        let sender = thread::spawn(move || {
            assert!(sender.push(7, None));
            if theirs.is_to_be_woken() {
                rung.notify();
            }
        });
        loop {
            sleeper.sleeps();
            // The last check before it sleeps.
            if receiver.pop() == Some((7, None)) {
                break;
            }
            // This would never return if a value came without a wake-up.
            bell.wait();
            sleeper.is_awake();
        }
        sender.join().unwrap();
    });
}
