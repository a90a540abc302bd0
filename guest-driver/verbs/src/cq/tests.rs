use std::collections::VecDeque;
use std::vec::Vec;

use proptest::prelude::*;
use vrdma_abi::cqe::WcStatus;

use super::*;
use crate::model::DeviceCq;

fn pair(cqes: u32) -> (Cq, DeviceCq) {
    let layout = CqLayout::for_entries(cqes).unwrap();
    let device = DeviceCq::new(layout);
    // SAFETY: the device keeps the memory as long as the test, and this Cq is the driver's only
    // side.
    let cq = unsafe { Cq::new(device.memory.at(0), layout) }.unwrap();
    (cq, device)
}

fn cqe(qpn: u32, wqe_id: u32) -> Cqe {
    Cqe { qpn: qpn.into(), wqe_id: wqe_id.into(), ..Cqe::default() }
}

#[test]
fn layout_is_rounded_up() {
    for (cqes, entries) in [(0, 2), (1, 2), (2, 2), (3, 4), (100, 128), (1 << 31, 1 << 31)] {
        let layout = CqLayout::for_entries(cqes).unwrap();
        assert_eq!(layout.entries(), entries);
        assert_eq!(layout.record_offset(), entries as usize * 32);
        assert_eq!(layout.size(), entries as usize * 32 + 128);
    }
    assert_eq!(CqLayout::for_entries((1 << 31) + 1), None);
}

#[test]
fn every_field_arrives() {
    let (mut cq, mut device) = pair(4);
    let sent = Cqe {
        wqe_id: 0x0102_0304.into(),
        qpn: 0x0506_0708.into(),
        byte_len: 0x090a_0b0c.into(),
        imm: 0x0d0e_0f10.into(),
        src_qpn: 0x1112_1314.into(),
        smac: [1, 2, 3, 4, 5, 6],
        vlan: 0x1516.into(),
        opcode: 0x81,
        status: WcStatus::REM_ACCESS_ERR.0,
        flags: 7,
        phase: 1,
    };
    assert!(!cq.is_ready());
    assert_eq!(cq.poll(), None);
    device.put(sent);
    assert!(cq.is_ready());
    assert_eq!(cq.poll(), Some(sent));
    assert_eq!(cq.poll(), None);
}

#[test]
fn room_comes_back_when_published() {
    let (mut cq, mut device) = pair(2);
    assert!(device.put(cqe(1, 0)) && device.put(cqe(1, 1)) && !device.put(cqe(1, 2)));
    assert!(cq.take().is_some());
    assert!(!device.put(cqe(1, 2)), "taken, but not published");
    cq.publish();
    assert!(device.put(cqe(1, 2)));
    let mut ids = Vec::new();
    assert_eq!(cq.poll_batch(10, |cqe| ids.push(cqe.wqe_id.get())), 2);
    assert_eq!(ids, [1, 2]);
    assert!(device.put(cqe(1, 3)) && device.put(cqe(1, 4)));
    assert_eq!(cq.poll_batch(1, |_| ()), 1);
}

#[test]
fn arming_counts_in_the_word_of_its_kind() {
    let (mut cq, mut device) = pair(4);
    assert!(!device.wants_event(true));
    cq.arm(Arm::Solicited);
    assert!(!device.wants_event(false));
    assert!(device.wants_event(true) && !device.wants_event(true));
    cq.arm(Arm::Next);
    cq.arm(Arm::Solicited);
    assert!(device.wants_event(false), "solicited does not take back what was asked for first");
}

#[test]
fn waiting_completions_of_a_dead_qp_are_renamed() {
    let (mut cq, mut device) = pair(4);
    assert!(device.put(cqe(9, 0)));
    assert!(cq.poll().is_some());
    for (qpn, wqe_id) in [(5, 1), (9, 2), (5, 3), (9, 4)] {
        assert!(device.put(cqe(qpn, wqe_id)));
    }
    let mut renamed = Vec::new();
    cq.rename(|cqe| cqe.qpn.get() == 9, u32::MAX, |cqe| renamed.push((cqe.qpn.get(), cqe.wqe_id.get())));
    assert_eq!(renamed, [(9, 2), (9, 4)]);
    let mut qpns = Vec::new();
    cq.poll_batch(9, |cqe| qpns.push(cqe.qpn.get()));
    assert_eq!(qpns, [5, u32::MAX, 5, u32::MAX]);
}

/// Begins to resize `cq`, and returns the ring to which the device may switch.
fn begin(cq: &mut Cq, cqes: u32) -> DeviceCq {
    let layout = CqLayout::for_entries(cqes).unwrap();
    let next = DeviceCq::new(layout);
    // SAFETY: the device keeps the memory as long as the test, and this Cq is the driver's only
    // side.
    assert!(unsafe { cq.begin_resize(next.memory.at(0), layout) });
    next
}

