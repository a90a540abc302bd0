//! Received data of a connection of vrdma's own TCP that was not read yet.

use super::budget::LEAST_INPUT;
use super::taker::Direct;
use crate::streams::buffers::Buffers;
use std::collections::BTreeMap;
use vrdma_tcp::Arrival;
use vrdma_transport::{EarlyFpdu, PlacedFpdu};
use vrdma_wire::iwarp::decode::fpdu_len;
use vrdma_wire::iwarp::{Framing, StreamOffset};

/// The window that a peer is told while all data is read soon.
pub(super) const WINDOW: u32 = 1 << 20;
/// Most bytes kept, in order and out of order.
///
/// That is the promised window, and what came before the window shrank.
const LIMIT: usize = 2 * WINDOW as usize;
/// Most separate segments queued out of order. Each has a cost beyond its bytes.
const HELD: usize = 1024;

/// The framing of all FPDUs that can be placed. Whether CRCs are used does not change lengths.
const PLAIN: Framing = Framing { markers: false, crc: true };

/// Data that was received out of order.
#[derive(Debug)]
enum Held {
    Bytes(Vec<u8>),
    /// An FPDU whose payload is in guest memory already.
    Placed(PlacedFpdu),
}

/// Bytes that an entry of the list takes beyond its data. A B-tree may be half empty.
const ENTRY: u64 = 2 * (size_of::<u64>() + size_of::<Held>()) as u64;

/// How much may be kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Most bytes of the connection in all.
    pub limit: usize,
    /// Further bytes of memory for data in order.
    pub in_order: u64,
    /// Further bytes of memory for data out of order.
    pub beyond_hole: u64,
}

/// Received bytes in order, and data out of order behind gaps.
#[derive(Debug)]
pub(super) struct Received {
    ready: Vec<u8>,
    /// Offset in the stream of the next byte in order.
    next: u64,
    /// Data behind gaps by offset, without overlaps.
    ///
    /// An entry at `next` is an already placed FPDU that waits for its user.
    held: BTreeMap<u64, Held>,
    held_bytes: usize,
    /// Bytes of memory that the data in `held` takes.
    held_memory: u64,
    /// Bytes of memory that the user needs: data that waits for the engine, and output that waits
    /// for room.
    pending: u64,
    /// Whether the window is reduced by unread data.
    is_narrow: bool,
    /// The window that the peer was told.
    window: u32,
}

impl Default for Received {
    fn default() -> Received {
        Received {
            ready: Vec::new(),
            next: 0,
            held: BTreeMap::new(),
            held_bytes: 0,
            held_memory: 0,
            pending: 0,
            is_narrow: false,
            window: WINDOW,
        }
    }
}

/// What a read returns.
#[derive(Debug)]
pub enum Came {
    /// A number of bytes; 0 at the end of the stream.
    Bytes(usize),
    /// An already placed FPDU.
    Placed(PlacedFpdu),
}

impl Received {
    /// Takes received data, as far as there is room. Returns how many bytes it took.
    ///
    /// No byte is offered twice after it was taken.
    pub fn take(
        &mut self,
        arrival: &Arrival,
        data: &[u8],
        room: Room,
        buffers: &mut Buffers,
        mut direct: Direct<'_>,
    ) -> usize {
        let direct = &mut direct;
        let bytes = &data[arrival.at.clone()];
        if arrival.offset != self.next {
            return match arrival.is_whole {
                true => self.place_or_hold(arrival.offset, bytes, room, direct),
                false => self.hold(arrival.offset, bytes, room),
            };
        }
        let taken = if self.is_ready() { 0 } else { direct.take(bytes) };
        self.next += taken as u64;
        let kept = self.keep(&bytes[taken..], room, buffers);
        self.join(buffers, direct);
        taken + kept
    }

