//! Races between arming and sleeping, with threads that run against each other.
//!
//! The consuming side asks to be woken, looks once more and sleeps. The producing side publishes,
//! and checks whether it must wake. If both can miss each other, a thread sleeps for ever. This
//! shows here as a time-out.
//!
//! Shows: sleep.

use std::sync::mpsc::{Receiver, Sender, channel as wakes};
use std::thread;

use crate::model::{DeviceChannel, DeviceCq};
use crate::qp::WrRing;
use crate::wait;
use crate::{Arm, Channel, Cq, CqLayout, Cqe, Data, PostError, Request, Sge, Tag};

const ROUNDS: u32 = if cfg!(miri) { 100 } else { 50_000 };

/// Waits for a wake-up. Spurious wake-ups are allowed.
fn sleep(wake: &Receiver<()>) {
    // A side that has ended wakes nobody, and needs no wake-up.
    let _ = wait::receive_or_end("a wake-up, which was lost", wake);
}

/// Waits for an action of another thread, with a time limit. If that thread has failed, this one
/// fails too.
fn until(mut done: impl FnMut() -> bool) {
    wait::until("the other side, which is gone", || done().then_some(()));
}

/// Wakes the sleeper. One that has ended needs no wake-up.
fn send(wake: &Sender<()>) {
    let _ = wake.send(());
}

/// A cheap source of different pauses.
fn pause(round: u32) {
    for _ in 0..(round.wrapping_mul(2_654_435_761) >> 27) {
        core::hint::spin_loop();
    }
}

fn post_until(channel: &mut Channel<impl crate::Doorbell>, request: &Request<'_>) {
    until(|| match channel.post(request) {
        Ok(()) => true,
        Err(PostError::Full) => false,
        Err(error) => panic!("{error:?}"),
    });
}

fn no_kick_is_lost(event_idx: bool, requests_at_once: u32) {
    let mut device = DeviceChannel::new(16, event_idx);
    let (kick, kicked) = wakes::<()>();
    let parts = device.parts(move || send(&kick));
    // SAFETY: the device's Arc keeps the memory until this function has joined the other thread.
    let mut driver = unsafe { Channel::new(parts) }.unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let list = [Sge::default(); 3];
            for wqe_id in 0..ROUNDS {
                let tag = Tag { qpn: 1, wqe_id };
                // One unit and two units in turn.
                let request = Request::recv(tag, &list[..if wqe_id % 2 == 0 { 1 } else { 3 }]);
                if wqe_id % requests_at_once == 0 {
                    pause(wqe_id);
                    post_until(&mut driver, &request);
                } else {
                    until(|| {
                        driver.push(&request).is_ok() || {
                            driver.ring();
                            false
                        }
                    });
                }
            }
            driver.ring();
            // Keeps the kick's sender alive until everything is taken.
            until(|| driver.pending() == 0);
        });
        let mut expected = 0;
        while expected < ROUNDS {
            match device.take() {
                Some(unit) => {
                    assert_eq!(unit.0[1] as u32, expected);
                    if expected % 2 == 1 {
                        until(|| device.take().is_some());
                    }
                    expected += 1;
                    device.disarm();
                }
                None => {
                    device.arm();
                    if !device.has_work() {
                        sleep(&kicked);
                    }
                }
            }
        }
    });
}

#[test]
fn no_kick_is_lost_with_flags() {
    no_kick_is_lost(false, 1);
}

#[test]
fn no_kick_is_lost_with_event_idx() {
    no_kick_is_lost(true, 1);
}

#[test]
fn no_kick_is_lost_in_batches() {
    no_kick_is_lost(true, 5);
    no_kick_is_lost(false, 5);
}

