//! What a capture has taken, on its way from the workers to the capture's thread.
//!
//! Workers copy packets into one buffer, and the thread takes the buffer as a whole and leaves an
//! empty one. So no packet needs memory of its own, and nobody holds the lock for more than a copy.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Most bytes of a buffer, with what is noted of each packet. What comes then is missed.
///
/// There are two: one is filled while the other one is written.
pub const ROOM: usize = 8 << 20;
/// How long a reader may take for the rest after a capture is over.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a reader may take for the rest when the daemon is about to end.
const LAST_PATIENCE: Duration = Duration::from_millis(200);
/// How much later a write is given up that does not return. The daemon goes on without it.
pub const GRACE: Duration = Duration::from_secs(1);

/// What a capture has taken. The workers, the capture's thread and its client have it.
#[derive(Debug)]
pub struct CaptureQueue {
    /// What [`State::over`] says, without the lock.
    is_over: AtomicBool,
    state: Mutex<State>,
    /// There is something in an empty buffer, or the capture is over.
    news: Condvar,
}

/// Why a capture has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureEnd {
    /// The client wanted it.
    Asked,
    /// All packets that were wanted are written.
    Count,
    /// The reader of the pipe or socket has closed it.
    Closed,
    /// Writing has failed, for this reason.
    Failed(String),
    /// The guest of the filter was removed.
    Removed,
    /// The daemon is about to end.
    Stopping,
}

/// How much a capture has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounts {
    /// Packets that were written as a whole.
    pub packets: u64,
    /// Bytes that were written, with what the format adds.
    pub bytes: u64,
    /// Packets that were wanted, and are not written.
    pub missed: u64,
}

/// Packets that wait, one behind the other.
#[derive(Debug, Default)]
pub struct CaptureBatch {
    /// What is known of each packet.
    pub packets: Vec<TakenPacket>,
    /// Their bytes.
    pub bytes: Vec<u8>,
    /// Names of interfaces that come first in this batch. `None`: the uplink.
    pub interfaces: Vec<Option<Box<str>>>,
}

/// A packet that was taken. Its bytes are elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct TakenPacket {
    /// The number of its interface.
    pub interface: u32,
    /// Whether it came in, seen from the interface.
    pub is_inbound: bool,
    /// The time, since the Unix epoch.
    pub at: Duration,
    /// How many of its bytes were taken.
    pub kept: usize,
    /// Its length in bytes.
    pub length: usize,
    /// What is to be told of it.
    pub comment: Option<&'static str>,
}

/// A packet that is to be taken. Its bytes are elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct NewPacket<'a> {
    /// The interface: the name of a guest; `None`: the uplink.
    pub guest: Option<&'a str>,
    /// Whether it came in, seen from the interface.
    pub is_inbound: bool,
    /// The time, since the Unix epoch.
    pub at: Duration,
    /// Its length in bytes.
    pub length: usize,
    /// What is to be told of it.
    pub comment: Option<&'static str>,
}

/// What [`CaptureQueue::take`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Packets, which are in the batch now.
    Packets,
    /// Nothing came within the time.
    Nothing,
    /// All is taken, and nothing comes any more.
    Over(CaptureEnd),
}

#[derive(Debug, Default)]
struct State {
    batch: CaptureBatch,
    /// Numbers of the interfaces of guests.
    numbers: HashMap<Box<str>, u32>,
    uplink: Option<u32>,
    /// How many packets are still wanted; `None`: all.
    left: Option<u64>,
    /// Packets that were put into batches.
    taken: u64,
    /// Packets that were not.
    refused: u64,
    packets: u64,
    bytes: u64,
    /// Why nothing more is taken. What was taken before is written yet.
    over: Option<Over>,
    /// The end, with the last counts.
    end: Option<(CaptureEnd, CaptureCounts)>,
}

/// Why a capture takes nothing more, and how long its reader may take for the rest.
#[derive(Debug)]
struct Over {
    end: CaptureEnd,
    since: Instant,
    until: Instant,
}

