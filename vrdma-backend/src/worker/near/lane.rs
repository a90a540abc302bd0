//! The way of packets from one worker to another, and of their empty buffers back.

use super::parcel::{Parcel, Payload};
use crate::port::Station;
use crate::port::ring::{self, Receiver, Sender};
use std::sync::Arc;

/// Packets that a lane holds.
pub(super) const DEPTH: usize = 1024;

/// The sender's end.
#[derive(Debug)]
pub(super) struct Outward {
    parcels: Sender<Parcel>,
    empty: Receiver<Box<[u8]>>,
    to: Arc<Station>,
    /// Something was put in that was not published yet.
    unpublished: bool,
}

/// The receiver's end.
#[derive(Debug)]
pub(super) struct Inward {
    parcels: Receiver<Parcel>,
    empty: Sender<Box<[u8]>>,
    /// Buffers were given back that their owner does not see yet.
    gave_back: bool,
}

/// A lane to the worker with this station.
pub(super) fn lane(to: &Arc<Station>) -> (Outward, Inward) {
    let (parcels, received) = ring::ring(DEPTH);
    let (returned, empty) = ring::ring(DEPTH);
    let outward = Outward { parcels, empty, to: to.clone(), unpublished: false };
    (outward, Inward { parcels: received, empty: returned, gave_back: false })
}

impl Outward {
    /// Sends a packet; false if it is lost, for want of room.
    pub fn push(&mut self, parcel: Parcel) -> bool {
        let has_room = self.parcels.push(parcel).is_ok();
        self.unpublished |= has_room;
        has_room
    }

    /// Whether it takes so many packets.
    pub fn has_room(&mut self, packets: usize) -> bool {
        self.parcels.has_room(packets)
    }

    /// Lets the receiver see what was sent, and wakes it if it sleeps.
    pub fn publish(&mut self) {
        if std::mem::take(&mut self.unpublished) {
            self.parcels.publish();
            self.to.wake();
        }
    }

    /// Takes buffers that came back.
    pub fn take_empty(&mut self, free: &mut Vec<Box<[u8]>>) {
        while let Some(buffer) = self.empty.pop() {
            free.push(buffer);
        }
        self.empty.release();
    }
}

impl Inward {
    /// Takes the next packet.
    pub fn pop(&mut self) -> Option<Parcel> {
        self.parcels.pop()
    }

    /// A packet was read: gives its buffer back.
    pub fn give_back(&mut self, parcel: Parcel) {
        if let Payload::Buffer(bytes, _) = parcel.payload {
            // What finds no room is freed: the sender will make another.
            self.gave_back |= self.empty.push(bytes).is_ok();
        }
    }

    /// Gives the places in the ring, and buffers, back.
    pub fn release(&mut self) {
        self.parcels.release();
        if std::mem::take(&mut self.gave_back) {
            self.empty.publish();
        }
    }
}
