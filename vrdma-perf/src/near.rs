//! Two workers' engines, and what is between them: WRITEs from a guest of one to a guest of the other, beside the same between two guests of one engine.
//!
//! Each engine has a thread and a processor; that of the sender also plays its driver, by calls of the engine. So rings of guests are no part of it, and two
//! processors are enough. The daemon's own code is what is measured: [`NearPort`], and the port of frames for what does not go that way.

use crate::args::{Figure, Near};
use crate::helper::Helper;
use crate::host::memory;
use crate::line;
use crate::load::Load;
use crate::table;
use crate::turns::{self, Turns, Until};
use crate::windows::{Kind, Windows, histogram};
use crate::wire::peer::{Done, Peer};
use anyhow::{Context, Result, ensure};
use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Clock};
use vrdma_backend::near::{
    GuestMemory, LoanGate, MapOptions, MrMemory, NearPort, RegionSpec, Run, near_ports,
};
use vrdma_backend::port::{Burst, Mesh, Origin, Port, WorkerOf, mesh};
use vrdma_guest::memory::Memory;
use vrdma_guest::threads::pin;
use vrdma_transport::{Engine, Fault, Instant, NearPart, Outlet, Pieces, Way, write_frame};
use vrdma_wire::num::{Mac, Mtu};
use vrdma_wire::roce::Packet;

/// Bytes of each guest's memory.
const MEMORY: u64 = 4 << 20;
/// Packets of a turn.
const BUDGET: usize = 256;
/// Bytes of messages that are outstanding at most, and how many there are at most.
const OUTSTANDING: u32 = 1 << 20;
const DEPTH: u32 = 64;
const MTU: Mtu = Mtu::M4096;
/// Turns for which a reading of the clock is good enough.
const CLOCK_TURNS: u32 = 64;

/// One worker: as much of it as packets between workers go through.
struct Side {
    engine: Engine<MrMemory>,
    peer: Peer,
    near: Option<NearPort>,
    frames: Port,
    burst: Burst,
    sink: Done,
    start: Clock,
    now: Instant,
    turns: u32,
    _memory: Arc<Memory>,
}

/// Packets go to the other worker, as they are or as frames.
struct Out<'a> {
    near: &'a mut Option<NearPort>,
    frames: &'a mut Port,
}

impl Outlet<MrMemory> for Out<'_> {
    fn has_room(&mut self) -> bool {
        self.frames.has_room()
    }

    fn way_to(&mut self, dst: Mac) -> Way {
        let near = self.near.as_mut().and_then(|near| near.way_to(dst));
        near.unwrap_or_else(|| self.frames.way_to(dst))
    }

    fn carries(&mut self, payload: &Pieces<'_, MrMemory>) -> bool {
        NearPort::carries(payload)
    }

    fn send_near(
        &mut self,
        device: vrdma_transport::DeviceId,
        packet: &Packet,
        part: NearPart,
        payload: &Pieces<'_, MrMemory>,
    ) -> Result<(), Fault> {
        self.near.as_mut().expect("it said that the way is near").send(device, packet, part, payload)
    }

    fn send(&mut self, packet: &Packet, payload: &Pieces<'_, MrMemory>) -> Result<(), Fault> {
        let Some(mut frame) = self.frames.transmit(packet.frame_len(payload.len())) else { return Ok(()) };
        frame.made_by(Origin::Engine);
        let len = write_frame(packet, payload, frame.buf())?;
        frame.commit(len);
        Ok(())
    }
}

impl Side {
    fn turn(&mut self) {
        let Side { engine, near, frames, burst, sink, .. } = self;
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(CLOCK_TURNS) {
            self.now = Instant(self.start.elapsed().as_nanos() as u64);
        }
        let now = self.now;
        match near {
            Some(near) => _ = near.receive(now, engine, sink),
            None if frames.receive(burst) > 0 => {
                burst.frames().iter().for_each(|frame| engine.handle_frame(now, frame, sink));
                frames.recycle(burst);
            }
            None => {}
        }
        engine.poll(now, 1 << 20, sink);
        engine.transmit(now, BUDGET, &mut Out { near, frames }, sink);
        match near {
            Some(near) => near.publish(),
            None => frames.flush(),
        }
    }
}

/// A region of memory of a guest.
fn region() -> Result<(MrMemory, Arc<Memory>)> {
    let memory = memory(MEMORY)?;
    // As the front-end hands it over.
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
    let region = MrMemory::new(&guest, &[Run { gpa: 0, len: MEMORY }]).context("it is guest memory")?;
    Ok((region, memory))
}

/// Two sides, connected; as packets, or as frames.
fn sides(as_frames: bool) -> Result<[Side; 2]> {
    let mut workers = WorkerOf::default();
    let mut homes = HashMap::new();
    let start = Clock::now();
    let mut sides = Vec::new();
    let mut ports: Vec<Mesh> = Vec::new();
    let mut peers = Vec::new();
    for at in 0..2u8 {
        let (region, memory) = region()?;
        let mut engine = Engine::new(at.into());
        engine.set_link(true);
        let peer = Peer::new(&mut engine, at + 1, MEMORY, region);
        workers.insert(peer.mac, at.into());
        homes.insert(peer.mac, usize::from(at));
        peers.push((engine, peer, memory));
    }
    ports.extend(mesh(2, workers, 4500, None)?);
    let stations: Vec<_> = ports.iter().map(|port| port.station().clone()).collect();
    let near = near_ports(&stations, homes);
    let [one, other] = [peers[0].1, peers[1].1];
    for (((mut engine, peer, memory), port), mut near) in peers.into_iter().zip(ports).zip(near) {
        near.add(peer.device, Arc::<LoanGate>::default());
        peer.connect(&mut engine, if peer.mac == one.mac { &other } else { &one }, MTU);
        sides.push(Side {
            engine,
            peer,
            near: (!as_frames).then_some(near),
            frames: Port::new(Box::new(port)),
            burst: Burst::default(),
            sink: Done::default(),
            start,
            now: Instant(0),
            turns: 0,
            _memory: memory,
        });
    }
    sides.try_into().map_err(|_| anyhow::anyhow!("two sides"))
}

