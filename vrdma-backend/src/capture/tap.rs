//! A worker's end of all captures.

use super::CaptureId;
use super::filter::{Filter, FrameSource, MessageEnd, QpPeer};
use super::queue::{CaptureQueue, NewPacket};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::SystemTime;
use vrdma_transport::{Fault, PacketPayload};
use vrdma_wire::icrc;
use vrdma_wire::roce::{MAX_HEADERS, Packet};

/// A worker's end of all captures that run.
///
/// It is empty most of the time, and a worker asks only whether it is.
#[derive(Debug, Default)]
pub struct Tap {
    captures: Vec<Tapped>,
    /// Where a packet is put together. Guests' memory is read here, so that a read that takes long
    /// delays no other worker.
    scratch: RefCell<Vec<u8>>,
}

/// A capture, as a worker knows it.
#[derive(Clone, Debug)]
pub struct Tapped {
    id: CaptureId,
    filter: Arc<Filter>,
    /// Most bytes of a packet that are captured.
    snap: usize,
    queue: Arc<CaptureQueue>,
    /// What the queue pairs of the filter send to.
    peers: Vec<QpPeer>,
}

/// Where a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePlace<'a> {
    /// It came from other hosts.
    FromWire,
    /// It goes to other hosts, and to no guest that is known here.
    ToWire,
    /// This guest sent it, to others on this host or to all.
    Guest(&'a str),
}

/// How a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    /// Where.
    pub place: CapturePlace<'a>,
    /// What is to be told of it, beside its bytes.
    pub comment: Option<&'static str>,
}

/// A message within a worker: the guest and queue pair that sent it, and those that received it.
/// `to` is `None` for a multicast group.
#[derive(Clone, Copy, Debug)]
pub struct CapturedMessage<'a> {
    /// Who sent it.
    pub from: MessageEnd<'a>,
    /// Who received it.
    pub to: Option<MessageEnd<'a>>,
}

impl Tap {
    /// Adds a capture.
    pub fn begin(&mut self, tapped: Tapped) {
        self.captures.push(tapped);
    }

    /// Removes a capture.
    pub fn end(&mut self, id: CaptureId) {
        self.captures.retain(|tapped| tapped.id != id);
        if self.captures.is_empty() {
            *self.scratch.get_mut() = Vec::new();
        }
    }

    /// Whether any capture runs.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        !self.captures.is_empty()
    }

    /// Returns how many bytes of a packet were put together at most.
    #[cfg(test)]
    pub fn copied(&self) -> usize {
        self.scratch.borrow().len()
    }

    /// Returns the captures, to tell them what they need to know of guests.
    pub fn captures(&mut self) -> impl Iterator<Item = &mut Tapped> {
        self.captures.iter_mut()
    }

    /// Takes a frame.
    #[cold]
    pub fn frame(&self, seen: Seen<'_>, source: FrameSource<'_>, frame: &[u8]) {
        for tapped in self.wanting(|tapped| tapped.filter.takes_frame(source, frame, &tapped.peers)) {
            tapped.take(seen, frame.len(), &frame[..frame.len().min(tapped.snap)]);
        }
    }

    /// Whether a capture may take a frame that begins with these bytes. If not, it is not copied.
    #[cold]
    pub fn wants_frame(&self, source: FrameSource<'_>, head: &[u8]) -> bool {
        self.wanting(|tapped| tapped.filter.may_take_frame(source, head)).next().is_some()
    }

    /// Takes a frame of this length that `fill` writes.
    #[cold]
    pub fn frame_made_by(
        &self,
        seen: Seen<'_>,
        source: FrameSource<'_>,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let mut scratch = self.scratch.borrow_mut();
        let frame = room(&mut scratch, length);
        fill(frame);
        self.frame(seen, source, frame);
    }

    /// Takes a packet of the engine.
    #[cold]
    pub fn packet(&self, seen: Seen<'_>, packet: &Packet, payload: &dyn PacketPayload) {
        for tapped in self.wanting(|tapped| tapped.filter.takes_packet(packet, &tapped.peers)) {
            tapped.take_packet(&mut self.scratch.borrow_mut(), seen, packet, payload);
        }
    }

    /// Takes a packet of the engine that the switch drops.
    #[cold]
    pub fn dropped_packet(&self, seen: Seen<'_>, packet: &Packet, payload: &dyn PacketPayload) {
        let takes = |tapped: &Tapped| tapped.filter.takes_dropped_packet(packet, &tapped.peers);
        for tapped in self.wanting(takes) {
            tapped.take_packet(&mut self.scratch.borrow_mut(), seen, packet, payload);
        }
    }

    /// Whether a capture may take messages between these queue pairs of the worker.
    #[cold]
    pub fn wants(&self, message: CapturedMessage<'_>) -> bool {
        self.wanting(|tapped| tapped.filter.may_take_message(message.from, message.to)).next().is_some()
    }

    /// Takes a packet that a message within the worker would have been.
    #[cold]
    pub fn message(&self, message: CapturedMessage<'_>, packet: &Packet, payload: &dyn PacketPayload) {
        let seen =
            Seen { place: CapturePlace::Guest(message.from.guest), comment: Some("same host, one copy") };
        let takes = |tapped: &Tapped| tapped.filter.takes_message(message.from, message.to, &packet.path);
        for tapped in self.wanting(takes) {
            tapped.take_packet(&mut self.scratch.borrow_mut(), seen, packet, payload);
        }
    }

    fn wanting(&self, takes: impl Fn(&Tapped) -> bool) -> impl Iterator<Item = &Tapped> {
        self.captures.iter().filter(move |tapped| !tapped.queue.is_over() && takes(tapped))
    }
}