#[test]
fn what_is_left_in_a_former_ring_comes_first_and_the_new_one_begins_anew() {
    let (mut cq, mut device) = pair(4);
    for id in 0..3 {
        assert!(device.put(cqe(1, id)));
    }
    assert_eq!(cq.poll().map(|cqe| cqe.wqe_id.get()), Some(0));
    let next = begin(&mut cq, 2);
    assert!(cq.is_resizing());
    assert!(device.put(cqe(1, 3)));
    let mut former = Vec::new();
    let mut device = device.followed_by(next, &mut former);
    let mut left = Vec::new();
    cq.end_resize(|(cqe, _)| left.push(cqe.wqe_id.get()));
    assert_eq!((left, cq.is_resizing(), cq.layout().entries()), (std::vec![1, 2, 3], false, 2));
    drop(former);
    for lap in 0..5 {
        assert!(device.put(cqe(1, lap)) && device.put(cqe(1, lap + 100)) && !device.put(cqe(1, 9)));
        assert_eq!(cq.poll_batch(9, |_| ()), 2);
    }
    cq.end_resize(|_| panic!("nothing is left twice"));
}

#[test]
fn a_refused_resize_leaves_the_queue_as_it_was() {
    let (mut cq, mut device) = pair(4);
    drop(begin(&mut cq, 8));
    assert!(device.put(cqe(1, 5)));
    cq.cancel_resize();
    assert_eq!((cq.is_resizing(), cq.layout().entries()), (false, 4));
    assert_eq!(cq.poll().map(|cqe| cqe.wqe_id.get()), Some(5));
    cq.arm(Arm::Next);
    assert!(device.wants_event(false));
}

#[test]
fn a_queue_is_resized_once_at_a_time() {
    let (mut cq, _device) = pair(4);
    let next = begin(&mut cq, 8);
    // SAFETY: memory that outlives the queue; refused anyway.
    assert!(!unsafe { cq.begin_resize(next.memory.at(0), CqLayout::for_entries(8).unwrap()) });
    cq.cancel_resize();
    // SAFETY: memory that outlives the queue; refused anyway.
    assert!(!unsafe { cq.begin_resize(next.memory.at(32), CqLayout::for_entries(2).unwrap()) });
    assert!(!cq.is_resizing());
}

#[test]
fn completions_of_a_dead_qp_are_renamed_in_both_rings() {
    let (mut cq, mut device) = pair(4);
    let next = begin(&mut cq, 4);
    assert!(device.put(cqe(9, 0)));
    let _former = core::mem::replace(&mut device, next);
    assert!(device.put(cqe(9, 1)) && device.put(cqe(5, 2)));
    let mut renamed = Vec::new();
    cq.rename(|cqe| cqe.qpn.get() == 9, u32::MAX, |cqe| renamed.push(cqe.wqe_id.get()));
    assert_eq!(renamed, [0, 1]);
    let mut qpns = Vec::new();
    cq.poll_batch(9, |cqe| qpns.push(cqe.qpn.get()));
    assert_eq!(qpns, [u32::MAX, u32::MAX, 5]);
}

#[test]
fn time_stamps_come_with_their_cqes_from_any_ring() {
    let layout = CqLayout::for_entries(4).unwrap().with_timestamps(true);
    assert_eq!((layout.cqe_size(), layout.record_offset(), layout.size()), (64, 4 * 64, 4 * 64 + 128));
    assert_eq!(layout.with_timestamps(false), CqLayout::for_entries(4).unwrap());
    let mut device = DeviceCq::new(layout);
    // SAFETY: the device keeps the memory as long as the test, and this Cq is the driver's only
    // side.
    let mut cq = unsafe { Cq::new(device.memory.at(0), layout) }.unwrap();
    let took = |cq: &mut Cq| {
        let found = cq.take_timed().map(|(cqe, timestamp)| (cqe.wqe_id.get(), timestamp));
        cq.publish();
        found
    };
    for lap in 0..3 {
        for id in 0..4 {
            assert!(device.put_timed(cqe(1, id), 1_000_000_000_000 * lap + u64::from(id)));
        }
        for id in 0..4 {
            assert_eq!(took(&mut cq), Some((id, 1_000_000_000_000 * lap + u64::from(id))));
        }
        assert_eq!(took(&mut cq), None);
    }
    assert!(device.put_timed(cqe(9, 5), 55) && device.put_timed(cqe(1, 6), 66));
    let layout = CqLayout::for_entries(2).unwrap();
    let next = DeviceCq::new(layout.with_timestamps(true));
    // SAFETY: memory that outlives the queue.
    unsafe {
        assert!(!cq.begin_resize(next.memory.at(0), layout), "CQEs of another kind");
        assert!(cq.begin_resize(next.memory.at(0), layout.with_timestamps(true)));
    }
    cq.rename(|cqe| cqe.qpn.get() == 9, 8, |_| ());
    let mut former = Vec::new();
    let mut device = device.followed_by(next, &mut former);
    assert!(device.put_timed(cqe(1, 7), 77));
    let mut left = Vec::new();
    cq.end_resize(|(cqe, timestamp)| left.push((cqe.qpn.get(), cqe.wqe_id.get(), timestamp)));
    assert_eq!(left, [(8, 5, 55), (1, 6, 66)]);
    assert_eq!(took(&mut cq), Some((7, 77)));
    let (mut plain, mut device) = pair(2);
    assert!(device.put(cqe(1, 1)));
    assert_eq!(plain.take_timed(), Some((Cqe { phase: 1, ..cqe(1, 1) }, 0)));
}

