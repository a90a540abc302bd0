//! Two engines, each with an RC QP that is connected to the other's, and the ports between them.
//! All run in this thread. Guest rings are no part of it.

use super::account::{Stage, within};
use super::memory::{MEMORY, Memory};
use super::peer::{Done, Peer};
use crate::load::Load;
use anyhow::{Result, ensure};
use std::cell::RefCell;
use std::time::Instant as Clock;
use vrdma_backend::port::{Burst, External, Port, TURN};
use vrdma_transport::{Engine, Fault, Instant, Outlet, PacketOutlet, Piece, Pieces, Region, StreamOutlet};
use vrdma_wire::icrc::{self, Icrc};
use vrdma_wire::num::Mtu;
use vrdma_wire::roce::{Packet, pad};

/// Payloads below this size in bytes are copied into their frames, as in the daemon.
const MIN_ATTACHED: usize = 1024;
/// Bytes of an attached payload that are copied at once, to compute the ICRC.
const COPIED: usize = 2048;
/// Number of rounds for which one reading of the clock is good enough.
const CLOCK_TURNS: u32 = 16;

/// The outlet to a port, which sends packets as the daemon does.
struct Out<'a, const ACCOUNT: bool> {
    port: &'a mut Port,
    /// The pieces of memory that are attached to the current frame.
    attached: &'a mut Vec<External>,
}

impl<const ACCOUNT: bool> Outlet for Out<'_, ACCOUNT> {
    fn has_room(&mut self) -> bool {
        // This sends a burst if a whole one is queued.
        within::<ACCOUNT, _>(Stage::Port, || self.port.has_room())
    }
}

impl<const ACCOUNT: bool> PacketOutlet<Memory<ACCOUNT>> for Out<'_, ACCOUNT> {
    fn send(&mut self, packet: &Packet, payload: &Pieces<'_, Memory<ACCOUNT>>) -> Result<(), Fault> {
        let may_attach = self.port.capabilities().external && payload.len() >= MIN_ATTACHED;
        let frame = within::<ACCOUNT, _>(Stage::Port, || self.port.transmit(packet.frame_len(payload.len())));
        let Some(mut frame) = frame else { return Ok(()) };
        let headers = within::<ACCOUNT, _>(Stage::Build, || packet.emit(payload.len(), frame.buf()));
        if !may_attach {
            // These are the parts of `write_frame`.
            let end = headers + payload.len();
            let sealed = end + pad(payload.len()) + icrc::LEN;
            payload.read(&mut frame.buf()[headers..end])?;
            within::<ACCOUNT, _>(Stage::Seal, || {
                frame.buf()[end..sealed].fill(0);
                icrc::seal(&mut frame.buf()[..sealed]);
            });
            within::<ACCOUNT, _>(Stage::Port, || frame.commit(sealed));
            return Ok(());
        }
        let mut icrc = Icrc::new(&frame.buf()[..headers]);
        // The CRC covers a copy, as in the daemon, whose guests may write to the payload at the
        // same time.
        let mut copy = [0; COPIED];
        self.attached.clear();
        for piece in payload.iter() {
            let Piece::Memory { region, offset, length } = piece else { continue };
            self.attached.push(region.attach(offset, length as u16));
            let mut done = 0;
            while done < length as usize {
                let part = (length as usize - done).min(copy.len());
                region.read(offset + done as u64, &mut copy[..part])?;
                within::<ACCOUNT, _>(Stage::Seal, || icrc.update(&copy[..part]));
                done += part;
            }
        }
        let trailer = icrc.finish();
        within::<ACCOUNT, _>(Stage::Port, || {
            frame.commit_with(headers, self.attached.drain(..), &trailer);
        });
        Ok(())
    }
}

impl<const ACCOUNT: bool> StreamOutlet<Memory<ACCOUNT>> for Out<'_, ACCOUNT> {}

struct Host<const ACCOUNT: bool> {
    engine: Engine<Memory<ACCOUNT>>,
    peer: Peer,
    sink: Done,
    attached: Vec<External>,
}

impl<const ACCOUNT: bool> Host<ACCOUNT> {
    fn new(last: u8) -> Self {
        let mut engine = Engine::new(last.into());
        engine.set_link(true);
        let peer = Peer::new(&mut engine, last, MEMORY as u64, Memory::new());
        Host { engine, peer, sink: Done::default(), attached: Vec::new() }
    }

    fn connect(&mut self, other: &Peer, path_mtu: Mtu) {
        self.peer.connect(&mut self.engine, other, path_mtu);
    }

    fn post(&mut self, now: Instant, rkey: u32, length: u32) {
        self.peer.post(&mut self.engine, now, rkey, length, &mut self.sink);
    }

