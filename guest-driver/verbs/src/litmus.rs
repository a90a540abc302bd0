//! The races between arming and sleeping at their narrowest.
//!
//! Both sides act at the same moment, and one must notice the other. On x86, a store that is still
//! in the store buffer while its side already reads loses the wake-up. Without one of the barriers
//! these tests fail at times here, and nearly always under miri (`cargo +nightly miri test -p
//! vrdma-verbs`).
//!
//! Shows: sleep.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::thread;

use crate::model::{DeviceChannel, DeviceCq};
use crate::wait::Spell;
use crate::{Arm, Channel, Cq, CqLayout, Cqe, Request, Tag};

const ROUNDS: u32 = if cfg!(miri) { 200 } else { 300_000 };
/// The time limit. On a busy machine there are fewer rounds.
const LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 600 } else { 3 });
/// The round in which the driver ends.
const END: u32 = u32::MAX >> 1;

/// The action of a side in a round. It returns whether it noticed the peer.
trait Side: FnMut(u32) -> bool {}
impl<F: FnMut(u32) -> bool> Side for F {}

/// Runs `driver` and `device` in parallel, after `prepare` alone, `ROUNDS` times.
fn one_notices_the_other(mut driver: impl Side + Send, mut device: impl Side, prepare: impl Fn()) {
    let mut lost = 0;
    let (start, done) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                if wait(&start, round) {
                    break;
                }
                pause(round % 61);
                let noticed = driver(round);
                done.store(round << 1 | u32::from(noticed), Ordering::Release);
            }
        });
        let spell = Spell::of(LIMIT);
        for round in 1..=ROUNDS {
            if !spell.lasts() {
                start.store(END << 1, Ordering::Release);
                break;
            }
            prepare();
            start.store(round << 1, Ordering::Release);
            pause(round % 127);
            let noticed = device(round);
            if !wait(&done, round) && !noticed {
                lost += 1;
            }
        }
    });
    assert_eq!(lost, 0, "rounds in which neither noticed the other, of {ROUNDS}");
}

/// Waits for `round`, and returns the bit below it. Returns true at the end.
fn wait(word: &AtomicU32, round: u32) -> bool {
    let mut spins = 0u32;
    loop {
        let value = word.load(Ordering::Acquire);
        if value >> 1 == round {
            return value & 1 != 0;
        }
        if value >> 1 == END {
            return true;
        }
        spins += 1;
        if spins.is_multiple_of(1000) || cfg!(miri) {
            thread::yield_now();
        }
    }
}

/// Pauses for a few cycles per step, so that the sides meet at every distance.
fn pause(steps: u32) {
    for step in 0..steps {
        core::hint::black_box(step);
    }
}

fn a_post_meets_a_device_that_goes_to_sleep(event_idx: bool) {
    let device = core::cell::RefCell::new(DeviceChannel::new(16, event_idx));
    let memory = device.borrow().memory.clone();
    // SAFETY: the device keeps the memory until the driver's thread has ended.
    let mut channel = unsafe { Channel::new(device.borrow().parts(|| ())) }.unwrap();
    one_notices_the_other(
        move |wqe_id| {
            channel.push(&Request::recv(Tag { qpn: 1, wqe_id }, &[])).unwrap();
            channel.ring()
        },
        |_| {
            let device = device.borrow();
            device.arm();
            device.has_work()
        },
        || {
            let mut device = device.borrow_mut();
            while device.take().is_some() {}
            device.disarm();
        },
    );
    drop(memory);
}

#[test]
fn a_post_meets_a_device_that_goes_to_sleep_by_flag() {
    a_post_meets_a_device_that_goes_to_sleep(false);
}

#[test]
fn a_post_meets_a_device_that_goes_to_sleep_by_index() {
    a_post_meets_a_device_that_goes_to_sleep(true);
}

#[test]
fn a_completion_meets_a_driver_that_goes_to_sleep() {
    let layout = CqLayout::for_entries(4).unwrap();
    let mut device = DeviceCq::new(layout);
    let memory = device.memory.clone();
    // SAFETY: `memory` outlives the threads.
    let mut cq = unsafe { Cq::new(memory.at(0), layout) }.unwrap();
    one_notices_the_other(
        move |round| {
            // This takes the completion of the round before. That of this round is left.
            if round > 1 {
                cq.poll();
            }
            cq.arm(Arm::Next);
            cq.is_ready()
        },
        |_| {
            assert!(device.put(Cqe::default()));
            device.wants_event(false)
        },
        || (),
    );
}
