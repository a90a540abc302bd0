//! Packets between RDMA functions of different workers: they go as they are, through a ring for
//! each direction, those of reliable connections with memory of the sending guest that the
//! receiving worker copies from. All else, and all for a guest without an RDMA function, is frames
//! (`port/mesh`).

mod lane;
mod parcel;

use crate::memory::{LoanGate, MrMemory};
use crate::port::{BURST, Station, TURN};
use lane::{Inward, Outward, lane};
use parcel::{Payload, SHORT, Short};
use std::collections::HashMap;
use std::sync::Arc;
use vrdma_transport::{
    self as transport, DeviceId, Engine, Fault, NearPacket, NearPart, Piece, Pieces, Sink, Way,
};
use vrdma_wire::num::{Mac, Mtu};
use vrdma_wire::roce::Packet;

/// Shorter payloads are copied: to lend memory takes longer.
const MIN_LENT: usize = 1024;
/// Bytes that one turn copies, about: their senders learn of it at its end, and send more
/// meanwhile.
const TURN_BYTES: usize = 256 << 10;
/// Bytes of a buffer: of the longest packet.
const BUFFER: usize = Mtu::M4096.bytes() as usize;
/// Addresses that are found without a look in the table of all.
const FOUND: usize = 64;

/// One worker's ends of all rings.
#[derive(Debug)]
pub struct NearPort {
    /// The workers of guests with an RDMA function of RoCE.
    homes: Arc<HashMap<Mac, usize>>,
    /// What was found there lately, by each address' last bits.
    found: Box<[(Mac, Option<usize>)]>,
    /// To each other worker,
    outward: Vec<Option<Outward>>,
    /// and from it.
    inward: Vec<Option<Inward>>,
    /// Whose turn it is.
    next: usize,
    /// Of each device.
    gates: Vec<Arc<LoanGate>>,
    /// Buffers for payloads that are copied. As many are made as were ever on their way at once.
    free: Vec<Box<[u8]>>,
    /// What it did.
    pub counters: NearCounters,
}

/// See [`crate::stats::WorkerStats`].
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "said there")]
pub struct NearCounters {
    pub sent: u64,
    pub received: u64,
    pub lent: u64,
    pub lost: u64,
}

/// The ports of workers with these stations, of guests that are there.
pub fn near_ports(stations: &[Arc<Station>], homes: HashMap<Mac, usize>) -> Vec<NearPort> {
    let homes = Arc::new(homes);
    let none = |_: &Arc<Station>| NearPort {
        homes: homes.clone(),
        found: vec![(Mac::default(), None); FOUND].into(),
        outward: stations.iter().map(|_| None).collect(),
        inward: stations.iter().map(|_| None).collect(),
        next: 0,
        gates: Vec::new(),
        free: Vec::new(),
        counters: NearCounters::default(),
    };
    let mut ports: Vec<NearPort> = stations.iter().map(none).collect();
    for from in 0..stations.len() {
        for (to, station) in stations.iter().enumerate().filter(|&(to, _)| to != from) {
            let (outward, inward) = lane(&stations[from], station);
            ports[from].outward[to] = Some(outward);
            ports[to].inward[from] = Some(inward);
        }
    }
    ports
}

impl NearPort {
    /// A device was added, whose loans go through this gate: the next one.
    pub fn add(&mut self, id: DeviceId, gate: Arc<LoanGate>) {
        assert_eq!(id.0 as usize, self.gates.len(), "devices are added in their order, and stay");
        self.gates.push(gate);
    }

    /// The ring to the worker of this guest, if it is of another.
    fn lane(&mut self, dst: Mac) -> Option<&mut Outward> {
        let found = &mut self.found[usize::from(dst.0[5]) % FOUND];
        if found.0 != dst {
            *found = (dst, self.homes.get(&dst).copied());
        }
        self.outward[found.1?].as_mut()
    }

    /// The way to a guest of another worker that packets go to by a ring; none to others.
    pub fn way_to(&mut self, dst: Mac) -> Option<Way> {
        let has_room = self.lane(dst)?.has_room(TURN);
        Some(Way { has_room, stays_here: true, is_near: true })
    }

