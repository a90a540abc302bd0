//! iWARP: two engines whose QPs are connected by vrdma's own TCP, and the ports between them. All
//! run in this thread.
//!
//! The switch, the bindings of connections, the connection set-up and guest rings are no part of
//! it.

pub mod gap;
mod writes;

pub use gap::Gap;
pub use writes::Apart;

use super::host::IwarpHost;
use super::memory::MEMORY;
use crate::load::Load;
use anyhow::{Context, Result, ensure};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant as Clock};
use vrdma_backend::port::{BURST, Burst, Port};
use vrdma_backend::user_tcp::{Handle, Path, TrafficClass};
use vrdma_tcp::NextHop;
use vrdma_transport::{Instant, Role};

/// The TCP port at which the peer listens.
const PORT: u16 = 4420;
/// Time limit for setting up all connections.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of WRITEs of all memory that exceed a window.
const STALL: u32 = 3;
/// The handle of the listener, beside those of connections.
const LISTENER: Handle = Handle { number: u32::MAX, generation: 0 };

/// Bytes of a full-sized FPDU of a WRITE beside its payload. These are IPv4, TCP with a timestamp,
/// the length, DDP's tagged header, and the CRC.
const AROUND: u16 = 20 + 32 + 2 + 14 + 4;

/// Returns the number of data bytes in each packet of a long WRITE, for a link's MTU.
pub fn payload(mtu: u16) -> u16 {
    mtu - AROUND
}

/// The load of WRITEs from one engine to the other, over several connections in turn.
pub struct Iwarp<'p> {
    a: IwarpHost,
    b: IwarpHost,
    ports: &'p RefCell<Vec<Port>>,
    length: u32,
    burst: Burst,
    start: Clock,
    now: Instant,
    /// Connections that may post a WRITE. Each is listed once for each free place.
    free: VecDeque<u32>,
    /// Number of WRITEs posted, and number of those reported as arrived.
    counts: (u64, u64),
}

