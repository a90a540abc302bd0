use core::cell::Cell;
use std::vec::Vec;
use std::{rc::Rc, vec};

use proptest::prelude::*;

use super::*;
use crate::model::DeviceChannel;
use crate::wqe::{Data, Remote, Sge, Tag, UdTarget};
use vrdma_abi::wqe::{WqeHeader, flags};
use vrdma_abi::zerocopy::little_endian::U32;
use vrdma_abi::zerocopy::{FromBytes, IntoBytes};

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
    // SAFETY: the device keeps the memory as long as the test, and this Channel is the driver's
    // only side.
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

    /// Requests arrive whole, in order and once, wherever the ring ends, and also where the 16-bit
    /// index wraps.
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
            // After a request's last SGE, a slot has old bytes, which mean nothing.
            let meaningful = expected.0.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
            prop_assert_eq!(&arrived.0[..meaningful], &expected.0[..meaningful]);
        }
    }
}

/// Kinds of requests that lists may contain, and others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Recv { qpn: u32, sges: usize },
    SrqRecv { srqn: u32 },
    Send { qpn: u32, signaled: bool, sges: usize },
    Inline,
    XrcSend,
    Datagram,
    Write,
}

impl Kind {
    fn request<'a>(self, wqe_id: u32, sges: &'a [Sge]) -> Request<'a> {
        let tag = |qpn| Tag { qpn, wqe_id };
        match self {
            Kind::Recv { qpn, sges: count } => Request::recv(tag(qpn), &sges[..count]),
            Kind::SrqRecv { srqn } => Request::srq_recv(srqn, wqe_id, &sges[..1]),
            Kind::Send { qpn, signaled, sges: count } => {
                Request::send(tag(qpn), Data::Sges(&sges[..count])).signaled(signaled)
            }
            Kind::Inline => Request::send(tag(1), Data::Inline(b"x")),
            Kind::XrcSend => Request::send(tag(1), Data::Sges(&sges[..1])).xrc(0),
            Kind::Datagram => {
                Request::ud_send(tag(1), UdTarget { ah: 0, qpn: 0, qkey: 0 }, Data::Sges(&sges[..1]))
            }
            Kind::Write => Request::write(tag(1), Remote { addr: 0, rkey: 0 }, Data::Sges(&sges[..1])),
        }
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => (1..3u32, 0..3usize).prop_map(|(qpn, sges)| Kind::Recv { qpn, sges: 1.max(sges) }),
        6 => (1..3u32).prop_map(|srqn| Kind::SrqRecv { srqn }),
        6 => (1..3u32, any::<bool>(), 0..3usize)
            .prop_map(|(qpn, signaled, sges)| Kind::Send { qpn, signaled, sges }),
        1 => Just(Kind::Inline),
        1 => Just(Kind::XrcSend),
        1 => Just(Kind::Datagram),
        1 => Just(Kind::Write),
    ]
}

/// Returns the requests that a device finds, each with the bytes that it has outside a list.
fn found(device: &mut DeviceChannel) -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    while let Some(first) = device.take() {
        let mut units = vec![first];
        while units.len() < usize::from(first.0[0].to_le_bytes()[1]) {
            units.push(device.take().unwrap());
        }
        let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.0).flat_map(u64::to_ne_bytes).collect();
        let header = WqeHeader::read_from_prefix(&bytes).unwrap().0;
        let count = usize::from(header.sge_count);
        if header.flags.get() & flags::LIST == 0 {
            let used = 32 + if count > 0 { 16 * count } else { 0 };
            requests.push(bytes[..used].to_vec());
            continue;
        }
        assert!((2..=5).contains(&count) && units.len() == (32 + 16 * count).div_ceil(64), "{header:?}");
        let ids: Vec<U32> = (0..5)
            .map(|i| {
                if i == 0 {
                    header.wqe_id
                } else {
                    U32::from_bytes(bytes[12 + 4 * i..16 + 4 * i].try_into().unwrap())
                }
            })
            .collect();
        assert!(ids[count..].iter().all(|id| id.get() == 0));
        for (place, &wqe_id) in ids[..count].iter().enumerate() {
            let bits = (header.flags.get() & !flags::LIST).into();
            let header = WqeHeader { units: 1, flags: bits, wqe_id, sge_count: 1, ..header };
            requests.push([header.as_bytes(), &[0; 16], &bytes[32 + 16 * place..][..16]].concat());
        }
    }
    requests
}

proptest! {
    /// The device finds each request as it was posted, whatever shares units. It sees nothing that
    /// was not released.
    #[test]
    fn requests_of_lists_are_what_was_posted(
        lists: bool,
        steps in proptest::collection::vec((kind(), 0..4u8), 1..200),
    ) {
        let mut device = DeviceChannel::new(16, false);
        device.lists = lists;
        // SAFETY: the device keeps the memory as long as the test, and this Channel is the driver's
        // only side.
        let mut channel = unsafe { Channel::new(device.parts(Kicks::default())) }.unwrap();
        let (mut posted, mut taken) = (Vec::new(), Vec::new());
        let mut released = 0;
        for (id, (kind, then)) in (1u32..).zip(steps) {
            let sges = [1, 2].map(|n| Sge { addr: u64::from(id) << 8 | n, length: 16 * id, lkey: 7 });
            let request = kind.request(id, &sges);
            if channel.push(&request) == Err(PostError::Full) {
                channel.ring();
                released = posted.len();
                taken.extend(found(&mut device));
                channel.push(&request).unwrap();
            }
            let mut alone = [Unit::default(); 1];
            prop_assert_eq!(request.encode(&mut alone), Ok(1));
            let bytes: Vec<u8> = alone[0].0.into_iter().flat_map(u64::to_ne_bytes).collect();
            let elements = usize::from(bytes[12]);
            posted.push(bytes[..32 + 16 * elements].to_vec());
            if then == 0 {
                channel.ring();
                released = posted.len();
            }
            if then == 1 {
                taken.extend(found(&mut device));
                prop_assert_eq!(taken.len(), released);
            }
        }
        channel.ring();
        taken.extend(found(&mut device));
        prop_assert_eq!(taken, posted);
    }
}

#[test]
fn requests_of_a_list_take_two_fifths_of_a_unit() {
    let mut device = DeviceChannel::new(64, false);
    device.lists = true;
    // SAFETY: the device keeps the memory as long as the test, and this Channel is the driver's
    // only side.
    let mut channel = unsafe { Channel::new(device.parts(Kicks::default())) }.unwrap();
    let sges = [Sge { addr: 1, length: 2, lkey: 3 }];
    (0..100).for_each(|id| channel.push(&Request::srq_recv(5, id, &sges)).unwrap());
    channel.ring();
    assert_eq!(channel.pending(), 40);
}