    /// Lets the engine send and make progress.
    fn transmit(&mut self, now: Instant, port: &mut Port) {
        let out = &mut Out { port, attached: &mut self.attached };
        within::<ACCOUNT, _>(Stage::Send, || self.engine.transmit(now, TURN, out, &mut self.sink));
        within::<ACCOUNT, _>(Stage::Port, || port.flush());
        self.engine.poll(now, 1 << 20, &mut self.sink);
    }

    fn handle(&mut self, now: Instant, frame: &[u8]) {
        if !ACCOUNT {
            return self.engine.handle_frame(now, frame, &mut self.sink);
        }
        // These are the parts of `handle_frame`.
        let parsed = within::<ACCOUNT, _>(Stage::Parse, || Packet::parse(frame));
        match &parsed {
            Ok(parsed) if within::<ACCOUNT, _>(Stage::Check, || parsed.check_icrc()).is_ok() => {
                within::<ACCOUNT, _>(Stage::Receive, || {
                    self.engine.handle_packet(now, parsed, frame, &mut self.sink);
                });
            }
            // `handle_frame` counts the bad packet.
            _ => self.engine.handle_frame(now, frame, &mut self.sink),
        }
    }
}

/// The load of WRITEs from one engine to the other. There are two ports, or one that returns what
/// it sends.
pub struct Engines<'p, const ACCOUNT: bool> {
    a: Host<ACCOUNT>,
    b: Host<ACCOUNT>,
    ports: &'p RefCell<Vec<Port>>,
    length: u32,
    /// Number of outstanding requests.
    depth: u32,
    burst: Burst,
    start: Clock,
    now: Instant,
    turns: u32,
    posted: u32,
    /// Number of completions that [`Load::poll`] has returned.
    told: u32,
}

impl<'p, const ACCOUNT: bool> Engines<'p, ACCOUNT> {
    /// Creates engines with `depth` outstanding WRITEs of `length` bytes, in packets of `mtu`.
    pub fn new(ports: &'p RefCell<Vec<Port>>, (length, depth): (u32, u32), mtu: Mtu) -> Self {
        let (mut a, mut b) = (Host::new(1), Host::new(2));
        a.connect(&b.peer, mtu);
        b.connect(&a.peer, mtu);
        let (start, now) = (Clock::now(), Instant(0));
        let burst = Burst::default();
        Engines { a, b, ports, length, depth, burst, start, now, turns: 0, posted: 0, told: 0 }
    }

    /// Returns how often the sender went back to a lost packet, and sent again from there.
    pub fn retries(&self) -> u64 {
        self.a.engine.counters(self.a.peer.device).retries
    }

    fn turn(&mut self) {
        let ports = &mut *self.ports.borrow_mut();
        let last = ports.len() - 1;
        if self.turns.is_multiple_of(CLOCK_TURNS) {
            self.now = Instant(self.start.elapsed().as_nanos() as u64);
        }
        self.turns = self.turns.wrapping_add(1);
        self.a.transmit(self.now, &mut ports[0]);
        within::<ACCOUNT, _>(Stage::Acknowledge, || self.b.transmit(self.now, &mut ports[last]));
        for port in ports.iter_mut() {
            within::<ACCOUNT, _>(Stage::Port, || port.receive(&mut self.burst));
            for frame in self.burst.frames() {
                if frame[..6] == self.a.peer.mac.0 {
                    within::<ACCOUNT, _>(Stage::Acknowledge, || self.a.handle(self.now, frame));
                } else {
                    self.b.handle(self.now, frame);
                }
            }
            within::<ACCOUNT, _>(Stage::Port, || self.burst.clear());
        }
    }
}

impl<const ACCOUNT: bool> Load for Engines<'_, ACCOUNT> {
    fn post(&mut self) -> bool {
        let room = self.posted.wrapping_sub(self.a.sink.completed) < self.depth;
        if room {
            within::<ACCOUNT, _>(Stage::Post, || self.a.post(self.now, self.b.peer.key, self.length));
            self.posted = self.posted.wrapping_add(1);
        }
        room
    }

    fn ring(&mut self) {}

    fn poll(&mut self) -> Result<u32> {
        self.turn();
        ensure!(self.a.sink.failed.is_none(), "a WRITE failed: {:?}", self.a.sink.failed);
        let new = self.a.sink.completed.wrapping_sub(self.told);
        self.told = self.a.sink.completed;
        Ok(new)
    }

    fn idle(&mut self) -> Result<()> {
        Ok(())
    }

    fn outstanding(&self) -> u32 {
        self.posted.wrapping_sub(self.told)
    }
}
