use core::cell::Cell;
use std::vec::Vec;
use std::{rc::Rc, vec};

use proptest::prelude::*;

use super::*;
use crate::model::DeviceChannel;
use crate::wqe::{Sge, Tag};

/// A doorbell that counts.
#[derive(Clone, Default)]
struct Kicks(Rc<Cell<usize>>);

impl Doorbell for Kicks {
    fn kick(&self) {
        self.0.set(self.0.get() + 1);
    }
}

fn pair(entries: u16, event_idx: bool) -> (Channel<Kicks>, DeviceChannel) {
    let device = DeviceChannel::new(entries, event_idx);
    // SAFETY: the device keeps the memory as long as the test, and the driver's side is this Channel alone.
    let channel = unsafe { Channel::new(device.parts(Kicks::default())) }.unwrap();
    (channel, device)
}

fn recv(wqe_id: u32) -> Request<'static> {
    Request::recv(Tag { qpn: 1, wqe_id }, &[])
}

fn wqe_id(unit: Unit) -> u32 {
    unit.0[1] as u32
}

#[test]
fn the_device_sees_what_was_released_and_no_more() {
    let (mut channel, mut device) = pair(8, false);
    device.disarm();
    channel.push(&recv(1)).unwrap();
    channel.push(&recv(2)).unwrap();
    assert_eq!(device.take(), None);
    assert!(!channel.ring());
    assert_eq!(channel.pending(), 2);
    assert_eq!(device.take().map(wqe_id), Some(1));
    assert_eq!(channel.pending(), 1);
    assert_eq!(device.take().map(wqe_id), Some(2));
    assert_eq!(device.take(), None);
    assert!(!channel.ring(), "nothing new");
}

#[test]
fn full_is_an_answer_and_passes() {
    let (mut channel, mut device) = pair(4, false);
    let three_units = [Sge::default(); 7];
    let large = Request::recv(Tag { qpn: 1, wqe_id: 9 }, &three_units);
    channel.post(&large).unwrap();
    assert_eq!(channel.post(&large), Err(PostError::Full));
    channel.post(&recv(1)).unwrap();
    assert_eq!(channel.post(&recv(2)), Err(PostError::Full));
    device.take();
    channel.post(&recv(2)).unwrap();
    device.take();
    device.take();
    assert_eq!(channel.post(&large), Err(PostError::Full));
    assert_eq!(device.take().map(wqe_id), Some(1));
    channel.post(&large).unwrap();
}

#[test]
fn what_can_never_be_posted_is_said_so() {
    let (mut channel, _device) = pair(2, false);
    let too_many = |count: usize| vec![Sge::default(); count];
    let tag = Tag { qpn: 1, wqe_id: 0 };
    assert_eq!(
        channel.post(&Request::recv(tag, &too_many(7))),
        Err(PostError::Request(WqeError::TooManyUnits))
    );
    assert_eq!(
        channel.post(&Request::recv(tag, &too_many(33))),
        Err(PostError::Request(WqeError::TooManyElements))
    );
    channel.post(&Request::recv(tag, &too_many(6))).unwrap();
}

#[test]
fn kicks_follow_the_flag_without_event_idx() {
    let (mut channel, device) = pair(4, false);
    assert!(channel.post(&recv(0)).is_ok());
    device.disarm();
    assert!(channel.post(&recv(1)).is_ok());
    device.arm();
    assert!(channel.post(&recv(2)).is_ok());
    assert_eq!(channel.doorbell().0.get(), 2);
    channel.kick();
    assert_eq!(channel.doorbell().0.get(), 3);
}

