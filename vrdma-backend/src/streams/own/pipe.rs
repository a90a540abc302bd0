//! Connections between two guests of this worker: no TCP, no segments. What one end puts in is what
//! the other reads, in the same buffer; or the engine has placed it, and what is left of it takes
//! its turn. To its user an end is what a socket of our own TCP is.

use super::node::Ready;
use super::receive::Came;
use crate::streams::buffers::Buffers;
use crate::streams::handle::Handle;
use crate::streams::output::Taken;
use std::collections::{HashSet, VecDeque};
use std::io;
use vmm_sys_util::epoll::EventSet;
use vrdma_tcp::Tuple;
use vrdma_transport::{DeviceId, PlacedFpdu};

/// Bytes of memory that wait for an end's user, after which the other end waits.
const ROOM: usize = 128 << 10;
/// Longest FPDU: some wait while one is read. It has 32 KiB of payload, so that messages of several
/// times that have no short rest, behind headers, padding and CRC.
pub const MSS: u32 = (32 << 10) + 32;

/// Names an end until its user [leaves](Pipes::leave) it.
#[derive(Debug)]
pub struct Pipe(usize);

/// See the module.
#[derive(Default)]
pub struct Pipes {
    ends: Vec<Option<End>>,
    free: Vec<usize>,
    /// Of the ends that connected: whose, and the addresses as it has them.
    in_use: HashSet<(DeviceId, Tuple)>,
    buffers: Buffers,
    /// Something was put in since it was last asked.
    has_news: bool,
}

/// What came.
enum Chunk {
    /// A buffer, with the length of what is at its front.
    Bytes(Vec<u8>, usize),
    /// An FPDU whose payload the engine has placed.
    Placed(PlacedFpdu),
}

#[derive(Default)]
struct End {
    /// The other end, as long as it is there.
    peer: Option<usize>,
    /// What it has in `in_use`.
    name: Option<(DeviceId, Tuple)>,
    user: Option<Handle>,
    /// What its user wants to be told of.
    wants: Option<EventSet>,
    /// Its user is in the queue of those who are to be told.
    is_queued: bool,
    /// What came,
    input: VecDeque<Chunk>,
    /// and the memory of all of it: a long buffer may have few bytes.
    waiting: usize,
    /// The peer has ended its stream.
    peer_ended: bool,
    /// The peer has ended the connection.
    is_reset: bool,
}

impl Pipes {
    /// Whether a guest has such a connection.
    pub(super) fn has(&self, device: DeviceId, tuple: &Tuple) -> bool {
        self.in_use.contains(&(device, *tuple))
    }

    /// The two ends of a new connection, of which a guest begins the first.
    pub(super) fn pair(&mut self, device: DeviceId, tuple: Tuple) -> (Pipe, Pipe) {
        self.in_use.insert((device, tuple));
        let near = self.add(End { name: Some((device, tuple)), ..End::default() });
        let far = self.add(End { peer: Some(near), ..End::default() });
        self.end(near).peer = Some(far);
        (Pipe(near), Pipe(far))
    }

    fn add(&mut self, end: End) -> usize {
        let index = self.free.pop().unwrap_or_else(|| {
            self.ends.push(None);
            self.ends.len() - 1
        });
        self.ends[index] = Some(end);
        index
    }

    fn end(&mut self, index: usize) -> &mut End {
        self.ends[index].as_mut().expect("an end is there until its user leaves it")
    }

    fn peer(&mut self, pipe: &Pipe) -> Option<usize> {
        self.end(pipe.0).peer
    }

    /// Says what the user of an end is to be told of; what is so now is told too.
    pub fn watch(&mut self, pipe: &Pipe, user: Handle, wants: Option<EventSet>, ready: &mut Ready) {
        let end = self.end(pipe.0);
        (end.user, end.wants) = (Some(user), wants);
        self.note(pipe.0, ready);
    }