    /// Whether a payload of more than a path MTU can go.
    pub fn carries(payload: &Pieces<'_, MrMemory>) -> bool {
        matches!(only(payload), Some((region, ..)) if region.may_loan())
    }

    /// Sends a packet of this device, as [`vrdma_transport::PacketOutlet::send_near`] has it.
    ///
    /// # Errors
    /// The payload's memory is not there any more.
    pub fn send(
        &mut self,
        device: DeviceId,
        packet: &Packet,
        part: NearPart,
        pieces: &Pieces<'_, MrMemory>,
    ) -> Result<(), Fault> {
        let mut short = Short::default();
        let payload = match pieces.len() {
            len @ ..=SHORT => {
                short.len = len as u8;
                pieces.read(&mut short.bytes[..len])?;
                None
            }
            len => Some(self.payload(device, part, pieces, len)?),
        };
        let Some(lane) = self.lane(packet.path.dst_mac) else {
            unreachable!("asked for where the way is near")
        };
        match lane.push(packet, part, short, payload) {
            true => self.counters.sent += 1,
            false => self.counters.lost += 1,
        }
        Ok(())
    }

    /// A payload that the first line has no room for.
    fn payload(
        &mut self,
        device: DeviceId,
        part: NearPart,
        pieces: &Pieces<'_, MrMemory>,
        len: usize,
    ) -> Result<Payload, Fault> {
        if part.may_loan
            && len >= MIN_LENT
            && let Some((region, offset, length)) = only(pieces)
            && let Some(lent) = region.lend(offset, length, &self.gates[device.0 as usize])
        {
            self.counters.lent += 1;
            return Ok(Payload::Lent(lent));
        }
        if len > BUFFER {
            // Its memory went away since `carries` was asked.
            return Err(Fault);
        }
        let mut buffer = self.buffer();
        match pieces.read(&mut buffer[..len]) {
            Ok(()) => Ok(Payload::Buffer(buffer, len as u32)),
            Err(Fault) => {
                self.free.push(buffer);
                Err(Fault)
            }
        }
    }

    fn buffer(&mut self) -> Box<[u8]> {
        self.free.pop().unwrap_or_else(|| vec![0; BUFFER].into())
    }

    /// Wakes those that sleep and have been sent something.
    pub fn publish(&mut self) {
        self.outward.iter_mut().flatten().for_each(Outward::publish);
    }
}

/// The one stretch of memory that a payload is, if it is one.
fn only<'a>(payload: &Pieces<'a, MrMemory>) -> Option<(&'a MrMemory, u64, u32)> {
    let mut pieces = payload.iter();
    match (pieces.next(), pieces.next()) {
        (Some(Piece::Memory { region, offset, length }), None) => Some((region, offset, length)),
        _ => None,
    }
}

impl NearPort {
    /// Hands packets that other workers sent to the engine; true if there were any.
    pub fn receive(
        &mut self,
        now: transport::Instant,
        engine: &mut Engine<MrMemory>,
        sink: &mut impl Sink,
    ) -> bool {
        self.receive_by(&mut |packet| engine.handle_near(now, packet, sink))
    }

    /// The same, handed over by `handle`.
    pub fn receive_by(&mut self, handle: &mut impl FnMut(&NearPacket<'_, MrMemory>)) -> bool {
        self.outward.iter_mut().flatten().for_each(|lane| lane.take_read(&mut self.free));
        let (mut taken, mut bytes) = (0, 0);
        let workers = self.inward.len();
        for number in (self.next..workers).chain(0..self.next) {
            let Some(lane) = &mut self.inward[number] else { continue };
            let before = taken;
            while taken < BURST
                && bytes < TURN_BYTES
                && let Some(parcel) = lane.pop()
            {
                taken += 1;
                bytes += parcel.len();
                handle(&parcel.packet());
                let payload = parcel.payload;
                lane.give_back(payload);
            }
            if taken != before {
                lane.release();
            }
        }
        self.next = if self.next + 1 < workers { self.next + 1 } else { 0 };
        self.counters.received += taken as u64;
        taken != 0
    }
}

#[cfg(test)]
mod tests;
