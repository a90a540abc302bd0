//! Frames that came as one: segments of TCP that the sender's kernel never cut, or ours has put
//! together (GRO).

use crate::frames::{HEAD, Tcp};

/// A message of the kernel's, in two places.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    /// The first `held` bytes of its frame, or nothing where nobody asks for them any more,
    pub first: &'a [u8],
    pub held: usize,
    /// and the others.
    pub rest: &'a [u8],
}

impl Whole<'_> {
    /// Copies what lies from this byte on.
    ///
    /// # Panics
    /// There is less.
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

/// Where a message is cut, and how far that has come.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    tcp: Tcp,
    /// Payload of each frame but the last, and of all together.
    size: usize,
    total: usize,
    /// Frames that were made, and the payload in them.
    index: u16,
    done: usize,
    /// The headers of the whole.
    head: [u8; HEAD],
}

impl Cut {
    /// A frame of `len` bytes with that head is to be cut into pieces with so much payload, for
    /// buffers with that room. None: they are too long for those, since the MTU counts from the IP
    /// header on, and any number of tags may be before it.
    pub fn new(tcp: Tcp, size: u16, head: &[u8], len: usize, room: usize) -> Option<Cut> {
        let mut headers = [0; HEAD];
        headers[..tcp.payload()].copy_from_slice(&head[..tcp.payload()]);
        let total = len - tcp.payload();
        let cut = Cut { tcp, size: size.into(), total, index: 0, done: 0, head: headers };
        // None is longer than the first.
        cut.next_len().is_none_or(|longest| longest <= room).then_some(cut)
    }

    /// Bytes of the next frame; none if there is none any more.
    pub fn next_len(&self) -> Option<usize> {
        let left = self.total - self.done;
        (left > 0).then(|| self.tcp.payload() + left.min(self.size))
    }

    /// Whether the next frame is what lies at the beginning of the whole, of which `first` bytes
    /// are in one place, and has all of those.
    pub fn is_in_place(&self, first: usize) -> bool {
        self.done == 0 && self.next_len() == Some(first)
    }

    /// Writes the next frame to the beginning of a buffer; its length. None: there is none, or no
    /// room for it.
    pub fn write(&mut self, whole: Whole<'_>, room: &mut [u8]) -> Option<usize> {
        let len = self.next_len()?;
        let out = room.get_mut(..len)?;
        let (headers, payload) = out.split_at_mut(self.tcp.payload());
        headers.copy_from_slice(&self.head[..self.tcp.payload()]);
        whole.copy(self.tcp.payload() + self.done, payload);
        self.finish(out);
        Some(len)
    }

    /// Makes the headers of the whole, before the payload of the next frame, those of that frame.
    pub fn finish(&mut self, frame: &mut [u8]) {
        let payload = frame.len() - self.tcp.payload();
        let is_last = self.done + payload == self.total;
        // No packet has more than 65,535 bytes.
        self.tcp.adapt(frame, self.index, self.done as u32, is_last);
        self.index += 1;
        self.done += payload;
    }
}