    /// Returns the part of `bytes` that may be kept, with `memory` bytes of memory left.
    fn room<'a>(&self, bytes: &'a [u8], limit: usize, memory: u64) -> &'a [u8] {
        let room = limit.min(LIMIT).saturating_sub(self.ready.len() + self.held_bytes);
        &bytes[..bytes.len().min(room).min(memory as usize)]
    }

    /// Handles whole FPDUs out of order: places or queues each. Returns how many bytes it took.
    ///
    /// It stops at an FPDU whose receive is missing.
    fn place_or_hold(&mut self, offset: u64, bytes: &[u8], room: Room, direct: &mut Direct<'_>) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            let (at, rest) = (offset + done as u64, &bytes[done..]);
            // If this is not an FPDU, or has markers, it is not placed, whatever length this
            // computes.
            let length = fpdu_len(PLAIN, StreamOffset::START, rest)
                .map_or(rest.len(), |length| length.min(rest.len()));
            let fpdu = &rest[..length];
            let may_list = self.held.len() < HELD && room.beyond_hole >= ENTRY;
            let early = if may_list { direct.place(fpdu) } else { EarlyFpdu::Keep };
            let taken = match early {
                EarlyFpdu::Placed(placed) => {
                    assert_eq!(placed.len(), length, "all of it was one FPDU");
                    self.held.insert(at, Held::Placed(placed));
                    length
                }
                EarlyFpdu::Keep => self.hold(at, fpdu, room),
                EarlyFpdu::NoReceive => 0,
            };
            done += taken;
            if taken < length {
                break;
            }
        }
        done
    }

    /// Queues data behind a gap. It is joined to data right before it. Returns how many bytes.
    fn hold(&mut self, offset: u64, bytes: &[u8], room: Room) -> usize {
        let bytes = self.room(bytes, room.limit, room.beyond_hole);
        let count = self.held.len();
        match self.held.range_mut(..offset).next_back() {
            _ if bytes.is_empty() => return 0,
            Some((start, Held::Bytes(before))) if start + before.len() as u64 == offset => {
                let capacity = before.capacity();
                before.extend_from_slice(bytes);
                self.held_memory += (before.capacity() - capacity) as u64;
            }
            _ if count >= HELD || room.beyond_hole < ENTRY => return 0,
            _ => {
                self.held.insert(offset, Held::Bytes(bytes.to_vec()));
                self.held_memory += bytes.len() as u64;
            }
        }
        self.held_bytes += bytes.len();
        bytes.len()
    }

    /// Keeps the next data in order until it is read. Returns how many bytes.
    fn keep(&mut self, bytes: &[u8], room: Room, buffers: &mut Buffers) -> usize {
        let least = LEAST_INPUT.saturating_sub(self.ready.len() as u64);
        let bytes = self.room(bytes, room.limit, room.in_order.max(least));
        if !bytes.is_empty() {
            self.append(bytes, buffers);
        }
        bytes.len()
    }

    fn append(&mut self, bytes: &[u8], buffers: &mut Buffers) {
        if self.ready.capacity() == 0 {
            self.ready = buffers.take();
            self.ready.clear();
        }
        self.ready.extend_from_slice(bytes);
        self.next += bytes.len() as u64;
    }

    /// Continues with queued data whose gap was filled.
    fn join(&mut self, buffers: &mut Buffers, direct: &mut Direct<'_>) {
        while let Some(entry) = self.held.first_entry().filter(|entry| *entry.key() == self.next) {
            match entry.get() {
                Held::Placed(placed) => {
                    if !self.ready.is_empty() || !direct.take_placed(placed) {
                        return;
                    }
                    self.next += placed.len() as u64;
                    entry.remove();
                }
                Held::Bytes(_) => {
                    let Held::Bytes(bytes) = entry.remove() else { unreachable!("it was looked at") };
                    self.held_bytes -= bytes.len();
                    self.held_memory -= bytes.capacity() as u64;
                    let taken = if self.ready.is_empty() { direct.take(&bytes) } else { 0 };
                    self.next += taken as u64;
                    self.append(&bytes[taken..], buffers);
                }
            }
        }
    }

    /// Whether there is something to read.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty() || self.is_stopped()
    }

    /// Whether an already placed FPDU is next and waits for its user.
    fn is_stopped(&self) -> bool {
        self.held.first_key_value().is_some_and(|(place, _)| *place == self.next)
    }

    /// Reads data in order. Bytes come in a buffer that replaces `buffer`, which is reused.
    ///
    /// No buffer is kept here, because most of many connections are idle.
    ///
    /// # Panics
    /// There is nothing to read.
    pub fn read(&mut self, buffer: &mut Vec<u8>, buffers: &mut Buffers) -> Came {
        if !self.ready.is_empty() {
            buffers.put(std::mem::replace(buffer, std::mem::take(&mut self.ready)));
            return Came::Bytes(buffer.len());
        }
        let first = self.held.pop_first().filter(|(place, _)| *place == self.next);
        let Some((_, Held::Placed(placed))) = first else { unreachable!("it is asked only if it is ready") };
        self.next += placed.len() as u64;
        self.join(buffers, &mut Direct(None));
        Came::Placed(placed)
    }

    /// Returns the bytes that are queued out of order.
    pub fn held(&self) -> usize {
        self.held_bytes
    }

    /// Returns the bytes of memory that everything takes, including what the user needs.
    pub fn memory(&self) -> u64 {
        self.ready.capacity() as u64 + self.held_memory + self.held.len() as u64 * ENTRY + self.pending
    }

    /// Sets the bytes of memory that the user needs for this connection.
    ///
    /// That is data that was read and waits for the engine, and output that waits for room.
    pub fn set_pending(&mut self, bytes: u64) {
        self.pending = bytes;
    }

    /// Returns the received bytes that the user should have read.
    fn unread(&self) -> usize {
        self.ready.len() + if self.is_stopped() { self.held_bytes } else { 0 }
    }

    /// Returns the window to tell the peer, at most `most`; `None` if it has not changed.
    ///
    /// Data that is not read soon reduces the window. A reduced window is always returned.
    pub fn window(&mut self, most: u32) -> Option<u32> {
        let unread = self.unread();
        self.is_narrow = unread > most as usize / 2 || self.is_narrow && unread > 0;
        let window = most.saturating_sub(if self.is_narrow { unread as u32 } else { 0 });
        let before = std::mem::replace(&mut self.window, window);
        (self.is_narrow || before != window).then_some(window)
    }

    /// Drops everything, because nobody reads any more.
    pub fn clear(&mut self) {
        (self.ready, self.held) = (Vec::new(), BTreeMap::new());
        (self.held_bytes, self.held_memory, self.pending) = (0, 0, 0);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::streams::handle::Handle;
    use crate::streams::own::taker::Taker;
    use std::sync::atomic::AtomicU64;
    use vrdma_transport::{
        Access, AttrMask, Completion, CqId, DeviceId, Engine, Event, Fault, Fpdu, Instant, Limits, OwnerId,
        Pieces, QpAttr, QpInit, QpState, QpType, Receives, Region, Role, Sink, StreamAttr, write_fpdu,
    };
    use vrdma_wire::iwarp::Segment;
    use vrdma_wire::iwarp::num::Stag;
    use vrdma_wire::iwarp::rdmap::Tagged;

    const PLENTY: Room = Room { limit: LIMIT, in_order: u64::MAX, beyond_hole: u64::MAX };

    fn arrive(received: &mut Received, offset: u64, bytes: &[u8]) -> usize {
        arrive_for(received, offset, bytes, false, Direct(None))
    }

    fn arrive_for(
        received: &mut Received,
        offset: u64,
        bytes: &[u8],
        is_whole: bool,
        direct: Direct<'_>,
    ) -> usize {
        // The bytes are in the middle of a segment.
        let data = [b"??", bytes, b"?"].concat();
        let arrival = Arrival { offset, at: 2..2 + bytes.len(), complete: received.next, is_whole };
        received.take(&arrival, &data, PLENTY, &mut Buffers::default(), direct)
    }

    fn read(received: &mut Received) -> Vec<u8> {
        let mut buffer = Vec::new();
        match received.read(&mut buffer, &mut Buffers::default()) {
            Came::Bytes(length) => assert_eq!(length, buffer.len()),
            Came::Placed(_) => panic!("bytes are next"),
        }
        buffer
    }

    #[test]
    fn bytes_are_read_in_order_however_they_come() {
        let mut received = Received::default();
        assert_eq!(arrive(&mut received, 6, b"gh"), 2);
        assert_eq!(arrive(&mut received, 3, b"de"), 2);
        assert!(!received.is_ready() && received.held() == 4);
        assert_eq!(arrive(&mut received, 0, b"abc"), 3);
        assert_eq!(received.held(), 2);
        assert_eq!(read(&mut received), b"abcde");
        assert_eq!(arrive(&mut received, 5, b"f"), 1);
        assert_eq!((read(&mut received), received.held()), (b"fgh".to_vec(), 0));
    }

    #[test]
    fn what_touches_is_held_together_and_what_is_apart_is_bounded() {
        let mut received = Received::default();
        for offset in 1..=3 * HELD as u64 {
            assert_eq!(arrive(&mut received, offset, b"t"), 1);
        }
        assert_eq!((received.held.len(), received.held()), (1, 3 * HELD));
        let apart = |n: u64| 10_000 + 2 * n;
        let taken = (0..2 * HELD as u64).filter(|n| arrive(&mut received, apart(*n), b"a") == 1).count();
        assert_eq!((taken, received.held.len()), (HELD - 1, HELD));
        // Data before them is not joined to them. Data in order is taken.
        assert_eq!(arrive(&mut received, apart(0) - 1, b"x"), 0);
        assert_eq!(received.held(), 3 * HELD + (HELD - 1));
        assert_eq!(arrive(&mut received, 0, b"f"), 1);
        assert_eq!((read(&mut received).len(), received.held()), (3 * HELD + 1, HELD - 1));
    }

    #[test]
    fn no_more_is_kept_than_may_be_and_the_window_says_so() {
        let mut received = Received::default();
        let half = vec![7; WINDOW as usize / 2];
        assert_eq!((arrive(&mut received, 0, &half), received.window(WINDOW)), (half.len(), None));
        assert_eq!(arrive(&mut received, half.len() as u64, &half), half.len());
        assert_eq!(received.window(WINDOW), Some(0));
        assert_eq!(arrive(&mut received, 4 << 20, &half), half.len());
        assert_eq!(arrive(&mut received, WINDOW.into(), &[half.clone(), half.clone()].concat()), half.len());
        assert_eq!(arrive(&mut received, WINDOW as u64 + half.len() as u64, b"x"), 0);
        read(&mut received);
        assert_eq!((received.window(WINDOW), received.window(WINDOW)), (Some(WINDOW), None));
    }

    #[test]
    fn where_memory_is_short_what_is_in_order_has_a_little_and_what_is_not_has_none() {
        let mut received = Received::default();
        let mut arrive = |offset, length, room| {
            let arrival = Arrival { offset, at: 0..length, complete: received.next, is_whole: false };
            let data = vec![7; length];
            let taken = received.take(&arrival, &data, room, &mut Buffers::default(), Direct(None));
            (taken, received.memory())
        };
        let least = LEAST_INPUT as usize;
        assert_eq!(arrive(50_000, 1000, PLENTY), (1000, 1000 + ENTRY));
        let none = Room { in_order: 0, beyond_hole: 0, ..PLENTY };
        // It has no room, even if it joins queued data.
        assert_eq!(arrive(51_000, 1000, none), (0, 1000 + ENTRY));
        assert_eq!(arrive(60_000, 1000, Room { beyond_hole: ENTRY - 1, ..PLENTY }), (0, 1000 + ENTRY));
        let (taken, memory) = arrive(0, 20_000, none);
        assert!(taken == least && memory >= LEAST_INPUT + 1000, "{memory}");
        assert_eq!(arrive(LEAST_INPUT, 1000, none).0, 0);
        assert_eq!(arrive(LEAST_INPUT, 1000, Room { in_order: 10, ..none }).0, 10);
        assert_eq!(read(&mut received).len(), least + 10);
        received.set_pending(500);
        assert_eq!(received.memory(), 1000 + ENTRY + 500);
        received.clear();
        assert_eq!(received.memory(), 0);
    }

    #[test]
    fn a_window_is_no_larger_than_the_share_of_the_guests_memory() {
        let mut received = Received::default();
        assert_eq!((received.window(1 << 16), received.window(1 << 16)), (Some(1 << 16), None));
        arrive(&mut received, 0, &[7; 40_000]);
        assert_eq!(received.window(1 << 16), Some((1 << 16) - 40_000));
        assert_eq!(received.window(1 << 14), Some(0));
        read(&mut received);
        assert_eq!((received.window(1 << 14), received.window(WINDOW)), (Some(1 << 14), Some(WINDOW)));
    }

    /// A user that takes a limited number of bytes, and places one FPDU.
    struct User {
        /// How many more bytes it takes.
        room: usize,
        placed: PlacedFpdu,
        /// The bytes of the FPDU that it places.
        fpdu: Vec<u8>,
        /// An FPDU whose receive is missing.
        too_early: Vec<u8>,
        /// What it took: bytes, and a mark for each placed FPDU.
        taken: Vec<u8>,
    }

    const USER: Handle = Handle { number: 1, generation: 0 };
    const PLACED: u8 = b'!';

    impl User {
        fn new() -> User {
            let (placed, fpdu) = placed();
            let mut too_early = fpdu.clone();
            too_early[5] ^= 1;
            User { room: usize::MAX, placed, fpdu, too_early, taken: Vec::new() }
        }
    }

    impl Taker for User {
        fn fetch(&mut self, _: Handle) {}

        fn take(&mut self, _: Handle, bytes: &[u8]) -> usize {
            let taken = bytes.len().min(self.room);
            self.room -= taken;
            self.taken.extend_from_slice(&bytes[..taken]);
            taken
        }

        fn place(&mut self, user: Handle, fpdu: &[u8]) -> EarlyFpdu {
            assert_eq!(user, USER);
            match fpdu {
                _ if fpdu == self.fpdu => EarlyFpdu::Placed(self.placed.clone()),
                _ if fpdu == self.too_early => EarlyFpdu::NoReceive,
                _ => EarlyFpdu::Keep,
            }
        }

        fn take_placed(&mut self, _: Handle, placed: &PlacedFpdu) -> bool {
            assert_eq!(*placed, self.placed);
            if self.room > 0 {
                self.taken.push(PLACED);
            }
            self.room > 0
        }
    }

    /// Memory that drops what is written.
    #[derive(Clone)]
    struct Nowhere;

    impl Region for Nowhere {
        fn copy_to(&self, _: u64, _: &Self, _: u64, _: u64) -> Result<(), Fault> {
            Ok(())
        }

        fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Fault> {
            Ok(())
        }

        fn write(&self, _: u64, _: &[u8]) -> Result<(), Fault> {
            Ok(())
        }

        fn with_word<T>(&self, _: u64, _: impl FnOnce(&AtomicU64) -> T) -> Result<T, Fault> {
            Err(Fault)
        }
    }

    struct NoSink;

    impl Sink for NoSink {
        fn complete(&mut self, _: DeviceId, _: CqId, _: &Completion) {}

        fn event(&mut self, _: DeviceId, _: Event) {}
    }

    /// Returns an FPDU and the result of an engine that placed it.
    pub(in crate::streams::own) fn placed() -> (PlacedFpdu, Vec<u8>) {
        let mut engine = Engine::new(1);
        let device = engine.add_device(Limits::default());
        let (owner, access) = (OwnerId::KERNEL, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        let pd = engine.alloc_pd(device, owner).unwrap();
        let key = engine.reg_mr(device, pd, access, 0, 100, Nowhere).unwrap();
        let init = QpInit {
            owner,
            pd: Some(pd),
            qp_type: QpType::Rc,
            send_cq: CqId(0),
            recv_cq: CqId(0),
            receives: Receives::Own,
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
        };
        let qpn = engine.create_qp(device, init).unwrap();
        let mask = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        let access = Access::REMOTE_WRITE;
        let attr = QpAttr { state: QpState::Init, access, port: 1, ..QpAttr::default() };
        engine.modify_qp(Instant(0), device, qpn, mask, &attr, &mut NoSink).unwrap();
        let framing = Framing { markers: false, crc: true };
        let (role, ready) = (Role::Responder, None);
        let (framing_in, framing_out) = (framing, framing);
        let attr = StreamAttr { role, framing_in, framing_out, ready, ord: 0, ird: 0, mss: 1000 };
        engine.connect_stream(device, qpn, &attr).unwrap();
        let to = Tagged { stag: Stag(key), offset: 0, last: true };
        let fpdu = Fpdu { framing, place: StreamOffset::START, segment: Some(Segment::Write(to)) };
        let payload = Pieces::<Nowhere>::bytes(b"payload");
        let mut bytes = vec![0; fpdu.len(payload.len())];
        write_fpdu(&fpdu, &payload, &mut bytes).unwrap();
        let EarlyFpdu::Placed(placed) = engine.place_fpdu(device, qpn, &bytes, &mut NoSink) else {
            panic!("it may be placed")
        };
        (placed, bytes)
    }

    #[test]
    fn a_user_takes_at_once_what_is_next_and_has_the_rest_kept() {
        let (mut received, mut user) = (Received::default(), User::new());
        let come = |received: &mut Received, user: &mut User, offset, bytes: &[u8]| {
            arrive_for(received, offset, bytes, false, Direct(Some((USER, user))))
        };
        assert_eq!(come(&mut received, &mut user, 2, b"cd"), 2);
        assert_eq!(come(&mut received, &mut user, 0, b"ab"), 2);
        assert!(user.taken == b"abcd" && !received.is_ready() && received.held() == 0);
        user.room = 1;
        assert_eq!(come(&mut received, &mut user, 4, b"ef"), 2);
        // Nothing overtakes kept data.
        user.room = 10;
        assert_eq!(come(&mut received, &mut user, 6, b"g"), 1);
        assert_eq!((&user.taken[..], read(&mut received)), (&b"abcde"[..], b"fg".to_vec()));
        assert_eq!(come(&mut received, &mut user, 7, b"h"), 1);
        assert_eq!(user.taken, b"abcdeh");
    }

    #[test]
    fn what_is_placed_is_not_kept_and_is_taken_in_its_turn() {
        let (mut received, mut user) = (Received::default(), User::new());
        let length = user.placed.len() as u64;
        let fpdu = user.fpdu.clone();
        let come = |received: &mut Received, user: &mut User, offset, bytes: &[u8], is_whole| {
            assert_eq!(
                arrive_for(received, offset, bytes, is_whole, Direct(Some((USER, user)))),
                bytes.len()
            );
        };
        come(&mut received, &mut user, 1, &fpdu, true);
        assert_eq!((received.held(), received.held.len()), (0, 1));
        // This segment is not marked as whole FPDUs, and the next is no FPDU.
        come(&mut received, &mut user, 1 + length, &fpdu, false);
        come(&mut received, &mut user, 1 + 2 * length, b"x", true);
        assert_eq!(received.held() as u64, length + 1);
        come(&mut received, &mut user, 0, b"a", true);
        assert_eq!(user.taken, [b"a!", &fpdu[..], b"x"].concat());
        assert!(!received.is_ready() && received.held() == 0);
    }

    #[test]
    fn of_several_fpdus_in_a_segment_each_is_placed_or_held() {
        let (mut received, mut user) = (Received::default(), User::new());
        let fpdu = user.fpdu.clone();
        let mut other = fpdu.clone();
        other[4] ^= 1;
        // Two FPDUs that can be placed, one that cannot, one behind it, and the beginning of one.
        let all = [&fpdu[..], &fpdu, &other, &fpdu, &fpdu[..5]].concat();
        let come = |received: &mut Received, user: &mut User, offset, bytes: &[u8]| {
            arrive_for(received, offset, bytes, true, Direct(Some((USER, user))))
        };
        assert_eq!(come(&mut received, &mut user, 1, &all), all.len());
        assert_eq!((received.held(), received.held.len()), (other.len() + 5, 5));
        assert_eq!(come(&mut received, &mut user, 0, b"a"), 1);
        assert_eq!(user.taken, [b"a!!", &other[..], b"!", &fpdu[..5]].concat());
        assert!(!received.is_ready() && received.held() == 0);
    }

    #[test]
    fn what_has_no_receive_beyond_a_hole_is_lost_with_what_is_behind_it_in_its_segment() {
        let (mut received, mut user) = (Received::default(), User::new());
        let (fpdu, too_early) = (user.fpdu.clone(), user.too_early.clone());
        let come = |received: &mut Received, user: &mut User, offset, bytes: &[u8]| {
            arrive_for(received, offset, bytes, true, Direct(Some((USER, user))))
        };
        let all = [&fpdu[..], &too_early, &fpdu].concat();
        assert_eq!(come(&mut received, &mut user, 1, &all), fpdu.len());
        assert_eq!((received.held(), received.held.len()), (0, 1));
        // In order, it is taken like any other.
        assert_eq!(come(&mut received, &mut user, 0, b"a"), 1);
        assert_eq!(come(&mut received, &mut user, 1 + fpdu.len() as u64, &too_early), too_early.len());
        assert_eq!(user.taken, [b"a!", &too_early[..]].concat());
        assert!(!received.is_ready() && received.held() == 0);
    }

    #[test]
    fn what_is_placed_and_not_taken_is_read_between_what_is_before_and_behind() {
        let (mut received, mut user) = (Received::default(), User::new());
        let length = user.placed.len() as u64;
        let fpdu = user.fpdu.clone();
        let come = |received: &mut Received, user: &mut User, offset, bytes: &[u8]| {
            assert_eq!(arrive_for(received, offset, bytes, true, Direct(Some((USER, user)))), bytes.len());
        };
        come(&mut received, &mut user, 1, &fpdu);
        user.room = 0;
        come(&mut received, &mut user, 0, b"a");
        // For TCP these bytes are next, but not for the user. So many of them reduce the window.
        let much = vec![1; WINDOW as usize];
        come(&mut received, &mut user, 1 + length, &much);
        assert_eq!(received.window(WINDOW), Some(0));
        assert_eq!(read(&mut received), b"a");
        assert!(received.is_ready() && received.window(WINDOW) == Some(0));
        let Came::Placed(placed) = received.read(&mut Vec::new(), &mut Buffers::default()) else {
            panic!("what was placed is next")
        };
        assert_eq!(placed, user.placed);
        assert!(read(&mut received) == much && !received.is_ready());
        assert_eq!(received.window(WINDOW), Some(WINDOW));
    }
}
