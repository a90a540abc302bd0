//! Loopback connections, between two guests of this worker. They have no TCP and no segments.
//!
//! One end reads the buffers that the other end sends, without a copy. An FPDU whose payload the
//! engine has placed already is queued without its payload. Each end has the interface of a socket
//! of vrdma's own TCP.

use super::node::ReadyList;
use super::receive::Came;
use crate::streams::buffers::FreeBuffers;
use crate::streams::handle::Handle;
use crate::streams::output::TakenOutput;
use std::collections::{HashSet, VecDeque};
use std::io;
use vmm_sys_util::epoll::EventSet;
use vrdma_tcp::Tuple;
use vrdma_transport::{DeviceId, PlacedFpdu};

/// Bytes of memory that may wait for an end's user. Beyond that, the other end has to wait.
const ROOM: usize = 128 << 10;
/// Longest FPDU in bytes: several fit into the room.
///
/// It has 32 KiB of payload, behind headers, padding and CRC. So messages of several times that
/// have no short rest.
pub const MSS: u32 = (32 << 10) + 32;

/// Identifies an end until its user [leaves](Loopbacks::leave) it.
#[derive(Debug)]
pub struct Loopback(usize);

/// All loopback connections of a worker.
#[derive(Default)]
pub struct Loopbacks {
    ends: Vec<Option<LoopbackEnd>>,
    free: Vec<usize>,
    /// For each end that connected: its guest, and the addresses from its side.
    in_use: HashSet<(DeviceId, Tuple)>,
    buffers: FreeBuffers,
    /// Whether anything was sent since the last call of [`Loopbacks::had_news`].
    has_news: bool,
}

/// A queued item.
enum Chunk {
    /// A buffer, and the length of the bytes at its front.
    Bytes(Vec<u8>, usize),
    /// An FPDU whose payload the engine has placed.
    Placed(PlacedFpdu),
}

#[derive(Default)]
struct LoopbackEnd {
    /// The other end, as long as it exists.
    peer: Option<usize>,
    /// The entry of this end in `in_use`.
    name: Option<(DeviceId, Tuple)>,
    user: Option<Handle>,
    /// The events that its user wants.
    wants: Option<EventSet>,
    /// Whether its user is in the queue of users with events.
    is_queued: bool,
    /// Queued items to read.
    input: VecDeque<Chunk>,
    /// Bytes of memory of these items. A long buffer may have few bytes.
    waiting: usize,
    /// Whether the peer has ended its stream.
    peer_ended: bool,
    /// Whether the peer has ended the connection.
    is_reset: bool,
}

impl Loopbacks {
    /// Whether a guest has a loopback connection with these addresses.
    pub(super) fn has(&self, device: DeviceId, tuple: &Tuple) -> bool {
        self.in_use.contains(&(device, *tuple))
    }

    /// Creates the two ends of a connection. `device` is the guest that connects, and has the
    /// first.
    pub(super) fn pair(&mut self, device: DeviceId, tuple: Tuple) -> (Loopback, Loopback) {
        self.in_use.insert((device, tuple));
        let near = self.add(LoopbackEnd { name: Some((device, tuple)), ..LoopbackEnd::default() });
        let far = self.add(LoopbackEnd { peer: Some(near), ..LoopbackEnd::default() });
        self.end(near).peer = Some(far);
        (Loopback(near), Loopback(far))
    }

    fn add(&mut self, end: LoopbackEnd) -> usize {
        let index = self.free.pop().unwrap_or_else(|| {
            self.ends.push(None);
            self.ends.len() - 1
        });
        self.ends[index] = Some(end);
        index
    }

    fn end(&mut self, index: usize) -> &mut LoopbackEnd {
        self.ends[index].as_mut().expect("an end is there until its user leaves it")
    }

    fn peer(&mut self, loopback: &Loopback) -> Option<usize> {
        self.end(loopback.0).peer
    }

    /// Sets the events that the user of an end wants. Pending events are reported, too.
    pub fn watch(
        &mut self,
        loopback: &Loopback,
        user: Handle,
        wants: Option<EventSet>,
        ready: &mut ReadyList,
    ) {
        let end = self.end(loopback.0);
        (end.user, end.wants) = (Some(user), wants);
        self.note(loopback.0, ready);
    }

