//! Frames on their way to the kernel: each is a message, or several are one.

use super::header::{HEADER, from_virtio};
use super::join::{Candidate, Head, Run, run};
use super::socket::Socket;
use crate::frames::{HEAD, TCP_CHECKSUM, VirtioOffload};
use crate::port::{BURST, Frame};
use std::io::{self, IoSlice};

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Frames that passed the kernel with others as one.
    pub joined: u64,
    /// Frames that the kernel refused.
    pub refused: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Outbox {
    /// What goes before the payload of each message.
    heads: Box<[Head; BURST]>,
    pub counters: Counters,
}

/// A message.
#[derive(Clone, Copy, Debug, Default)]
struct Message {
    /// The first of its frames, and the one behind the last.
    begin: usize,
    end: usize,
    /// Bytes of headers that are left out of each of them.
    headers: usize,
}

impl Outbox {
    /// One with nothing in it.
    pub fn new() -> Outbox {
        Outbox { heads: Box::new([[0; HEADER + HEAD]; BURST]), counters: Counters::default() }
    }

    /// Sends frames from the front, each of one piece, as many as the kernel takes of the first
    /// [`BURST`].
    pub fn send(&mut self, socket: &Socket, frames: &mut Vec<Frame>) {
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
        // What happened to the interface is said once, perhaps long after it: then nothing was
        // tried.
        let first = self.hand_over(socket, messages, burst);
        let result = if first.as_ref().is_err_and(|error| !is_later(error)) {
            self.hand_over(socket, messages, burst)
        } else {
            first
        };
        let sent = match result {
            Ok(sent) => sent,
            // What waits goes later.
            Err(error) if is_later(&error) => 0,
            // The others might be better. Of a device that is gone or down all are lost, one after
            // the other.
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

    /// Gives messages to the kernel; how many it took.
    fn hand_over(&self, socket: &Socket, messages: &[Message], frames: &[Frame]) -> io::Result<usize> {
        // A head for each message, and a part for each frame.
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

/// The message that begins with this frame.
fn message(frames: &[Frame], begin: usize, head: &mut Head) -> Message {
    let candidates = frames[begin..].iter().map(|frame| {
        let is_open = frame.open_checksum().is_some_and(|(_, offset)| usize::from(offset) == TCP_CHECKSUM);
        Candidate { bytes: frame, is_open }
    });
    if let Some(Run { frames, headers }) = run(candidates, head) {
        return Message { begin, end: begin + frames, headers };
    }
    let open = frames[begin].open_checksum();
    let open = open.map_or(VirtioOffload::None, |(start, offset)| VirtioOffload::Checksum { start, offset });
    head[..HEADER].copy_from_slice(&from_virtio(&open));
    Message { begin, end: begin + 1, headers: 0 }
}