impl Over {
    /// Leaves the reader little time, because the daemon is about to end.
    fn hurry(&mut self, now: Instant) {
        self.until = self.until.min(now + LAST_PATIENCE);
    }
}

impl CaptureQueue {
    /// Returns an empty one, for at most so many packets.
    pub fn new(count: Option<u64>) -> Arc<CaptureQueue> {
        let state = State { batch: CaptureBatch::with_room(), left: count, ..State::default() };
        Arc::new(CaptureQueue { is_over: AtomicBool::new(false), state: state.into(), news: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with it")
    }

    /// Whether nothing more is taken.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Takes a packet, or counts it as missed if there is no room.
    pub fn put(&self, packet: &NewPacket<'_>, bytes: &[u8]) {
        let mut state = self.state();
        if state.over.is_some() {
            return;
        }
        let is_first = state.batch.packets.is_empty();
        if !state.put(packet, bytes) {
            state.refused += 1;
            return;
        }
        if state.left == Some(0) {
            self.set_over(&mut state, CaptureEnd::Count);
        } else if is_first {
            self.news.notify_one();
        }
    }

    /// Counts a packet that could not be read.
    pub fn miss(&self) {
        let mut state = self.state();
        if state.over.is_none() {
            state.refused += 1;
        }
    }

    /// Takes all that waits, in exchange for an empty batch. Waits for it, at most this long.
    ///
    /// What was in the batch before is gone if packets were found.
    pub fn take(&self, batch: &mut CaptureBatch, time: Duration) -> Found {
        let until = Instant::now() + time;
        let mut state = self.state();
        loop {
            if !state.batch.packets.is_empty() {
                batch.clear();
                mem::swap(&mut state.batch, batch);
                return Found::Packets;
            }
            if let Some(over) = &state.over {
                return Found::Over(over.end.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Found::Nothing;
            }
            (state, _) = self.news.wait_timeout(state, left).expect("no thread panics with it");
        }
    }

    /// Counts what was written. The counts of the end stay as they are.
    pub fn wrote(&self, packets: u64, bytes: u64) {
        let mut state = self.state();
        state.packets += packets;
        state.bytes += bytes;
    }

    /// Takes nothing more. What was taken is written yet. The first reason holds, but if the daemon
    /// is about to end, the reader has less time.
    pub fn stop(&self, end: CaptureEnd) {
        self.set_over(&mut self.state(), end);
    }

    fn set_over(&self, state: &mut State, end: CaptureEnd) {
        let now = Instant::now();
        let is_stopping = end == CaptureEnd::Stopping;
        let over = state.over.get_or_insert_with(|| Over { end, since: now, until: now + PATIENCE });
        if is_stopping {
            over.hurry(now);
        }
        self.is_over.store(true, Ordering::Relaxed);
        self.news.notify_all();
    }

    /// Returns why the capture is over, if writing the rest takes too long.
    pub fn is_late(&self) -> Option<CaptureEnd> {
        let state = self.state();
        let late = state.over.as_ref().filter(|over| Instant::now() >= over.until);
        late.map(|over| over.end.clone())
    }

    /// Ends the capture. What is not written is missed. The first end holds.
    pub fn end(&self, end: CaptureEnd) {
        let mut state = self.state();
        self.set_over(&mut state, end.clone());
        if state.end.is_none() {
            let left = state.taken.saturating_sub(state.packets);
            let counts = CaptureCounts { missed: state.refused + left, ..state.counts() };
            state.end = Some((end, counts));
        }
        // Workers may have the queue for longer. They do not wait while its memory is freed.
        let batch = mem::take(&mut state.batch);
        drop(state);
        drop(batch);
    }

    /// Ends the capture if a write does not return, long after nothing more was wanted.
    ///
    /// Returns whether that happened now.
    pub fn give_up(&self) -> bool {
        let state = self.state();
        let Some(over) = state.over.as_ref().filter(|_| state.end.is_none()) else { return false };
        if Instant::now() < over.until + GRACE {
            return false;
        }
        let since = over.since.elapsed().as_millis();
        drop(state);
        self.end(CaptureEnd::Failed(format!("a write has not returned for {since} ms")));
        true
    }

    /// Returns how much is done, and why the capture has ended, if it has. Counts are final then.
    pub fn progress(&self) -> (CaptureCounts, Option<CaptureEnd>) {
        let state = self.state();
        match &state.end {
            Some((end, counts)) => (*counts, Some(end.clone())),
            None => (state.counts(), None),
        }
    }

    /// Returns why the capture has ended, if it has.
    pub fn ended(&self) -> Option<CaptureEnd> {
        self.progress().1
    }
}

impl State {
    fn counts(&self) -> CaptureCounts {
        CaptureCounts { packets: self.packets, bytes: self.bytes, missed: self.refused }
    }

    /// Puts a packet into the batch. Returns false if there is no room.
    fn put(&mut self, packet: &NewPacket<'_>, bytes: &[u8]) -> bool {
        let noted = (self.batch.packets.len() + 1) * size_of::<TakenPacket>();
        if self.batch.bytes.len() + bytes.len() + noted > ROOM {
            return false;
        }
        let interface = self.interface(packet.guest);
        let NewPacket { is_inbound, at, length, comment, .. } = *packet;
        let kept = bytes.len();
        self.batch.packets.push(TakenPacket { interface, is_inbound, at, kept, length, comment });
        self.batch.bytes.extend_from_slice(bytes);
        self.taken += 1;
        self.left = self.left.map(|left| left.saturating_sub(1));
        true
    }

    /// Returns the number of an interface.
    fn interface(&mut self, guest: Option<&str>) -> u32 {
        let known = guest.map_or(self.uplink, |name| self.numbers.get(name).copied());
        known.unwrap_or_else(|| {
            let number = (self.numbers.len() + usize::from(self.uplink.is_some())) as u32;
            match guest {
                Some(name) => _ = self.numbers.insert(name.into(), number),
                None => self.uplink = Some(number),
            }
            self.batch.interfaces.push(guest.map(Into::into));
            number
        })
    }
}

impl CaptureBatch {
    /// Returns an empty one that never grows: workers would wait for the copy.
    ///
    /// Memory that is not used takes no pages.
    pub fn with_room() -> CaptureBatch {
        let packets = Vec::with_capacity(ROOM / size_of::<TakenPacket>());
        CaptureBatch { packets, bytes: Vec::with_capacity(ROOM), interfaces: Vec::new() }
    }

    /// Empties it, and keeps its memory.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.bytes.clear();
        self.interfaces.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait;

    const PACKET: NewPacket<'_> =
        NewPacket { guest: None, is_inbound: true, at: Duration::ZERO, length: 60, comment: None };

    #[test]
    fn what_waits_is_bounded_and_the_rest_is_counted() {
        let queue = CaptureQueue::new(None);
        for length in [0, 14, 4096] {
            let before = queue.progress().0.missed;
            let bytes = vec![7; length];
            let mut count = 0usize;
            while queue.progress().0.missed == before {
                queue.put(&PACKET, &bytes);
                count += 1;
            }
            let mut batch = CaptureBatch::default();
            assert_eq!(queue.take(&mut batch, Duration::ZERO), Found::Packets);
            assert_eq!(batch.packets.len(), count - 1);
            let noted = batch.packets.len() * size_of::<TakenPacket>();
            let all = noted + batch.bytes.len();
            assert!(all <= ROOM && all + 2 * (length + size_of::<TakenPacket>()) > ROOM, "{all}");
        }
        assert_eq!(queue.progress().0, CaptureCounts { missed: 3, ..CaptureCounts::default() });
    }

    /// A capture that has its reason may still wait for its reader.
    #[test]
    fn the_end_of_the_daemon_leaves_any_reader_little_time() {
        let stopped = |ends: &[CaptureEnd]| {
            let queue = CaptureQueue::new(None);
            ends.iter().for_each(|end| queue.stop(end.clone()));
            let over = queue.state().over.take().expect("it is over");
            (over.end, over.until - over.since)
        };
        let (asked, stopping) = (CaptureEnd::Asked, CaptureEnd::Stopping);
        assert_eq!(stopped(std::slice::from_ref(&asked)), (asked.clone(), PATIENCE));
        assert_eq!(stopped(std::slice::from_ref(&stopping)), (stopping.clone(), LAST_PATIENCE));
        assert_eq!(stopped(&[stopping.clone(), asked.clone()]), (stopping.clone(), LAST_PATIENCE));
        // A busy machine may take the longer time from one to the next.
        let (end, _) = wait::until("less time for the reader", || {
            let found = stopped(&[asked.clone(), stopping.clone()]);
            (found.1 < PATIENCE).then_some(found)
        });
        assert_eq!(end, asked, "the first reason holds");
    }

    /// Workers wait for each other's copies, and for nothing else.
    #[test]
    fn buffers_do_not_grow() {
        let queue = CaptureQueue::new(None);
        let mut batch = CaptureBatch::with_room();
        for _ in 0..3 {
            let places = {
                let state = queue.state();
                (state.batch.packets.as_ptr(), state.batch.bytes.as_ptr())
            };
            while queue.progress().0.missed == 0 {
                queue.put(&PACKET, &[7; 60]);
            }
            queue.state().refused = 0;
            assert_eq!(queue.take(&mut batch, Duration::ZERO), Found::Packets);
            assert_eq!((batch.packets.as_ptr(), batch.bytes.as_ptr()), places);
        }
    }

    /// Each packet that was taken is written or missed.
    #[test]
    fn what_is_not_written_at_the_end_is_missed() {
        let queue = CaptureQueue::new(None);
        (0..10).for_each(|_| queue.put(&PACKET, &[7; 60]));
        assert_eq!(queue.take(&mut CaptureBatch::default(), Duration::ZERO), Found::Packets);
        (0..5).for_each(|_| queue.put(&PACKET, &[7; 60]));
        queue.wrote(4, 400);
        queue.end(CaptureEnd::Closed);
        let last = (CaptureCounts { packets: 4, bytes: 400, missed: 11 }, Some(CaptureEnd::Closed));
        assert_eq!(queue.progress(), last);
        // What comes later changes nothing.
        queue.put(&PACKET, &[7; 60]);
        queue.miss();
        queue.wrote(1, 100);
        queue.end(CaptureEnd::Asked);
        assert_eq!(queue.progress(), last);
    }

    #[test]
    fn it_takes_as_many_packets_as_are_wanted_and_those_are_written() {
        let queue = CaptureQueue::new(Some(2));
        queue.put(&PACKET, &[7; 60]);
        assert!(!queue.is_over());
        (0..3).for_each(|_| queue.put(&PACKET, &[7; 60]));
        assert!(queue.is_over() && queue.ended().is_none());
        let mut batch = CaptureBatch::default();
        assert_eq!(queue.take(&mut batch, Duration::ZERO), Found::Packets);
        assert_eq!(batch.packets.len(), 2);
        assert_eq!(queue.take(&mut batch, Duration::ZERO), Found::Over(CaptureEnd::Count));
        queue.wrote(2, 200);
        queue.end(CaptureEnd::Count);
        assert_eq!(queue.progress().0, CaptureCounts { packets: 2, bytes: 200, missed: 0 });
    }

    #[test]
    fn the_first_reason_holds_and_interfaces_are_named_once() {
        let queue = CaptureQueue::new(None);
        let mut batch = CaptureBatch::default();
        for (guest, interface) in [(Some("a"), 0), (None, 1), (Some("b"), 2), (Some("a"), 0), (None, 1)] {
            queue.put(&NewPacket { guest, ..PACKET }, &[]);
            assert_eq!(queue.take(&mut batch, Duration::ZERO), Found::Packets);
            assert_eq!(batch.packets[0].interface, interface);
        }
        assert_eq!(batch.interfaces, []);
        queue.stop(CaptureEnd::Removed);
        queue.stop(CaptureEnd::Asked);
        assert_eq!(queue.take(&mut batch, Duration::ZERO), Found::Over(CaptureEnd::Removed));
    }
}
