//! Inter-worker packets: RoCE packets between RDMA functions of different workers.
//!
//! They are passed without building frames, by a ring for each direction. Those of reliable
//! connections may carry pinned memory of the sending guest, from which the receiving worker
//! copies. Everything else goes by frames (`port/worker_port`), as does all traffic to a guest
//! without an RDMA function.

mod channel;
mod message;

use crate::memory::{MrMemory, PinGate};
use crate::port::{BURST, Endpoint, TURN};
use channel::{PacketReceiver, PacketSender, channel};
use message::{Payload, SHORT, Short};
use std::collections::HashMap;
use std::sync::Arc;
use vrdma_transport::{
    self as transport, DeviceId, Engine, Fault, InterWorkerPacket, InterWorkerPart, Piece, Pieces, Sink, Way,
};
use vrdma_wire::num::{Mac, Mtu};
use vrdma_wire::roce::Packet;

/// Shorter payloads are copied, because pinning memory takes longer.
const MIN_PINNED: usize = 1024;
/// How many bytes one round copies, approximately.
///
/// Senders learn of it at the end of the round. They send more meanwhile.
const TURN_BYTES: usize = 256 << 10;
/// The length of a buffer in bytes: the payload of the longest packet.
const BUFFER: usize = Mtu::M4096.bytes() as usize;
/// The number of addresses that are found without a lookup in the table of all.
const FOUND: usize = 64;

/// A worker's ends of all inter-worker rings for packets.
#[derive(Debug)]
pub struct PacketPort {
    /// The workers of guests with a RoCE function, by MAC address.
    homes: Arc<HashMap<Mac, usize>>,
    /// Recent lookups in `homes`, indexed by the last bits of the address.
    found: Box<[(Mac, Option<usize>)]>,
    /// The channels to each other worker.
    outward: Vec<Option<PacketSender>>,
    /// The channels from each other worker.
    inward: Vec<Option<PacketReceiver>>,
    /// The worker whose turn is next.
    next: usize,
    /// The gate of each device.
    gates: Vec<Arc<PinGate>>,
    /// Buffers for payloads that are copied. As many are made as were ever in use at once.
    free: Vec<Box<[u8]>>,
    /// Counters of packets.
    pub counters: PacketCounters,
}

/// Counters of inter-worker packets. [`crate::stats::WorkerStats`] describes them.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "said there")]
pub struct PacketCounters {
    pub sent: u64,
    pub received: u64,
    pub pinned: u64,
    pub lost: u64,
}

/// Creates the ports of workers with these endpoints. `homes` gives each guest's worker.
pub fn packet_ports(endpoints: &[Arc<Endpoint>], homes: HashMap<Mac, usize>) -> Vec<PacketPort> {
    let homes = Arc::new(homes);
    let none = |_: &Arc<Endpoint>| PacketPort {
        homes: homes.clone(),
        found: vec![(Mac::default(), None); FOUND].into(),
        outward: endpoints.iter().map(|_| None).collect(),
        inward: endpoints.iter().map(|_| None).collect(),
        next: 0,
        gates: Vec::new(),
        free: Vec::new(),
        counters: PacketCounters::default(),
    };
    let mut ports: Vec<PacketPort> = endpoints.iter().map(none).collect();
    for from in 0..endpoints.len() {
        for (to, endpoint) in endpoints.iter().enumerate().filter(|&(to, _)| to != from) {
            let (outward, inward) = channel(&endpoints[from], endpoint);
            ports[from].outward[to] = Some(outward);
            ports[to].inward[from] = Some(inward);
        }
    }
    ports
}

impl PacketPort {
    /// Adds a device. `gate` controls access to its pinned memory.
    ///
    /// Ids are those of removed devices, or follow the last one.
    pub fn add(&mut self, id: DeviceId, gate: Arc<PinGate>) {
        let index = id.0 as usize;
        if index == self.gates.len() {
            self.gates.push(gate);
        } else {
            self.gates[index] = gate;
        }
    }

    /// Sets the workers of guests with a RoCE function, by MAC address.
    pub fn set_homes(&mut self, homes: Arc<HashMap<Mac, usize>>) {
        self.homes = homes;
        self.found.fill((Mac::default(), None));
    }

