//! A link between hosts that loses, duplicates, reorders, corrupts and delays frames, by a seed.

use crate::memory::Mem;
use crate::rng::Rng;
use crate::switch::Switch;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use vrdma_transport::{Instant, Pieces, write_frame};
use vrdma_wire::num::{Gid, Mac};
use vrdma_wire::roce::Packet;

/// The faults of a link, in millionths of all frames, and its delays.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub loss: u32,
    pub duplication: u32,
    pub reordering: u32,
    pub corruption: u32,
    /// A stranger sends a packet of its own to the same QP, with the same numbers.
    pub forgery: u32,
    /// The delay of every frame in nanoseconds, and the maximum additional delay.
    pub delay: u64,
    pub jitter: u64,
    /// The maximum additional delay of a reordered or duplicated frame.
    pub late: u64,
    /// Picoseconds that a byte takes to send.
    pub pace: u64,
}

impl Faults {
    /// Returns whether frames may be lost.
    pub fn lossy(&self) -> bool {
        self.loss + self.corruption > 0
    }

    /// Returns whether all frames arrive once and in order.
    pub fn perfect(&self) -> bool {
        self.loss + self.duplication + self.reordering + self.corruption == 0
    }
}

/// The number of frames in a host's transmit ring at which it has no more room.
const RING: u64 = 16;

/// A frame in flight: its arrival time, its sequence number, and the sending host.
type Flight = Reverse<(Instant, u64, usize, Vec<u8>)>;

/// The link. All hosts receive every frame of other hosts, and each takes those for its MAC
/// address.
pub struct Link {
    pub faults: Faults,
    /// All frames are lost.
    pub dark: bool,
    /// A switch behind the link, with queues before the hosts.
    pub switch: Option<Switch>,
    /// The number of frames that were lost or corrupted, without those that the switch drops.
    pub lost: u64,
    rng: Rng,
    flying: BinaryHeap<Flight>,
    /// Frames in the queues of the switch, with the times at which they have left.
    queued: BinaryHeap<Flight>,
    sent: u64,
    /// When the last frame of each host has left it.
    left: Vec<Instant>,
    last_arrival: Instant,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
}

impl Link {
    pub fn new(hosts: usize, faults: Faults, rng: Rng) -> Link {
        Link {
            faults,
            dark: false,
            switch: None,
            lost: 0,
            rng,
            flying: BinaryHeap::new(),
            queued: BinaryHeap::new(),
            sent: 0,
            left: vec![Instant(0); hosts],
            last_arrival: Instant(0),
            spare: Vec::new(),
        }
    }

    /// Adds a host. Returns its number.
    pub fn add_host(&mut self) -> usize {
        self.left.push(Instant(0));
        self.left.len() - 1
    }

    /// Returns when a host may send again, if not now.
    pub fn blocked(&self, host: usize, now: Instant) -> Option<Instant> {
        let ring = RING * 1500 * self.faults.pace / 1000;
        let at = Instant(self.left[host].0.saturating_sub(ring));
        Some(at).filter(|at| *at > now)
    }

    /// Returns a buffer for a frame.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub fn recycle(&mut self, frame: Vec<u8>) {
        self.spare.push(frame);
    }

    /// Sends a frame. Returns what happens to it, in words.
    pub fn send(&mut self, now: Instant, from: usize, mut frame: Vec<u8>) -> &'static str {
        let taken = frame.len() as u64 * self.faults.pace / 1000;
        let leaves = Instant(self.left[from].0.max(now.0) + taken);
        self.left[from] = leaves;
        let Faults { loss, duplication, reordering, corruption, forgery, delay, jitter, late, .. } =
            self.faults;
        if self.dark {
            self.lost += 1;
            self.recycle(frame);
            return "lost in the dark";
        }
        if self.rng.ppm(loss) {
            self.lost += 1;
            self.recycle(frame);
            return "lost";
        }
        let arrives = Instant(leaves.0 + delay + self.rng.range(0..=jitter));
        if self.rng.ppm(forgery) {
            let forged = forged(&frame, &mut self.rng);
            self.fly(arrives, from, forged);
        }
        if self.rng.ppm(duplication) {
            let copy = frame.clone();
            let again = arrives.0 + self.rng.range(0..=late);
            self.fly(Instant(again), from, copy);
        }
        let mut fate = "sent";
        if self.rng.ppm(corruption) {
            let at = self.rng.index(frame.len());
            frame[at] ^= 1 << self.rng.range(0..=7);
            self.lost += 1;
            fate = "bent";
        }
        if self.rng.ppm(reordering) {
            let at = Instant(arrives.0 + self.rng.range(1..=late.max(1)));
            self.fly(at, from, frame);
            return "late";
        }
        self.last_arrival = self.last_arrival.max(arrives);
        self.fly(self.last_arrival, from, frame);
        fate
    }

    fn fly(&mut self, arrives: Instant, from: usize, frame: Vec<u8>) {
        self.sent += 1;
        self.flying.push(Reverse((arrives, self.sent, from, frame)));
    }

    /// Returns when the next frame arrives, at a host or at the switch.
    pub fn next(&self) -> Option<Instant> {
        let first = |flights: &BinaryHeap<Flight>| flights.peek().map(|Reverse((at, ..))| *at);
        first(&self.flying).into_iter().chain(first(&self.queued)).min()
    }

    /// Passes the frames that have arrived at the switch to its queues.
    fn enqueue(&mut self, now: Instant) {
        let Some(switch) = &mut self.switch else { return };
        while let Some(Reverse((at, ..))) = self.flying.peek()
            && *at <= now
        {
            let Reverse((at, _, from, mut frame)) = self.flying.pop().expect("it was looked at");
            self.sent += 1;
            match switch.take(at, &mut frame) {
                Some(leaves) => self.queued.push(Reverse((leaves, self.sent, from, frame))),
                None => self.spare.push(frame),
            }
        }
    }

    /// Takes the next frame that has arrived. Returns its sender and its destination MAC address
    /// too.
    pub fn arrived(&mut self, now: Instant) -> Option<(usize, Mac, Vec<u8>)> {
        self.enqueue(now);
        let flights = if self.switch.is_some() { &mut self.queued } else { &mut self.flying };
        flights.peek().filter(|Reverse((at, ..))| *at <= now)?;
        let Reverse((_, _, from, frame)) = flights.pop()?;
        let mac = Mac(frame[..6].try_into().expect("a frame has a destination"));
        Some((from, mac, frame))
    }
}

/// Returns whether an address belongs to a stranger.
pub fn is_forged(gid: Gid) -> bool {
    gid == STRANGERS[0] || gid == STRANGERS[1]
}

const STRANGERS: [Gid; 2] = [Gid::from_ipv4([10, 0, 0, 200]), Gid([0xfd; 16])];

/// Returns a packet with the same numbers and other content, from a stranger's address.
fn forged(frame: &[u8], rng: &mut Rng) -> Vec<u8> {
    let parsed = Packet::parse(frame).expect("engines send packets");
    let mut packet = parsed.packet;
    packet.path.src = STRANGERS[usize::from(!packet.path.is_ipv4())];
    packet.bth.psn = packet.bth.psn.add(rng.range(0..=1) as u32);
    let mut payload = parsed.payload.to_vec();
    rng.fill(&mut payload);
    let mut forged = vec![0; packet.frame_len(payload.len())];
    write_frame::<Mem>(&packet, &Pieces::bytes(&payload), &mut forged).expect("bytes are there");
    forged
}
