//! Turns messages from the kernel into frames.

use super::cut::{Cut, Whole};
use super::header::{HEADER, shift, to_virtio};
use super::socket::{PARTS, RawSocket, ReceivedFrame};
use crate::frames::{HEAD, VirtioOffload, complete};
use crate::port::dpdk::{Mbuf, MbufPool};
use crate::port::{BURST, Frame};
use std::io::{self, IoSliceMut};

/// The room for the rest of a message, behind its first buffer: the longest IP packet has as much.
const BEYOND: usize = 1 << 16;
/// The distance between the rests of two messages. It keeps them from all beginning in the same
/// lines of a cache.
const STRIDE: usize = BEYOND + 4096 + 64;
/// The length of a VLAN tag in bytes.
const TAG: usize = 4;
/// The position of the tag in a frame, behind the addresses.
const TAG_AT: usize = 12;

/// The counters of received messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct InboxCounters {
    /// Messages that were cut into several frames.
    pub cut: u64,
    /// Frames that are longer than the MTU allows, and messages whose segments would be.
    pub oversize: u64,
    /// Frames whose sender left an offload to be done that is not supported.
    pub unfinished: u64,
}

/// Messages that were received, and that become frames.
#[derive(Debug)]
pub struct Inbox {
    pool: MbufPool,
    mtu: usize,
    /// The longest frame without a tag. The buffer of a message holds so many of its bytes, and has
    /// room for a tag more.
    first: usize,
    /// For each message: the kernel's header. Next are its buffer, what the kernel reported, and
    /// the rest.
    headers: Box<[[u8; HEADER]; BURST]>,
    buffers: Vec<Option<Mbuf>>,
    said: [ReceivedFrame; BURST],
    rest: Vec<u8>,
    /// The next message to handle. `count` is the number of messages.
    next: usize,
    count: usize,
    /// How the next message is cut, if that has begun.
    cut: Option<Cut>,
    /// The number of frames made of these messages.
    made: usize,
    pub counters: InboxCounters,
}

impl Inbox {
    /// Creates an inbox. The pool's buffers have room for frames of this MTU with a tag.
    pub fn new(pool: MbufPool, mtu: u16) -> Inbox {
        Inbox {
            pool,
            mtu: mtu.into(),
            first: pool.room() - TAG,
            headers: Box::new([[0; HEADER]; BURST]),
            buffers: (0..BURST).map(|_| None).collect(),
            said: [ReceivedFrame::default(); BURST],
            // The system provides this memory as it is used.
            rest: vec![0; STRIDE * BURST],
            next: 0,
            count: 0,
            cut: None,
            made: 0,
            counters: InboxCounters::default(),
        }
    }

    /// Whether all messages have become frames.
    pub fn is_empty(&self) -> bool {
        self.next == self.count
    }

    /// Receives new messages, as many as there are. The earlier ones have all been handled.
    pub fn fetch(&mut self, socket: &RawSocket) {
        // About as many messages as become a burst. More would leave the caches before they are
        // handled.
        let each = self.made.div_ceil(self.count.max(1)).max(1);
        let wanted = (BURST / each).max(2);
        (self.next, self.count, self.made) = (0, 0, 0);
        let (pool, first) = (self.pool, self.first);
        let mut places: [[IoSliceMut<'_>; PARTS]; BURST] = std::array::from_fn(|_| {
            [IoSliceMut::new(&mut []), IoSliceMut::new(&mut []), IoSliceMut::new(&mut [])]
        });
        let mut ready = 0;
        let parts = self.headers.iter_mut().zip(&mut self.buffers).zip(self.rest.chunks_exact_mut(STRIDE));
        for (((header, buffer), rest), place) in parts.zip(&mut places).take(wanted) {
            if buffer.is_none() {
                *buffer = pool.allocate();
            }
            let Some(buffer) = buffer else { break };
            *place = [header, &mut buffer.room()[..first], &mut rest[..BEYOND]].map(IoSliceMut::new);
            ready += 1;
        }
        let said = &mut self.said;
        if ready == 0 {
            return;
        }
        let mut receive = || socket.receive(&mut places[..ready], |index, received| said[index] = received);
        self.count = match receive() {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            // An error of the interface is reported once, before the messages that arrived until
            // then.
            Err(_) => receive().unwrap_or(0),
        };
    }

