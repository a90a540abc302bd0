//! A pair of guests of one worker's engine. One of them writes to the other.

use crate::helper::Helper;
use crate::host::memory;
use crate::line;
use crate::load::Load;
use crate::turns::{self, Turns, Until};
use crate::windows::{Kind, Windows};
use crate::wire::peer::{Done, Peer};
use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use vrdma_backend::packets::{Extent, GuestMemory, MapOptions, MrMemory, RegionSpec};
use vrdma_guest::memory::Memory;
use vrdma_transport::{Engine, Instant};
use vrdma_wire::num::Mtu;

/// Size of each guest's memory in bytes.
pub(super) const MEMORY: u64 = 4 << 20;
/// Largest number of outstanding bytes, and of outstanding messages.
const OUTSTANDING: u32 = 1 << 20;
const DEPTH: u32 = 64;
pub(super) const MTU: Mtu = Mtu::M4096;

/// The load of WRITEs between guests of one engine.
pub(super) struct Together {
    engine: Engine<MrMemory>,
    from: Peer,
    rkey: u32,
    sink: Done,
    shape: Shape,
    _memory: [Arc<Memory>; 2],
}

/// The message size, and the counts of outstanding messages.
pub(super) struct Shape {
    pub(super) length: u32,
    depth: u32,
    posted: u32,
    told: u32,
}

impl Shape {
    pub(super) fn new(length: u32) -> Shape {
        Shape { length, depth: (OUTSTANDING / length).clamp(1, DEPTH), posted: 0, told: 0 }
    }

    pub(super) fn has_room(&mut self, completed: u32) -> bool {
        let room = self.posted.wrapping_sub(completed) < self.depth;
        self.posted = self.posted.wrapping_add(room.into());
        room
    }

    pub(super) fn told(&mut self, sink: &Done) -> Result<u32> {
        ensure!(sink.failed.is_none(), "a WRITE failed: {:?}", sink.failed);
        let new = sink.completed.wrapping_sub(self.told);
        self.told = sink.completed;
        Ok(new)
    }

    pub(super) fn outstanding(&self) -> u32 {
        self.posted.wrapping_sub(self.told)
    }
}

impl Together {
    pub(super) fn new(length: u32) -> Result<Together> {
        let mut engine = Engine::new(7);
        let [(one, first), (other, second)] = [region()?, region()?];
        let from = Peer::new(&mut engine, 1, MEMORY, one);
        let to = Peer::new(&mut engine, 2, MEMORY, other);
        from.connect(&mut engine, &to, MTU);
        to.connect(&mut engine, &from, MTU);
        let (sink, shape) = (Done::default(), Shape::new(length));
        Ok(Together { engine, from, rkey: to.key, sink, shape, _memory: [first, second] })
    }
}

impl Load for Together {
    fn post(&mut self) -> bool {
        let room = self.shape.has_room(self.sink.completed);
        if room {
            self.from.post(&mut self.engine, Instant(0), self.rkey, self.shape.length, &mut self.sink);
        }
        room
    }

    fn ring(&mut self) {}

    fn poll(&mut self) -> Result<u32> {
        self.engine.poll(Instant(0), 1 << 20, &mut self.sink);
        self.shape.told(&self.sink)
    }

    fn idle(&mut self) -> Result<()> {
        Ok(())
    }

    fn outstanding(&self) -> u32 {
        self.shape.outstanding()
    }
}

/// Measures a worker's pair of guests while another worker has a pair too, alternately with windows
/// while it has none.
pub(super) fn pairs(
    helper: &Helper,
    kind: Kind,
    until: Until,
    [times, alone_times]: [&mut Histogram<u64>; 2],
) -> Result<Turns> {
    let other = Arc::new(Mutex::new(Together::new(kind.size)?));
    let stop = Arc::<AtomicBool>::default();
    let mut beside = Windows::new(Together::new(kind.size)?, kind, u32::MAX, times)?;
    let mut alone = Windows::new(Together::new(kind.size)?, kind, u32::MAX, alone_times)?;
    let own = || {
        let (its, end) = (other.clone(), stop.clone());
        stop.store(false, Ordering::Relaxed);
        helper.begin(move || {
            let mut pair = its.lock().expect("nobody panicked with it");
            while !end.load(Ordering::Relaxed) {
                while pair.post() {}
                pair.poll().expect("its WRITEs succeed");
            }
            0.
        });
        let value = beside.window();
        stop.store(true, Ordering::Relaxed);
        helper.end();
        value
    };
    turns::take(until, || line::round_trip(helper), own, || alone.window())
}

/// Creates a guest's memory, and a region of it.
pub(super) fn region() -> Result<(MrMemory, Arc<Memory>)> {
    let memory = memory(MEMORY)?;
    // The front-end passes the descriptor in this way.
    let file = File::options().read(true).write(true).open(format!("/proc/self/fd/{}", memory.fd()))?;
    let mapped = memory.regions()[0];
    let spec = RegionSpec {
        gpa: 0,
        len: mapped.len,
        front_end_addr: mapped.front_end_addr(),
        file_offset: mapped.offset,
        file,
    };
    let guest = Arc::new(GuestMemory::empty(MapOptions::default()).map_anew(vec![spec])?);
    let region = MrMemory::new(&guest, &[Extent { gpa: 0, len: MEMORY }]).context("it is guest memory")?;
    Ok((region, memory))
}