impl Tapped {
    /// Returns what a worker needs of a capture.
    pub fn new(id: CaptureId, filter: Filter, snap: Option<u32>, queue: Arc<CaptureQueue>) -> Tapped {
        let snap = snap.map_or(usize::MAX, |snap| snap as usize);
        Tapped { id, filter: Arc::new(filter), snap, queue, peers: Vec::new() }
    }

    /// Returns the number of the capture.
    pub fn id(&self) -> CaptureId {
        self.id
    }

    /// Returns what it takes.
    pub fn capture_filter(&self) -> &Arc<Filter> {
        &self.filter
    }

    /// Sets what the queue pairs of the filter send to.
    pub fn set_peers(&mut self, peers: impl Iterator<Item = QpPeer>) {
        self.peers.clear();
        self.peers.extend(peers);
    }

    fn take_packet(
        &self,
        scratch: &mut Vec<u8>,
        seen: Seen<'_>,
        packet: &Packet,
        payload: &dyn PacketPayload,
    ) {
        let whole = packet.frame_len(payload.length());
        let kept = whole.min(self.snap);
        let frame = room(scratch, kept.max(MAX_HEADERS));
        // Memory that has gone meanwhile has no bytes to show.
        match lay_out(frame, packet, payload, (whole, kept)) {
            Ok(()) => self.take(seen, whole, &frame[..kept]),
            Err(Fault) => self.queue.miss(),
        }
    }

    /// Takes the first bytes of a packet of `length` bytes, if there is room.
    fn take(&self, seen: Seen<'_>, length: usize, bytes: &[u8]) {
        let (guest, is_inbound) = match seen.place {
            CapturePlace::FromWire => (None, true),
            CapturePlace::ToWire => (None, false),
            CapturePlace::Guest(name) => (Some(name), false),
        };
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let packet = NewPacket { guest, is_inbound, at, length, comment: seen.comment };
        self.queue.put(&packet, bytes);
    }
}

/// Returns room for so many bytes.
fn room(scratch: &mut Vec<u8>, length: usize) -> &mut [u8] {
    if scratch.len() < length {
        scratch.resize(length, 0);
    }
    &mut scratch[..length]
}

/// Lays the first `kept` bytes of a packet out, whose frame has `whole` bytes.
fn lay_out(
    frame: &mut [u8],
    packet: &Packet,
    payload: &dyn PacketPayload,
    (whole, kept): (usize, usize),
) -> Result<(), Fault> {
    let headers = packet.emit(payload.length(), frame);
    let body = kept.saturating_sub(headers).min(payload.length());
    payload.read_first(&mut frame[headers..headers + body])?;
    if kept == whole {
        // The padding is 0, whatever the packet before had there.
        frame[headers + body..whole].fill(0);
        icrc::seal(&mut frame[..whole]);
    } else if kept > headers + body {
        frame[headers + body..kept].fill(0);
    }
    Ok(())
}