/// WRITEs from one worker's guest to the other's.
struct Apart {
    near: Side,
    far: Arc<Mutex<Side>>,
    rkey: u32,
    shape: Shape,
    /// Ends the other thread's turns.
    stop: Arc<AtomicBool>,
}

/// WRITEs between guests of one engine.
struct Together {
    engine: Engine<MrMemory>,
    from: Peer,
    rkey: u32,
    sink: Done,
    shape: Shape,
    _memory: [Arc<Memory>; 2],
}

/// What is outstanding.
struct Shape {
    length: u32,
    depth: u32,
    posted: u32,
    told: u32,
}

impl Shape {
    fn new(length: u32) -> Shape {
        Shape { length, depth: (OUTSTANDING / length).clamp(1, DEPTH), posted: 0, told: 0 }
    }

    fn has_room(&mut self, completed: u32) -> bool {
        let room = self.posted.wrapping_sub(completed) < self.depth;
        self.posted = self.posted.wrapping_add(room.into());
        room
    }

    fn told(&mut self, sink: &Done) -> Result<u32> {
        ensure!(sink.failed.is_none(), "a WRITE failed: {:?}", sink.failed);
        let new = sink.completed.wrapping_sub(self.told);
        self.told = sink.completed;
        Ok(new)
    }

    fn outstanding(&self) -> u32 {
        self.posted.wrapping_sub(self.told)
    }
}

impl Apart {
    fn new(length: u32, as_frames: bool) -> Result<Apart> {
        let [near, far] = sides(as_frames)?;
        let rkey = far.peer.key;
        let (far, stop) = (Arc::new(Mutex::new(far)), Arc::default());
        Ok(Apart { near, far, rkey, shape: Shape::new(length), stop })
    }

    /// Has the other worker run.
    fn begin(&self, helper: &Helper) {
        let (far, stop) = (self.far.clone(), self.stop.clone());
        stop.store(false, Ordering::Relaxed);
        helper.begin(move || {
            let mut far = far.lock().expect("nobody panicked with it");
            while !stop.load(Ordering::Relaxed) {
                far.turn();
            }
            0.
        });
    }

    fn end(&self, helper: &Helper) {
        self.stop.store(true, Ordering::Relaxed);
        helper.end();
    }
}

impl Load for Apart {
    fn post(&mut self) -> bool {
        let room = self.shape.has_room(self.near.sink.completed);
        if room {
            let Side { engine, peer, sink, now, .. } = &mut self.near;
            peer.post(engine, *now, self.rkey, self.shape.length, sink);
        }
        room
    }

    fn ring(&mut self) {}

    fn poll(&mut self) -> Result<u32> {
        self.near.turn();
        self.shape.told(&self.near.sink)
    }

    fn idle(&mut self) -> Result<()> {
        Ok(())
    }

    fn outstanding(&self) -> u32 {
        self.shape.outstanding()
    }
}

impl Together {
    fn new(length: u32) -> Result<Together> {
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

/// Measures, and says it in a line for each regime.
///
/// # Errors
/// There is no memory, or a WRITE fails.
pub fn measure(args: &Near) -> Result<String> {
    pin(0, args.cpus.0);
    let helper = Helper::start(args.cpus.1);
    let [mut times, mut local_times] = [(); 2].map(|()| histogram());
    let length = args.size.unwrap_or(if args.figure == Figure::Bw { 65536 } else { 8 });
    let kind = Kind { figure: args.figure, size: length, pause: Duration::ZERO };
    let apart = Apart::new(length, args.frames)?;
    apart.begin(&helper);
    let mut windows = Windows::new(apart, kind, u32::MAX, &mut times)?;
    windows.load.end(&helper);
    let mut local = Windows::new(Together::new(length)?, kind, u32::MAX, &mut local_times)?;
    let own = || {
        windows.load.begin(&helper);
        let value = windows.window();
        windows.load.end(&helper);
        value
    };
    let until = Until::Time(Duration::from_secs_f64(args.duration));
    let turns = turns::take(until, || line::round_trip(&helper), own, || local.window())?;
    let way = if args.frames { "as frames" } else { "near" };
    Ok(describe(&turns, args.figure, length, way))
}

fn describe(turns: &Turns, figure: Figure, length: u32, way: &str) -> String {
    let mut text = format!("{length} B WRITEs to a guest of another worker, {way}, beside the same worker's");
    for regime in &turns.regimes {
        text += &format!("\n{}", table::beside(regime, "one worker", figure));
        if figure == Figure::Lat {
            let lines = (regime.own.median - regime.limit.median) * 1e3 / regime.line.median;
            text += &format!("\n{lines:.1} round trips of a line more");
        }
    }
    text
}