    /// Returns the pending events of an end, as flags of epoll.
    pub fn events(&mut self, loopback: &Loopback) -> EventSet {
        self.end(loopback.0).is_queued = false;
        self.now(loopback.0)
    }

    fn now(&mut self, index: usize) -> EventSet {
        let has_room = self.has_room_at(index);
        let end = self.end(index);
        let Some(wants) = end.wants else { return EventSet::empty() };
        let mut now = EventSet::empty();
        if !end.input.is_empty() || end.peer_ended || end.is_reset {
            now |= EventSet::IN;
        }
        if end.peer_ended {
            now |= EventSet::READ_HANG_UP;
        }
        if has_room {
            now |= EventSet::OUT;
        }
        let mut told = now & wants;
        if end.is_reset {
            told |= EventSet::HANG_UP | EventSet::ERROR;
        }
        told
    }

    fn has_room_at(&mut self, index: usize) -> bool {
        self.end(index).peer.is_some_and(|peer| self.end(peer).waiting < ROOM)
    }

    fn note(&mut self, index: usize, ready: &mut ReadyList) {
        let has_news = !self.now(index).is_empty();
        let end = self.end(index);
        if let Some(user) = end.user
            && has_news
            && !std::mem::replace(&mut end.is_queued, true)
        {
            ready.push_back(user);
        }
    }

