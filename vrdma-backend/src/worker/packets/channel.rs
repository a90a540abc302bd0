//! Inter-worker channels: rings for packets from one worker to another, and for their payloads
//! back.

use super::message::{Message, MessageHeader, MessageRest, Payload, Short};
use crate::port::Endpoint;
use crate::port::slots::{SlotReceiver, SlotSender, slots};
use std::sync::Arc;
use vrdma_transport::InterWorkerPart;
use vrdma_wire::num::Qpn;
use vrdma_wire::roce::{Packet, Path};

/// The number of packets that a channel holds.
pub(super) const DEPTH: usize = 1024;
/// The number of paths that both ends remember.
const PATHS: usize = 256;

/// The path of the previous packet to a QP, indexed by the last bits of the QPN.
///
/// The next packet to the QP leaves the path out if it is the same.
#[derive(Debug)]
struct Paths(Box<[Option<Path>]>);

/// The sender's end of a channel.
///
/// Ends of several workers are adjacent in memory when they are made, and each is written all the
/// time. The alignment keeps each in its own cache lines and pairs of lines.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct PacketSender {
    packets: SlotSender<MessageHeader, MessageRest>,
    read: SlotReceiver<Payload, ()>,
    paths: Paths,
    to: Arc<Endpoint>,
    /// Whether something was sent since the receiver was last woken.
    has_sent: bool,
}

/// The receiver's end of a channel.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct PacketReceiver {
    packets: SlotReceiver<MessageHeader, MessageRest>,
    read: SlotSender<Payload, ()>,
    /// The previous packet to a QP, indexed by the last bits of the QPN as in [`Paths`].
    ///
    /// The next packet is written over it, so that its path is copied only once.
    last: Box<[Option<Packet>]>,
    from: Arc<Endpoint>,
    /// Whether pinned memory was returned since its owner was last woken.
    has_returned: bool,
}

/// Creates a channel between the workers with these endpoints.
pub(super) fn channel(from: &Arc<Endpoint>, to: &Arc<Endpoint>) -> (PacketSender, PacketReceiver) {
    let (packets, received) = slots(DEPTH);
    let (returned, read) = slots(DEPTH);
    let outward = PacketSender { packets, read, paths: Paths::new(), to: to.clone(), has_sent: false };
    let inward = PacketReceiver {
        packets: received,
        read: returned,
        last: vec![None; PATHS].into(),
        from: from.clone(),
        has_returned: false,
    };
    (outward, inward)
}

impl Paths {
    fn new() -> Paths {
        Paths(vec![None; PATHS].into())
    }

    #[inline]
    fn to(&mut self, dest: Qpn) -> &mut Option<Path> {
        &mut self.0[dest.number() as usize % PATHS]
    }
}

impl PacketSender {
    /// Sends a packet with its payload. Returns false if it is lost for lack of room.
    ///
    /// The payload is in `short` or in `payload`, not in both.
    #[inline]
    pub fn push(
        &mut self,
        packet: &Packet,
        part: InterWorkerPart,
        short: Short,
        payload: Option<Payload>,
    ) -> bool {
        let head = MessageHeader::new(packet, part, short);
        let path = self.paths.to(packet.bth.dest);
        let is_whole = head.body.is_other() || path.as_ref() != Some(&packet.path);
        let rest = match is_whole {
            false => payload.map(MessageRest::Payload),
            true => Some(MessageRest::Whole(*packet, payload)),
        };
        let has_room = self.packets.push(head, rest);
        if is_whole && has_room {
            *path = Some(packet.path);
        }
        self.has_sent |= has_room;
        has_room
    }

    /// Whether the ring takes this number of packets.
    pub fn has_room(&mut self, packets: usize) -> bool {
        self.packets.has_room(packets)
    }

    /// Wakes the receiver if it sleeps and something was sent.
    pub fn publish(&mut self) {
        if self.has_sent {
            self.has_sent = false;
            self.to.wake();
        }
    }

    /// Takes back payloads that were read: buffers for reuse, and pinned memory, which is released.
    pub fn take_read(&mut self, free: &mut Vec<Box<[u8]>>) {
        let mut any = false;
        while let Some((payload, _)) = self.read.pop() {
            any = true;
            match payload {
                Payload::Buffer(bytes, _) => free.push(bytes),
                Payload::Pinned(pinned) => drop(pinned),
            }
        }
        if any {
            self.read.release();
        }
    }
}

impl PacketReceiver {
    /// Takes the next packet. Its payload is to be [returned](PacketReceiver::give_back).
    #[inline]
    pub fn pop(&mut self) -> Option<Message<'_>> {
        let (head, rest) = self.packets.pop()?;
        let last = &mut self.last[head.bth.dest.number() as usize % PATHS];
        let (packet, payload) = match rest {
            Some(MessageRest::Whole(packet, payload)) => (&*last.insert(packet), payload),
            Some(MessageRest::Payload(payload)) => (head.put_over(last), Some(payload)),
            None => (head.put_over(last), None),
        };
        Some(Message { packet, part: head.part(), short: head.short, payload })
    }

    /// Returns the payload of a packet that was read.
    ///
    /// Its owner drops it, because the owner has the payload's reference counts in its cache.
    #[inline]
    pub fn give_back(&mut self, payload: Option<Payload>) {
        if let Some(payload) = payload {
            self.has_returned |= matches!(payload, Payload::Pinned(_));
            // A payload that finds no room is dropped here.
            self.read.push(payload, None);
        }
    }

    /// Releases the slots in the ring. If pinned memory was returned, its owner is woken.
    ///
    /// Otherwise the owner could sleep and keep that memory pinned.
    pub fn release(&mut self) {
        self.packets.release();
        if self.has_returned {
            self.has_returned = false;
            self.from.wake();
        }
    }
}