    /// Returns the channel to this guest's worker, if that is another worker.
    fn channel(&mut self, dst: Mac) -> Option<&mut PacketSender> {
        let found = &mut self.found[usize::from(dst.0[5]) % FOUND];
        if found.0 != dst {
            *found = (dst, self.homes.get(&dst).copied());
        }
        self.outward[found.1?].as_mut()
    }

    /// Describes the way to a guest of another worker that has a ring. Returns `None` for other
    /// addresses.
    pub fn way_to(&mut self, dst: Mac) -> Option<Way> {
        let has_room = self.channel(dst)?.has_room(TURN);
        Some(Way { has_room, stays_here: true, is_near: true })
    }

    /// Whether a payload of more than a path MTU can be sent in one packet.
    pub fn carries(payload: &Pieces<'_, MrMemory>) -> bool {
        matches!(only(payload), Some((region, ..)) if region.may_pin())
    }

    /// Sends a packet of this device, as defined by
    /// [`vrdma_transport::PacketOutlet::send_inter_worker`].
    ///
    /// # Errors
    /// The payload's memory does not exist any more.
    pub fn send(
        &mut self,
        device: DeviceId,
        packet: &Packet,
        part: InterWorkerPart,
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
        let Some(channel) = self.channel(packet.path.dst_mac) else {
            unreachable!("asked for where the way is near")
        };
        match channel.push(packet, part, short, payload) {
            true => self.counters.sent += 1,
            false => self.counters.lost += 1,
        }
        Ok(())
    }

    /// Makes a payload that does not fit the first cache line: pinned memory or a copy.
    fn payload(
        &mut self,
        device: DeviceId,
        part: InterWorkerPart,
        pieces: &Pieces<'_, MrMemory>,
        len: usize,
    ) -> Result<Payload, Fault> {
        if part.may_pin
            && len >= MIN_PINNED
            && let Some((region, offset, length)) = only(pieces)
            && let Some(pinned) = region.pin(offset, length, &self.gates[device.0 as usize])
        {
            self.counters.pinned += 1;
            return Ok(Payload::Pinned(pinned));
        }
        if len > BUFFER {
            // The memory went away since `carries` was called.
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

    /// Wakes workers that sleep and were sent something.
    pub fn publish(&mut self) {
        self.outward.iter_mut().flatten().for_each(PacketSender::publish);
    }
}

/// Returns the payload's segment of memory, if it has only one segment.
fn only<'a>(payload: &Pieces<'a, MrMemory>) -> Option<(&'a MrMemory, u64, u32)> {
    let mut pieces = payload.iter();
    match (pieces.next(), pieces.next()) {
        (Some(Piece::Memory { region, offset, length }), None) => Some((region, offset, length)),
        _ => None,
    }
}

impl PacketPort {
    /// Delivers packets from other workers to the engine. Returns true if there were any.
    pub fn receive(
        &mut self,
        now: transport::Instant,
        engine: &mut Engine<MrMemory>,
        sink: &mut impl Sink,
    ) -> bool {
        self.receive_by(&mut |packet| engine.handle_inter_worker(now, packet, sink))
    }

    /// Passes packets from other workers to `handle`. Returns true if there were any.
    pub fn receive_by(&mut self, handle: &mut impl FnMut(&InterWorkerPacket<'_, MrMemory>)) -> bool {
        self.outward.iter_mut().flatten().for_each(|channel| channel.take_read(&mut self.free));
        let (mut taken, mut bytes) = (0, 0);
        let workers = self.inward.len();
        for number in (self.next..workers).chain(0..self.next) {
            let Some(channel) = &mut self.inward[number] else { continue };
            let before = taken;
            while taken < BURST
                && bytes < TURN_BYTES
                && let Some(message) = channel.pop()
            {
                taken += 1;
                bytes += message.len();
                handle(&message.packet());
                let payload = message.payload;
                channel.give_back(payload);
            }
            if taken != before {
                channel.release();
            }
        }
        self.next = if self.next + 1 < workers { self.next + 1 } else { 0 };
        self.counters.received += taken as u64;
        taken != 0
    }
}

#[cfg(test)]
mod tests;