    /// What the user of an end is to be told now, in the words of epoll.
    pub fn events(&mut self, pipe: &Pipe) -> EventSet {
        self.end(pipe.0).is_queued = false;
        self.now(pipe.0)
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

    fn note(&mut self, index: usize, ready: &mut Ready) {
        let has_news = !self.now(index).is_empty();
        let end = self.end(index);
        if let Some(user) = end.user
            && has_news
            && !std::mem::replace(&mut end.is_queued, true)
        {
            ready.push_back(user);
        }
    }

    /// Whether it is connected still.
    ///
    /// # Errors
    /// The peer has reset it.
    pub fn connected(&mut self, pipe: &Pipe) -> io::Result<()> {
        if self.end(pipe.0).is_reset { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }

    /// Who is at the other end, as far as it is known.
    pub fn user_of_peer(&mut self, pipe: &Pipe) -> Option<Handle> {
        let peer = self.peer(pipe)?;
        self.end(peer).user
    }

    /// Reads what came: bytes into a buffer, which is replaced, or an FPDU that was placed; no
    /// bytes at the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock`: there is nothing yet. Or the peer has reset it.
    pub fn read(&mut self, pipe: &Pipe, buffer: &mut Vec<u8>, ready: &mut Ready) -> io::Result<Came> {
        let end = self.end(pipe.0);
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
        self.connected(pipe)?;
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Whether an end takes more.
    ///
    /// # Errors
    /// The peer has reset it.
    pub fn has_room(&mut self, pipe: &Pipe) -> io::Result<bool> {
        self.connected(pipe)?;
        Ok(self.has_room_at(pipe.0))
    }

    /// A buffer in which to put together what is sent.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.buffers.take()
    }

    /// Has the peer read it.
    pub fn send(&mut self, pipe: &Pipe, taken: Taken, ready: &mut Ready) {
        let Some(peer) = self.peer(pipe) else { return self.buffers.put(taken.bytes) };
        self.put(peer, Chunk::Bytes(taken.bytes, taken.pieces.iter().sum()), ready);
    }

    /// Has the peer read an FPDU that was placed.
    pub fn send_placed(&mut self, pipe: &Pipe, placed: PlacedFpdu, ready: &mut Ready) {
        if let Some(peer) = self.peer(pipe) {
            self.put(peer, Chunk::Placed(placed), ready);
        }
    }

    /// Whether anything was put in since the last call.
    pub fn had_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    fn put(&mut self, peer: usize, chunk: Chunk, ready: &mut Ready) {
        self.has_news = true;
        let end = self.end(peer);
        end.waiting += memory(&chunk);
        end.input.push_back(chunk);
        self.note(peer, ready);
    }

    /// No more is sent.
    pub fn finish(&mut self, pipe: &Pipe, ready: &mut Ready) {
        if let Some(peer) = self.peer(pipe) {
            self.end(peer).peer_ended = true;
            self.note(peer, ready);
        }
    }

    /// Ends a connection, in the midst of whatever the peer does.
    pub fn reset(&mut self, pipe: Pipe, ready: &mut Ready) {
        self.remove(pipe, true, ready);
    }

    /// Its user has done with it. A peer that has been told that no more comes may go on until it
    /// has done so too.
    pub fn leave(&mut self, pipe: Pipe, ready: &mut Ready) {
        self.remove(pipe, false, ready);
    }

    fn remove(&mut self, Pipe(index): Pipe, is_reset: bool, ready: &mut Ready) {
        let End { peer, name, input, .. } = self.ends[index].take().expect("its user leaves it once");
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

/// Bytes that a chunk takes.
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
    use crate::streams::own::receive::tests::placed;
    use vrdma_tcp::Ports;
    use vrdma_wire::num::Gid;

    const A: Handle = Handle { number: 1, generation: 0 };
    const B: Handle = Handle { number: 2, generation: 0 };
    const BOTH: EventSet = EventSet::IN.union(EventSet::OUT);

    /// A pair, whose ends want to be told of all, and were.
    fn pair() -> (Pipes, Ready, Pipe, Pipe) {
        let (mut pipes, mut ready) = (Pipes::default(), Ready::default());
        let (local, remote) = (Gid([1; 16]), Gid([2; 16]));
        let tuple = Tuple { local, remote, ports: Ports { local: 3, remote: 4 } };
        let (near, far) = pipes.pair(DeviceId(0), tuple);
        assert!(pipes.has(DeviceId(0), &tuple) && !pipes.has(DeviceId(1), &tuple));
        for (pipe, user) in [(&near, A), (&far, B)] {
            pipes.watch(pipe, user, Some(BOTH), &mut ready);
            assert_eq!((ready.pop_front(), pipes.events(pipe)), (Some(user), EventSet::OUT));
        }
        (pipes, ready, near, far)
    }

    fn taken(byte: u8, length: usize) -> Taken {
        // A buffer may be longer than what is in it.
        Taken { bytes: vec![byte; length + 9], pieces: [length].into() }
    }

    fn read(pipes: &mut Pipes, pipe: &Pipe, ready: &mut Ready) -> io::Result<Vec<u8>> {
        let mut buffer = Vec::new();
        match pipes.read(pipe, &mut buffer, ready)? {
            Came::Bytes(length) => Ok(buffer[..length].to_vec()),
            Came::Placed(_) => panic!("nothing is placed"),
        }
    }

    #[test]
    fn few_bytes_in_long_buffers_do_not_take_more_memory_than_many() {
        let (mut pipes, mut ready, near, far) = pair();
        let mut sent = 0;
        while pipes.has_room(&near).unwrap() {
            pipes.send(&near, Taken { bytes: vec![7; ROOM / 4], pieces: [1].into() }, &mut ready);
            sent += 1;
        }
        assert_eq!(sent, 4);
        (0..sent).for_each(|_| assert_eq!(read(&mut pipes, &far, &mut ready).unwrap(), [7]));
        assert_eq!(pipes.end(far.0).waiting, 0);
        // Nor do buffers of a byte each.
        let one = || Taken { bytes: vec![7; 1], pieces: [1].into() };
        while pipes.has_room(&near).unwrap() {
            pipes.send(&near, one(), &mut ready);
        }
        assert!(pipes.end(far.0).input.len() <= ROOM / size_of::<Chunk>() + 1);
    }

    #[test]
    fn what_was_placed_takes_its_turn_among_bytes_and_some_room() {
        let (mut pipes, mut ready, near, far) = pair();
        let (placed, _) = placed();
        assert!(!pipes.had_news());
        pipes.send(&near, taken(1, 5), &mut ready);
        assert!(pipes.had_news() && !pipes.had_news());
        pipes.send_placed(&near, placed.clone(), &mut ready);
        pipes.send(&near, taken(2, 5), &mut ready);
        assert_eq!(read(&mut pipes, &far, &mut ready).unwrap(), [1; 5]);
        match pipes.read(&far, &mut Vec::new(), &mut ready).unwrap() {
            Came::Placed(came) => assert_eq!(came, placed),
            Came::Bytes(_) => panic!("bytes"),
        }
        assert_eq!(read(&mut pipes, &far, &mut ready).unwrap(), [2; 5]);
        while pipes.has_room(&near).unwrap() {
            pipes.send_placed(&near, placed.clone(), &mut ready);
        }
        assert!(pipes.end(far.0).input.len() <= ROOM / size_of::<Chunk>() + 1);
        // Who leaves takes all of it along.
        pipes.leave(far, &mut ready);
        pipes.send_placed(&near, placed, &mut ready);
        assert!(pipes.has_room(&near).is_err());
        assert_eq!(pipes.user_of_peer(&near), None);
    }

    #[test]
    fn a_writer_waits_for_its_reader() {
        let (mut pipes, mut ready, near, far) = pair();
        pipes.send(&near, taken(1, ROOM / 2), &mut ready);
        assert!(pipes.has_room(&near).unwrap());
        pipes.send(&near, taken(2, ROOM / 2), &mut ready);
        assert!(!pipes.has_room(&near).unwrap() && pipes.has_room(&far).unwrap());
        // It is told once, however much came.
        assert_eq!((ready.pop_front(), ready.pop_front()), (Some(B), None));
        assert_eq!((pipes.events(&near), pipes.events(&far)), (EventSet::empty(), BOTH));
        assert_eq!(read(&mut pipes, &far, &mut ready).unwrap(), [1; ROOM / 2]);
        assert_eq!((ready.pop_front(), pipes.events(&near)), (Some(A), EventSet::OUT));
        assert_eq!(read(&mut pipes, &far, &mut ready).unwrap(), [2; ROOM / 2]);
        let error = read(&mut pipes, &far, &mut ready).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn what_was_sent_before_the_end_is_read() {
        for is_reset in [false, true] {
            let (mut pipes, mut ready, near, far) = pair();
            pipes.send(&near, taken(1, 5), &mut ready);
            if is_reset {
                pipes.reset(near, &mut ready);
            } else {
                pipes.finish(&near, &mut ready);
                // The other half is still open.
                pipes.send(&far, taken(2, 3), &mut ready);
                assert_eq!(read(&mut pipes, &near, &mut ready).unwrap(), [2; 3]);
                pipes.leave(near, &mut ready);
            }
            assert_eq!(read(&mut pipes, &far, &mut ready).unwrap(), [1; 5]);
            let end = read(&mut pipes, &far, &mut ready);
            match is_reset {
                true => assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset),
                false => assert!(end.unwrap().is_empty()),
            }
            assert_eq!(pipes.events(&far).contains(EventSet::ERROR), is_reset);
            // What is said to nobody is no fault of who says it.
            pipes.send(&far, taken(3, 1), &mut ready);
            pipes.finish(&far, &mut ready);
            pipes.leave(far, &mut ready);
            assert!(pipes.free.len() == 2 && pipes.in_use.is_empty());
        }
    }

    #[test]
    fn who_leaves_without_a_word_has_reset_it() {
        let (mut pipes, mut ready, near, far) = pair();
        pipes.leave(near, &mut ready);
        assert_eq!(ready.pop_front(), Some(B));
        assert!(pipes.events(&far).contains(EventSet::HANG_UP) && pipes.connected(&far).is_err());
    }
}