#[test]
fn kicks_follow_the_index_with_event_idx() {
    let (mut channel, mut device) = pair(8, true);
    // avail_event is 0: kick at entry 0, then never again until it moves.
    for (id, kicks) in [(0, 1), (1, 1), (2, 1)] {
        channel.post(&recv(id)).unwrap();
        assert_eq!(channel.doorbell().0.get(), kicks);
    }
    while device.take().is_some() {}
    device.arm();
    channel.push(&recv(3)).unwrap();
    channel.push(&recv(4)).unwrap();
    assert!(channel.ring(), "one kick for the batch that holds the entry");
    assert!(channel.post(&recv(5)).is_ok());
    assert_eq!(channel.doorbell().0.get(), 2);
}

#[test]
fn a_used_index_that_cannot_be_makes_no_room() {
    let (mut channel, device) = pair(4, false);
    for id in 0..4 {
        channel.post(&recv(id)).unwrap();
    }
    for wrong in [5, 100, 0x8000, 0xffff] {
        device.set_used_idx(wrong);
        assert_eq!(channel.post(&recv(9)), Err(PostError::Full), "used.idx {wrong:#x}");
    }
    device.set_used_idx(4);
    channel.post(&recv(9)).unwrap();
}

#[test]
fn strange_parts_are_refused() {
    for entries in [0, 3, 6] {
        let mut parts = DeviceChannel::new(8, false).parts(|| ());
        parts.entries = entries;
        // SAFETY: refused before anything is touched.
        assert!(unsafe { Channel::new(parts) }.is_none());
    }
}

#[test]
fn a_mapped_doorbell_gets_the_queue_number() {
    let mut register = 0u16;
    // SAFETY: a variable of this test.
    let doorbell = unsafe { MappedDoorbell::new(NonNull::from(&mut register), 0x1234) };
    doorbell.kick();
    assert_eq!(u16::from_le(register), 0x1234);
}

#[test]
fn the_largest_ring_works() {
    let (mut channel, mut device) = pair(32768, true);
    let count = if cfg!(miri) { 40 } else { 70_000 };
    for id in 0..count {
        channel.post(&recv(id)).unwrap();
        assert_eq!(device.take().map(wqe_id), Some(id));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    /// Requests arrive whole, in order and once, wherever the ring ends and around the end of the 16-bit index.
    #[test]
    fn requests_arrive_in_order(
        log_entries in 3u32..6,
        event_idx: bool,
        start in prop_oneof![Just(0u16), 65400u16..=65535],
        steps in prop::collection::vec((0usize..=32, any::<bool>(), 0usize..12), 1..150),
    ) {
        let (mut channel, mut device) = pair(1 << log_entries, event_idx);
        device.start_at(start);
        (channel.next, channel.published, channel.used) = (start, start, start);
        let mut expected: Vec<Unit> = Vec::new();
        let mut arrived: Vec<Unit> = Vec::new();
        for (number, (elements, ring, takes)) in steps.into_iter().enumerate() {
            let list: Vec<Sge> = (0..elements as u32)
                .map(|i| Sge { addr: number as u64, length: i, lkey: !i })
                .collect();
            let request = Request::recv(Tag { qpn: 1, wqe_id: number as u32 }, &list);
            let room = usize::from(channel.entries()) + arrived.len() - expected.len();
            let units = request.units().unwrap();
            let posted = channel.push(&request);
            prop_assert_eq!(posted.is_ok(), units <= room);
            if posted.is_ok() {
                let mut copy = [Unit::default(); 9];
                request.encode(&mut copy).unwrap();
                expected.extend(&copy[..units]);
            }
            if ring {
                channel.ring();
            }
            arrived.extend(core::iter::from_fn(|| device.take()).take(takes));
        }
        channel.ring();
        arrived.extend(core::iter::from_fn(|| device.take()));
        prop_assert_eq!(arrived.len(), expected.len());
        for (arrived, expected) in arrived.iter().zip(&expected) {
            // Behind a request's last element a slot holds old bytes, which mean nothing.
            let meaningful = expected.0.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
            prop_assert_eq!(&arrived.0[..meaningful], &expected.0[..meaningful]);
        }
    }
}