    /// Checks that an end is still connected.
    ///
    /// # Errors
    /// The peer has reset the connection.
    pub fn connected(&mut self, loopback: &Loopback) -> io::Result<()> {
        if self.end(loopback.0).is_reset { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }

    /// Returns the user of the other end, if it is known.
    pub fn user_of_peer(&mut self, loopback: &Loopback) -> Option<Handle> {
        let peer = self.peer(loopback)?;
        self.end(peer).user
    }

    /// Reads the next item: bytes in a buffer that replaces `buffer`, or an already placed FPDU.
    ///
    /// At the end of the stream it returns 0 bytes.
    ///
    /// # Errors
    /// `WouldBlock`: there is nothing yet. Other errors: the peer has reset the connection.
    pub fn read(
        &mut self,
        loopback: &Loopback,
        buffer: &mut Vec<u8>,
        ready: &mut ReadyList,
    ) -> io::Result<Came> {
        let end = self.end(loopback.0);
        if let Some(chunk) = end.input.pop_front() {
            end.waiting -= memory(&chunk);
            let peer = end.peer;
            let came = match chunk {
                Chunk::Bytes(bytes, length) => {
                    self.buffers.put(std::mem::replace(buffer, bytes));
                    Came::Bytes(length)
                }
                Chunk::Placed(placed) => Came::Placed(placed),
            };
            if let Some(peer) = peer {
                self.note(peer, ready);
            }
            return Ok(came);
        }
        if end.peer_ended {
            return Ok(Came::Bytes(0));
        }
        self.connected(loopback)?;
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Whether an end may send more.
    ///
    /// # Errors
    /// The peer has reset the connection.
    pub fn has_room(&mut self, loopback: &Loopback) -> io::Result<bool> {
        self.connected(loopback)?;
        Ok(self.has_room_at(loopback.0))
    }

    /// Returns a buffer in which to put output together.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.buffers.take()
    }

    /// Sends bytes to the peer.
    pub fn send(&mut self, loopback: &Loopback, taken: TakenOutput, ready: &mut ReadyList) {
        let Some(peer) = self.peer(loopback) else { return self.buffers.put(taken.bytes) };
        self.put(peer, Chunk::Bytes(taken.bytes, taken.pieces.iter().sum()), ready);
    }

    /// Sends an already placed FPDU to the peer.
    pub fn send_placed(&mut self, loopback: &Loopback, placed: PlacedFpdu, ready: &mut ReadyList) {
        if let Some(peer) = self.peer(loopback) {
            self.put(peer, Chunk::Placed(placed), ready);
        }
    }

    /// Whether anything was sent since the last call.
    pub fn had_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    fn put(&mut self, peer: usize, chunk: Chunk, ready: &mut ReadyList) {
        self.has_news = true;
        let end = self.end(peer);
        end.waiting += memory(&chunk);
        end.input.push_back(chunk);
        self.note(peer, ready);
    }

    /// Ends the outgoing stream.
    pub fn finish(&mut self, loopback: &Loopback, ready: &mut ReadyList) {
        if let Some(peer) = self.peer(loopback) {
            self.end(peer).peer_ended = true;
            self.note(peer, ready);
        }
    }

    /// Resets a connection, whatever the peer is doing.
    pub fn reset(&mut self, loopback: Loopback, ready: &mut ReadyList) {
        self.remove(loopback, true, ready);
    }

    /// Releases an end. If its stream was ended, the peer may go on until it leaves, too.
    pub fn leave(&mut self, loopback: Loopback, ready: &mut ReadyList) {
        self.remove(loopback, false, ready);
    }

    fn remove(&mut self, Loopback(index): Loopback, is_reset: bool, ready: &mut ReadyList) {
        let LoopbackEnd { peer, name, input, .. } = self.ends[index].take().expect("its user leaves it once");
        self.free.push(index);
        for chunk in input {
            if let Chunk::Bytes(bytes, _) = chunk {
                self.buffers.put(bytes);
            }
        }
        if let Some(name) = name {
            self.in_use.remove(&name);
        }
        if let Some(peer) = peer {
            let end = self.end(peer);
            end.peer = None;
            end.is_reset = is_reset || !end.peer_ended;
            self.note(peer, ready);
        }
    }
}

/// Returns the bytes of memory of a queued item.
fn memory(chunk: &Chunk) -> usize {
    let buffer = match chunk {
        Chunk::Bytes(bytes, _) => bytes.capacity(),
        Chunk::Placed(_) => 0,
    };
    size_of::<Chunk>() + buffer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::user_tcp::receive::tests::placed;
    use vrdma_tcp::Ports;
    use vrdma_wire::num::Gid;

    const A: Handle = Handle { number: 1, generation: 0 };
    const B: Handle = Handle { number: 2, generation: 0 };
    const BOTH: EventSet = EventSet::IN.union(EventSet::OUT);

    /// Returns a connected pair, whose users want all events and have handled the first ones.
    fn pair() -> (Loopbacks, ReadyList, Loopback, Loopback) {
        let (mut loopbacks, mut ready) = (Loopbacks::default(), ReadyList::default());
        let (local, remote) = (Gid([1; 16]), Gid([2; 16]));
        let tuple = Tuple { local, remote, ports: Ports { local: 3, remote: 4 } };
        let (near, far) = loopbacks.pair(DeviceId(0), tuple);
        assert!(loopbacks.has(DeviceId(0), &tuple) && !loopbacks.has(DeviceId(1), &tuple));
        for (loopback, user) in [(&near, A), (&far, B)] {
            loopbacks.watch(loopback, user, Some(BOTH), &mut ready);
            assert_eq!((ready.pop_front(), loopbacks.events(loopback)), (Some(user), EventSet::OUT));
        }
        (loopbacks, ready, near, far)
    }

    fn taken(byte: u8, length: usize) -> TakenOutput {
        // A buffer may be longer than its contents.
        TakenOutput { bytes: vec![byte; length + 9], pieces: [length].into() }
    }

    fn read(loopbacks: &mut Loopbacks, loopback: &Loopback, ready: &mut ReadyList) -> io::Result<Vec<u8>> {
        let mut buffer = Vec::new();
        match loopbacks.read(loopback, &mut buffer, ready)? {
            Came::Bytes(length) => Ok(buffer[..length].to_vec()),
            Came::Placed(_) => panic!("nothing is placed"),
        }
    }

    #[test]
    fn few_bytes_in_long_buffers_do_not_take_more_memory_than_many() {
        let (mut loopbacks, mut ready, near, far) = pair();
        let mut sent = 0;
        while loopbacks.has_room(&near).unwrap() {
            loopbacks.send(&near, TakenOutput { bytes: vec![7; ROOM / 4], pieces: [1].into() }, &mut ready);
            sent += 1;
        }
        assert_eq!(sent, 4);
        (0..sent).for_each(|_| assert_eq!(read(&mut loopbacks, &far, &mut ready).unwrap(), [7]));
        assert_eq!(loopbacks.end(far.0).waiting, 0);
        // Many buffers of a byte each take no more memory, either.
        let one = || TakenOutput { bytes: vec![7; 1], pieces: [1].into() };
        while loopbacks.has_room(&near).unwrap() {
            loopbacks.send(&near, one(), &mut ready);
        }
        assert!(loopbacks.end(far.0).input.len() <= ROOM / size_of::<Chunk>() + 1);
    }

    #[test]
    fn what_was_placed_takes_its_turn_among_bytes_and_some_room() {
        let (mut loopbacks, mut ready, near, far) = pair();
        let (placed, _) = placed();
        assert!(!loopbacks.had_news());
        loopbacks.send(&near, taken(1, 5), &mut ready);
        assert!(loopbacks.had_news() && !loopbacks.had_news());
        loopbacks.send_placed(&near, placed.clone(), &mut ready);
        loopbacks.send(&near, taken(2, 5), &mut ready);
        assert_eq!(read(&mut loopbacks, &far, &mut ready).unwrap(), [1; 5]);
        match loopbacks.read(&far, &mut Vec::new(), &mut ready).unwrap() {
            Came::Placed(came) => assert_eq!(came, placed),
            Came::Bytes(_) => panic!("bytes"),
        }
        assert_eq!(read(&mut loopbacks, &far, &mut ready).unwrap(), [2; 5]);
        while loopbacks.has_room(&near).unwrap() {
            loopbacks.send_placed(&near, placed.clone(), &mut ready);
        }
        assert!(loopbacks.end(far.0).input.len() <= ROOM / size_of::<Chunk>() + 1);
        // An end that leaves drops its queued items.
        loopbacks.leave(far, &mut ready);
        loopbacks.send_placed(&near, placed, &mut ready);
        assert!(loopbacks.has_room(&near).is_err());
        assert_eq!(loopbacks.user_of_peer(&near), None);
    }

    #[test]
    fn a_writer_waits_for_its_reader() {
        let (mut loopbacks, mut ready, near, far) = pair();
        loopbacks.send(&near, taken(1, ROOM / 2), &mut ready);
        assert!(loopbacks.has_room(&near).unwrap());
        loopbacks.send(&near, taken(2, ROOM / 2), &mut ready);
        assert!(!loopbacks.has_room(&near).unwrap() && loopbacks.has_room(&far).unwrap());
        // The user is queued once, however many items came.
        assert_eq!((ready.pop_front(), ready.pop_front()), (Some(B), None));
        assert_eq!((loopbacks.events(&near), loopbacks.events(&far)), (EventSet::empty(), BOTH));
        assert_eq!(read(&mut loopbacks, &far, &mut ready).unwrap(), [1; ROOM / 2]);
        assert_eq!((ready.pop_front(), loopbacks.events(&near)), (Some(A), EventSet::OUT));
        assert_eq!(read(&mut loopbacks, &far, &mut ready).unwrap(), [2; ROOM / 2]);
        let error = read(&mut loopbacks, &far, &mut ready).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn what_was_sent_before_the_end_is_read() {
        for is_reset in [false, true] {
            let (mut loopbacks, mut ready, near, far) = pair();
            loopbacks.send(&near, taken(1, 5), &mut ready);
            if is_reset {
                loopbacks.reset(near, &mut ready);
            } else {
                loopbacks.finish(&near, &mut ready);
                // The other direction is still open.
                loopbacks.send(&far, taken(2, 3), &mut ready);
                assert_eq!(read(&mut loopbacks, &near, &mut ready).unwrap(), [2; 3]);
                loopbacks.leave(near, &mut ready);
            }
            assert_eq!(read(&mut loopbacks, &far, &mut ready).unwrap(), [1; 5]);
            let end = read(&mut loopbacks, &far, &mut ready);
            match is_reset {
                true => assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset),
                false => assert!(end.unwrap().is_empty()),
            }
            assert_eq!(loopbacks.events(&far).contains(EventSet::ERROR), is_reset);
            // Sending to an end that is gone is not an error.
            loopbacks.send(&far, taken(3, 1), &mut ready);
            loopbacks.finish(&far, &mut ready);
            loopbacks.leave(far, &mut ready);
            assert!(loopbacks.free.len() == 2 && loopbacks.in_use.is_empty());
        }
    }

    #[test]
    fn who_leaves_without_a_word_has_reset_it() {
        let (mut loopbacks, mut ready, near, far) = pair();
        loopbacks.leave(near, &mut ready);
        assert_eq!(ready.pop_front(), Some(B));
        assert!(loopbacks.events(&far).contains(EventSet::HANG_UP) && loopbacks.connected(&far).is_err());
    }
}
