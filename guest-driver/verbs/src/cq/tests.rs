use std::collections::VecDeque;
use std::vec::Vec;

use proptest::prelude::*;
use vrdma_abi::cqe::WcStatus;

use super::*;
use crate::model::DeviceCq;

fn pair(cqes: u32) -> (Cq, DeviceCq) {
    let layout = CqLayout::for_entries(cqes).unwrap();
    let device = DeviceCq::new(layout);
    // SAFETY: the device keeps the memory as long as the test, and the driver's side is this Cq alone.
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
    cq.rename(9, u32::MAX, |cqe| renamed.push((cqe.qpn.get(), cqe.wqe_id.get())));
    assert_eq!(renamed, [(9, 2), (9, 4)]);
    let mut qpns = Vec::new();
    cq.poll_batch(9, |cqe| qpns.push(cqe.qpn.get()));
    assert_eq!(qpns, [5, u32::MAX, 5, u32::MAX]);
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

    /// Completions arrive in order, whole and once, over many laps and around the end of the 32-bit index.
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
}