fn no_event_is_lost(kind: Arm) {
    let layout = CqLayout::for_entries(8).unwrap();
    let mut device = DeviceCq::new(layout);
    let (event, events) = wakes::<()>();
    // SAFETY: the memory lives in the device, which outlives the threads of the scope.
    let mut cq = unsafe { Cq::new(device.memory.at(0), layout) }.unwrap();
    let memory = device.memory.clone();
    thread::scope(|scope| {
        scope.spawn(move || {
            for wqe_id in 0..ROUNDS {
                pause(wqe_id);
                until(|| device.put(Cqe { wqe_id: wqe_id.into(), ..Cqe::default() }));
                // Only every second completion is solicited. Those before it must come with it.
                if device.wants_event(wqe_id % 2 == 1 || wqe_id + 1 == ROUNDS) {
                    send(&event);
                }
            }
        });
        let mut expected = 0;
        while expected < ROUNDS {
            let take = |cqe: Cqe| {
                assert_eq!(cqe.wqe_id.get(), expected);
                expected += 1;
            };
            if cq.poll_batch(3, take) == 0 {
                cq.arm(kind);
                if !cq.is_ready() {
                    sleep(&events);
                }
            }
        }
    });
    drop(memory);
}

#[test]
fn no_event_is_lost_for_any_completion() {
    no_event_is_lost(Arm::Next);
}

#[test]
fn no_event_is_lost_for_solicited_completions() {
    no_event_is_lost(Arm::Solicited);
}

/// A poster, a device and a poller, with unsignaled requests between: each wr_id comes once and in
/// order.
#[test]
fn a_queue_pair_between_three_threads() {
    const LIMIT: u32 = 7;
    let mut device = DeviceChannel::new(32, true);
    let layout = CqLayout::for_entries(LIMIT).unwrap();
    let mut device_cq = DeviceCq::new(layout);
    let (kick, kicked) = wakes::<()>();
    let (event, events): (Sender<()>, _) = wakes();
    // SAFETY: both memories live until the scope has joined its threads.
    let (mut driver, mut cq) = unsafe {
        let driver = Channel::new(device.parts(move || send(&kick))).unwrap();
        (driver, Cq::new(device_cq.memory.at(0), layout).unwrap())
    };
    let memories = (device.memory.clone(), device_cq.memory.clone());
    let sends = WrRing::new([const { core::sync::atomic::AtomicU64::new(0) }; 8], LIMIT).unwrap();
    let wr_id = |number: u32| u64::from(number) << 20 | 0xabc;
    let signaled = |number: u32| number % 3 == 2 || number + 1 == ROUNDS;
    thread::scope(|scope| {
        let sends = &sends;
        scope.spawn(move || {
            for number in 0..ROUNDS {
                until(|| sends.next().is_some());
                let wqe_id = sends.next().unwrap();
                sends.push(wr_id(number));
                let payload = number.to_le_bytes();
                let request = Request::send(Tag { qpn: 1, wqe_id }, Data::Inline(&payload));
                post_until(&mut driver, &request.signaled(signaled(number)));
            }
            until(|| driver.pending() == 0);
        });
        scope.spawn(move || {
            let mut number = 0;
            while number < ROUNDS {
                let Some(unit) = device.take() else {
                    device.arm();
                    if !device.has_work() {
                        sleep(&kicked);
                    }
                    continue;
                };
                device.disarm();
                assert_eq!(unit.0[4] as u32, number, "payload");
                if signaled(number) {
                    let cqe = Cqe { wqe_id: (unit.0[1] as u32).into(), ..Cqe::default() };
                    assert!(device_cq.put(cqe), "no more are outstanding than fit");
                    if device_cq.wants_event(false) {
                        send(&event);
                    }
                }
                number += 1;
            }
        });
        let mut number = 0;
        while number < ROUNDS {
            match cq.poll() {
                Some(cqe) => {
                    while !signaled(number) {
                        number += 1;
                    }
                    assert_eq!(sends.complete(cqe.wqe_id.get()), Some(wr_id(number)));
                    number += 1;
                }
                None => {
                    cq.arm(Arm::Next);
                    if !cq.is_ready() {
                        sleep(&events);
                    }
                }
            }
        }
    });
    assert_eq!(sends.outstanding(), 0);
    drop(memories);
}