impl<'p> Iwarp<'p> {
    /// Creates the hosts with `depth` outstanding WRITEs of `length` bytes on each connection.
    ///
    /// Further connections are stalled: they have data to send, and their peers take nothing. The
    /// hosts' addresses end with `first` and the next number. Other hosts on these ports have other
    /// addresses.
    ///
    /// # Errors
    /// The connections cannot be set up.
    pub fn new(
        ports: &'p RefCell<Vec<Port>>,
        (length, depth): (u32, u32),
        (connections, stalled): (u32, u32),
        mtu: u16,
        first: u8,
    ) -> Result<Iwarp<'p>> {
        let mut iwarp = Iwarp {
            a: IwarpHost::new(first, mtu)?,
            b: IwarpHost::new(first + 1, mtu)?,
            ports,
            length,
            burst: Burst::default(),
            start: Clock::now(),
            now: Instant(0),
            free: (0..depth).flat_map(|_| 0..connections).collect(),
            counts: (0, 0),
        };
        let IwarpHost { streams, device, address, .. } = &mut iwarp.b;
        let at = SocketAddr::from((*address, PORT));
        streams.user_tcp.listen(*device, LISTENER, at, TrafficClass::default()).context("a listener")?;
        for number in 0..connections {
            iwarp.connect(number)?;
        }
        iwarp.a.post(iwarp.now, 0, iwarp.b.key, length)?;
        iwarp.wait("a WRITE", |iwarp| iwarp.a.streams.user_tcp.ready() == 0 && iwarp.is_settled())?;
        iwarp.b.streams.arrivals.each = iwarp.b.streams.all[0].taken;
        iwarp.stall((connections, stalled))?;
        Ok(iwarp)
    }

    /// Makes further connections, and waits until their peers' windows have been found closed.
    fn stall(&mut self, (connections, stalled): (u32, u32)) -> Result<()> {
        self.b.readers = connections as usize;
        for number in connections..connections + stalled {
            self.connect(number)?;
            for _ in 0..STALL {
                self.a.post(self.now, number as usize, self.b.key, MEMORY as u32)?;
            }
        }
        let mut turns = 0;
        self.wait("to stall peers", |iwarp| {
            turns += 1;
            // Counting visits all connections, so it is done rarely.
            stalled == 0 || turns % 1000 == 0 && iwarp.count("window_probes") >= u64::from(stalled)
        })
    }

    fn connect(&mut self, number: u32) -> Result<()> {
        let handle = Handle { number, generation: 0 };
        let ends = ((self.a.address, 0).into(), (self.b.address, PORT).into());
        let hop = NextHop { mac: self.b.mac, vlan: None };
        let path = Path { hop, ..Path::default() };
        let (near, _) = self
            .a
            .streams
            .user_tcp
            .connect(self.now, self.a.device, ends, path, handle)
            .context("a socket")?;
        let mut far = None;
        self.wait("a connection", |iwarp| {
            let IwarpHost { streams, device, .. } = &mut iwarp.b;
            far = far.take().or_else(|| streams.user_tcp.accept(*device, LISTENER));
            far.is_some()
        })?;
        let (far, ..) = far.context("it was accepted")?;
        self.b.connect(Role::Responder, far)?;
        self.a.connect(Role::Initiator, near)
    }

    /// Returns whether the first WRITE, which is the only one, has arrived.
    fn is_settled(&self) -> bool {
        self.b.streams.all[0].taken > u64::from(self.length)
    }

    fn wait(&mut self, what: &str, mut is_done: impl FnMut(&mut Self) -> bool) -> Result<()> {
        let start = Clock::now();
        while !is_done(self) {
            self.turn()?;
            ensure!(start.elapsed() < PATIENCE, "{what} takes too long");
        }
        Ok(())
    }

    /// Returns the number of segments that were retransmitted.
    pub fn retries(&self) -> u64 {
        self.count("retransmits")
    }

    /// Returns a counter of the sender's TCP.
    fn count(&self, name: &str) -> u64 {
        self.a.streams.user_tcp.stats(self.a.device).get(name).copied().unwrap_or_default()
    }

    /// Updates the time. TCP measures round trips by it.
    fn tick(&mut self) {
        self.now = Instant(self.start.elapsed().as_nanos() as u64 + 1_000_000_000);
    }

    fn turn(&mut self) -> Result<()> {
        let ports = &mut *self.ports.borrow_mut();
        let last = ports.len() - 1;
        self.tick();
        // The peer's ACKs go first. Both hosts may share one port here, while two real hosts have a
        // processor each.
        self.b.transmit(self.now, &mut ports[last]);
        for port in ports.iter_mut() {
            while port.receive(&mut self.burst) == BURST {
                deliver(&mut self.burst, [&mut self.a, &mut self.b], self.now);
            }
            deliver(&mut self.burst, [&mut self.a, &mut self.b], self.now);
        }
        for host in [&mut self.a, &mut self.b] {
            host.serve()?;
            ensure!(host.failure.0.is_none(), "a WRITE failed: {:?}", host.failure.0);
            ensure!(host.streams.ended.is_none(), "a stream ended");
        }
        self.a.transmit(self.now, &mut ports[0]);
        Ok(())
    }
}

/// Delivers received frames to the hosts that they are for.
fn deliver(burst: &mut Burst, hosts: [&mut IwarpHost; 2], now: Instant) {
    let [a, b] = hosts;
    for frame in burst.frames() {
        let host = if frame[..6] == a.mac.0 { &mut *a } else { &mut *b };
        // Other hosts use these ports too.
        if frame[..6] == host.mac.0 {
            host.handle_frame(now, frame);
        }
    }
    burst.clear();
}

/// Delivers received frames to a host, if they are for it.
fn deliver_to(burst: &mut Burst, host: &mut IwarpHost, now: Instant) {
    for frame in burst.frames() {
        // Other hosts use these ports too.
        if frame[..6] == host.mac.0 {
            host.handle_frame(now, frame);
        }
    }
    burst.clear();
}

impl Load for Iwarp<'_> {
    fn post(&mut self) -> bool {
        let Some(index) = self.free.pop_front() else { return false };
        self.a.post(self.now, index as usize, self.b.key, self.length).expect("there is room");
        self.counts.0 += 1;
        true
    }

    fn ring(&mut self) {}

    fn poll(&mut self) -> Result<u32> {
        self.turn()?;
        let before = self.free.len();
        self.free.extend(self.b.streams.arrivals.new.drain(..));
        let new = self.free.len() - before;
        self.counts.1 += new as u64;
        Ok(new as u32)
    }

    fn idle(&mut self) -> Result<()> {
        Ok(())
    }

    fn outstanding(&self) -> u32 {
        (self.counts.0 - self.counts.1) as u32
    }
}
