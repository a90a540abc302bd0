//! Cuts coalesced frames into TCP segments.
//!
//! The sender's kernel may never have cut them (TSO), or our kernel may have coalesced them (GRO).

use crate::frames::{HEAD, TcpLayout};

/// A message from the kernel, in two places.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    /// The first `held` bytes of the frame. Empty if they are not needed any more.
    pub first: &'a [u8],
    pub held: usize,
    /// The other bytes.
    pub rest: &'a [u8],
}

impl Whole<'_> {
    /// Copies bytes of the message from this position on.
    ///
    /// # Panics
    /// The message has too few bytes.
    fn copy(&self, from: usize, out: &mut [u8]) {
        let (begin, end) = (from.min(self.held), (from + out.len()).min(self.held));
        let (head, tail) = out.split_at_mut(end - begin);
        if begin < end {
            head.copy_from_slice(&self.first[begin..end]);
        }
        let from = from.max(self.held) - self.held;
        tail.copy_from_slice(&self.rest[from..from + tail.len()]);
    }
}

/// How a message is cut, and how far that has come.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    tcp: TcpLayout,
    /// The payload of each frame except the last. `total` is the payload of all frames together.
    size: usize,
    total: usize,
    /// The number of frames made so far. `done` is the payload in them.
    index: u16,
    done: usize,
    /// The headers of the coalesced frame.
    head: [u8; HEAD],
}

impl Cut {
    /// Prepares to cut a frame of `len` bytes into segments of `size` payload bytes.
    ///
    /// `head` is the beginning of the frame, and `room` the room of a buffer. `None` if the
    /// segments do not fit the buffers. That is possible, because the MTU counts from the IP header
    /// on, and any number of tags may precede it.
    pub fn new(tcp: TcpLayout, size: u16, head: &[u8], len: usize, room: usize) -> Option<Cut> {
        let mut headers = [0; HEAD];
        headers[..tcp.payload()].copy_from_slice(&head[..tcp.payload()]);
        let total = len - tcp.payload();
        let cut = Cut { tcp, size: size.into(), total, index: 0, done: 0, head: headers };
        // No later frame is longer than the first.
        cut.next_len().is_none_or(|longest| longest <= room).then_some(cut)
    }

    /// Returns the length of the next frame in bytes, or `None` if there is none.
    pub fn next_len(&self) -> Option<usize> {
        let left = self.total - self.done;
        (left > 0).then(|| self.tcp.payload() + left.min(self.size))
    }

    /// Whether the first segment is exactly the first `first` bytes of the coalesced frame, which
    /// are in one place.
    pub fn is_in_place(&self, first: usize) -> bool {
        self.done == 0 && self.next_len() == Some(first)
    }

    /// Writes the next frame to the beginning of a buffer, and returns its length.
    ///
    /// `None` if there is no next frame, or no room for it.
    pub fn write(&mut self, whole: Whole<'_>, room: &mut [u8]) -> Option<usize> {
        let len = self.next_len()?;
        let out = room.get_mut(..len)?;
        let (headers, payload) = out.split_at_mut(self.tcp.payload());
        headers.copy_from_slice(&self.head[..self.tcp.payload()]);
        whole.copy(self.tcp.payload() + self.done, payload);
        self.finish(out);
        Some(len)
    }

    /// Turns the coalesced headers before the next payload into the headers of this segment.
    pub fn finish(&mut self, frame: &mut [u8]) {
        let payload = frame.len() - self.tcp.payload();
        let is_last = self.done + payload == self.total;
        // No packet has more than 65,535 bytes.
        self.tcp.adapt(frame, self.index, self.done as u32, is_last);
        self.index += 1;
        self.done += payload;
    }
}
