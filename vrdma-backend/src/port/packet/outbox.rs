//! Sends frames to the kernel. Each is one message, or several are coalesced into one.

use super::header::{HEADER, from_virtio};
use super::join::{Candidate, JoinedFrames, JoinedHead, run};
use super::socket::RawSocket;
use crate::frames::{HEAD, TCP_CHECKSUM, VirtioOffload};
use crate::port::{BURST, Frame};
use std::io::{self, IoSlice};

/// The counters of sent frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutboxCounters {
    /// Frames that were coalesced with others.
    pub joined: u64,
    /// Frames that the kernel refused.
    pub refused: u64,
}

/// Frames on their way to the kernel.
#[derive(Debug)]
pub struct Outbox {
    /// What precedes the payload of each message.
    heads: Box<[JoinedHead; BURST]>,
    pub counters: OutboxCounters,
}

/// A message: one frame, or several coalesced frames.
#[derive(Clone, Copy, Debug, Default)]
struct Message {
    /// The index of its first frame. `end` is the index behind the last.
    begin: usize,
    end: usize,
    /// The number of header bytes that are left out of each frame.
    headers: usize,
}

impl Outbox {
    /// Creates an empty outbox.
    pub fn new() -> Outbox {
        Outbox { heads: Box::new([[0; HEADER + HEAD]; BURST]), counters: OutboxCounters::default() }
    }

    /// Sends frames from the front, each in one piece.
    ///
    /// It sends as many of the first [`BURST`] as the kernel takes.
    pub fn send(&mut self, socket: &RawSocket, frames: &mut Vec<Frame>) {
        if frames.is_empty() {
            return;
        }
        let mut messages = [Message::default(); BURST];
        let mut count = 0;
        let burst = &frames[..frames.len().min(BURST)];
        let mut begin = 0;
        while begin < burst.len() {
            messages[count] = message(burst, begin, &mut self.heads[count]);
            begin = messages[count].end;
            count += 1;
        }
        let messages = &messages[..count];
        let is_later = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        // An error of the interface is reported once, perhaps long after it occurred. In that case
        // nothing was tried, so this tries once more.
        let first = self.hand_over(socket, messages, burst);
        let result = if first.as_ref().is_err_and(|error| !is_later(error)) {
            self.hand_over(socket, messages, burst)
        } else {
            first
        };
        let sent = match result {
            Ok(sent) => sent,
            // Frames that wait are sent later.
            Err(error) if is_later(&error) => 0,
            // The other frames may be accepted. If the device is gone or down, all are lost, one
            // after the other.
            Err(_) => {
                self.counters.refused += (messages[0].end - messages[0].begin) as u64;
                frames.drain(..messages[0].end);
                return;
            }
        };
        let joined = messages[..sent].iter().filter(|message| message.headers > 0);
        self.counters.joined += joined.map(|message| (message.end - message.begin) as u64).sum::<u64>();
        let last = messages[..sent].last().map_or(0, |message| message.end);
        frames.drain(..last);
    }

    /// Gives messages to the kernel. Returns how many it took.
    fn hand_over(&self, socket: &RawSocket, messages: &[Message], frames: &[Frame]) -> io::Result<usize> {
        // There is one head for each message, and one part for each frame.
        let mut parts = [IoSlice::new(&[]); 2 * BURST];
        let mut ends = [0; BURST];
        let mut used = 0;
        for ((message, head), end) in messages.iter().zip(self.heads.iter()).zip(&mut ends) {
            parts[used] = IoSlice::new(&head[..HEADER + message.headers]);
            used += 1;
            for frame in &frames[message.begin..message.end] {
                parts[used] = IoSlice::new(&frame[message.headers..]);
                used += 1;
            }
            *end = used;
        }
        let mut all = [&[][..]; BURST];
        let mut begin = 0;
        for (message, end) in all.iter_mut().zip(&ends[..messages.len()]) {
            *message = &parts[begin..*end];
            begin = *end;
        }
        socket.send(&all[..messages.len()])
    }
}

/// Returns the message that begins with this frame.
fn message(frames: &[Frame], begin: usize, head: &mut JoinedHead) -> Message {
    let candidates = frames[begin..].iter().map(|frame| {
        let is_open = frame.open_checksum().is_some_and(|(_, offset)| usize::from(offset) == TCP_CHECKSUM);
        Candidate { bytes: frame, is_open }
    });
    if let Some(JoinedFrames { frames, headers }) = run(candidates, head) {
        return Message { begin, end: begin + frames, headers };
    }
    let open = frames[begin].open_checksum();
    let open = open.map_or(VirtioOffload::None, |(start, offset)| VirtioOffload::Checksum { start, offset });
    head[..HEADER].copy_from_slice(&from_virtio(&open));
    Message { begin, end: begin + 1, headers: 0 }
}