    /// Appends frames until there are [`BURST`], or no more messages or buffers.
    pub fn take(&mut self, frames: &mut Vec<Frame>) {
        let before = frames.len();
        while frames.len() < BURST && !self.is_empty() {
            if self.cut.is_none() {
                self.open(frames);
            }
            if let Some(cut) = self.cut.take() {
                self.cut(cut, frames);
                if self.cut.is_some() {
                    break;
                }
            }
            if self.cut.is_none() {
                self.next += 1;
            }
        }
        self.made += frames.len() - before;
    }

    /// Handles the next message. It is a frame, is to be cut, or is dropped.
    fn open(&mut self, frames: &mut Vec<Frame>) {
        let ReceivedFrame { mut len, is_cut_off, tag } = self.said[self.next];
        let mut header = to_virtio(&self.headers[self.next]);
        let buffer = &mut self.buffers[self.next];
        let mut held = len.min(self.first);
        let bytes = buffer.as_mut().expect("a message came to its buffer").room();
        if let Some(tag) = tag.filter(|_| held >= TAG_AT) {
            bytes.copy_within(TAG_AT..held, TAG_AT + TAG);
            bytes[TAG_AT..TAG_AT + TAG].copy_from_slice(&tag);
            shift(&mut header, TAG as u16);
            (len, held) = (len + TAG, held + TAG);
        }
        if is_cut_off {
            self.counters.oversize += 1;
            return;
        }
        let head = &bytes[..held.min(HEAD)];
        match VirtioOffload::parse(&header, u64::MAX, head, len, self.mtu) {
            Ok(VirtioOffload::Segments { tcp, size }) => {
                self.cut = Cut::new(tcp, size, head, len, self.pool.room());
                let counters = &mut self.counters;
                *if self.cut.is_some() { &mut counters.cut } else { &mut counters.oversize } += 1;
            }
            Ok(_) if len > held => self.counters.oversize += 1,
            Ok(open) => {
                if let VirtioOffload::Checksum { start, offset } = open {
                    complete(&mut bytes[start.into()..len], offset.into(), 0);
                }
                let mut mbuf = buffer.take().expect("it was looked at");
                mbuf.set_len(len);
                frames.push(Frame::from_mbuf(mbuf));
            }
            Err(_) => self.counters.unfinished += 1,
        }
    }

    /// Makes frames of the next message. If there is no room for all, the rest is left for the next
    /// call.
    fn cut(&mut self, mut cut: Cut, frames: &mut Vec<Frame>) {
        let ReceivedFrame { len, tag, .. } = self.said[self.next];
        let tag = if tag.is_some() { TAG } else { 0 };
        let held = len.min(self.first) + tag;
        if cut.is_in_place(held) {
            let mut mbuf = self.buffers[self.next].take().expect("it was looked at");
            cut.finish(&mut mbuf.room()[..held]);
            mbuf.set_len(held);
            frames.push(Frame::from_mbuf(mbuf));
        }
        let first = self.buffers[self.next].as_mut().map_or(&[][..], |buffer| &buffer.room()[..held]);
        // If the buffer itself became the first frame, its bytes are not needed again. Positions in
        // `rest` count from the end of the buffer.
        let rest = &self.rest[self.next * STRIDE..][..len + tag - held];
        let whole = Whole { first, held, rest };
        while cut.next_len().is_some() {
            let mbuf = if frames.len() < BURST { self.pool.allocate() } else { None };
            let Some(mut mbuf) = mbuf else {
                self.cut = Some(cut);
                return;
            };
            let Some(len) = cut.write(whole, mbuf.room()) else {
                self.counters.oversize += 1;
                return;
            };
            mbuf.set_len(len);
            frames.push(Frame::from_mbuf(mbuf));
        }
    }
}