#[test]
fn memory_must_be_aligned() {
    let layout = CqLayout::for_entries(4).unwrap();
    let device = DeviceCq::new(CqLayout::for_entries(8).unwrap());
    // SAFETY: large enough; refused anyway.
    assert!(unsafe { Cq::new(device.memory.at(32), layout) }.is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    /// Completions arrive in order, whole and once, over many laps, and also where the 32-bit index
    /// wraps.
    #[test]
    fn completions_arrive_in_order(
        size in 1u32..10,
        wraps: bool,
        steps in prop::collection::vec((0u32..12, 0usize..12), 0..100),
    ) {
        let (mut cq, mut device) = pair(size);
        if wraps {
            let start = 0u32.wrapping_sub(4 * cq.layout().entries());
            device.start_at(start);
            (cq.next, cq.published) = (start, start);
        }
        let mut expected = VecDeque::new();
        let mut number = 0;
        for (puts, polls) in steps {
            for _ in 0..puts {
                if device.put(cqe(3, number)) {
                    expected.push_back(number);
                    number += 1;
                } else {
                    prop_assert_eq!(expected.len(), cq.layout().entries() as usize);
                }
            }
            let mut failed = false;
            cq.poll_batch(polls, |cqe| failed |= Some(cqe.wqe_id.get()) != expected.pop_front());
            prop_assert!(!failed);
        }
        while let Some(cqe) = cq.poll() {
            prop_assert_eq!(Some(cqe.wqe_id.get()), expected.pop_front());
        }
        prop_assert!(expected.is_empty());
    }

    /// Completions arrive in order, whole and once, and each arm is seen once, whenever the device
    /// switches rings.
    #[test]
    fn resizes_lose_nothing(
        steps in prop::collection::vec((0u32..6, 0usize..6, 0u8..8, 1u32..10), 0..100),
    ) {
        let (mut cq, mut device) = pair(4);
        let mut expected = VecDeque::new();
        let mut held: VecDeque<Cqe> = VecDeque::new();
        let mut former = Vec::new();
        let (mut begun, mut number, mut armed) = (None, 0, false);
        for (puts, polls, action, size) in steps {
            match action {
                0 if !cq.is_resizing() && begun.is_none() => begun = Some((begin(&mut cq, size), false)),
                1 => if let Some((next, done @ false)) = &mut begun {
                    // A fresh ring takes the place of the next one. The driver still uses the
                    // former one.
                    let next = core::mem::replace(next, DeviceCq::new(CqLayout::for_entries(2).unwrap()));
                    device = device.followed_by(next, &mut former);
                    *done = true;
                },
                2 => match begun.take() {
                    Some((_, true)) => cq.end_resize(|(cqe, _)| held.push_back(cqe)),
                    Some((next, false)) => {
                        former.push(next);
                        cq.cancel_resize();
                    }
                    None => {}
                },
                3 => {
                    cq.arm(Arm::Next);
                    armed = true;
                }
                4 => prop_assert_eq!(device.wants_event(false), core::mem::take(&mut armed)),
                _ => {}
            }
            for _ in 0..puts {
                if device.put(cqe(3, number)) {
                    expected.push_back(number);
                    number += 1;
                }
            }
            for _ in 0..polls {
                let Some(found) = held.pop_front().or_else(|| cq.poll()) else {
                    prop_assert!(expected.is_empty());
                    break;
                };
                prop_assert_eq!(Some(found.wqe_id.get()), expected.pop_front());
            }
        }
        while let Some(found) = held.pop_front().or_else(|| cq.poll()) {
            prop_assert_eq!(Some(found.wqe_id.get()), expected.pop_front());
        }
        prop_assert!(expected.is_empty());
    }
}
