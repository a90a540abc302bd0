//! Two workers' engines, and what is between them: WRITEs from a guest of one to a guest of the other, beside the same between two guests of one engine.
//!
//! Each engine has a thread and a processor; that of the sender also plays its driver, by calls of the engine. So rings of guests are no part of it, and two
//! processors are enough. The daemon's own code is what is measured: [`NearPort`], and the port of frames for what does not go that way.

mod pair;

use crate::args::{Figure, Near};
use crate::helper::Helper;
use crate::line;
use crate::load::Load;
use crate::table;
use crate::turns::{self, Turns, Until};
use crate::windows::{Kind, Windows, histogram};
use crate::wire::peer::{Done, Peer};
use anyhow::Result;
use hdrhistogram::Histogram;
use pair::{MEMORY, MTU, Shape, Together, region};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Clock};
use vrdma_backend::near::{LoanGate, MrMemory, NearPort, near_ports};
use vrdma_backend::port::{Burst, Mesh, Origin, Port, TURN, WorkerOf, mesh};
use vrdma_guest::memory::Memory;
use vrdma_guest::threads::pin;
use vrdma_transport::{Engine, Fault, Instant, NearPart, Outlet, Pieces, Way, write_frame};
use vrdma_wire::num::Mac;
use vrdma_wire::roce::Packet;

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
        engine.poll(now, 1 << 20, sink);
        engine.transmit(now, TURN, &mut Out { near, frames }, sink);
        match near {
            Some(near) => {
                near.publish();
                near.receive(now, engine, sink);
            }
            None => {
                frames.flush();
                if frames.receive(burst) > 0 {
                    burst.frames().iter().for_each(|frame| engine.handle_frame(now, frame, sink));
                    frames.recycle(burst);
                }
            }
        }
    }
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
    /// There is no other thread: this one has the turns of both.
    one_thread: bool,
}

impl Apart {
    fn new(length: u32, as_frames: bool, one_thread: bool) -> Result<Apart> {
        let [near, far] = sides(as_frames)?;
        let rkey = far.peer.key;
        let (far, stop) = (Arc::new(Mutex::new(far)), Arc::default());
        Ok(Apart { near, far, rkey, shape: Shape::new(length), stop, one_thread })
    }

    /// Has the other worker run.
    fn begin(&self, helper: &Helper) {
        if self.one_thread {
            return helper.begin(|| 0.);
        }
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
        if self.one_thread {
            self.far.lock().expect("nobody panicked with it").turn();
        }
        self.shape.told(&self.near.sink)
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
    if args.pairs {
        return measure_pairs(args, &helper, kind, [&mut times, &mut local_times]);
    }
    let apart = Apart::new(length, args.frames, args.one_thread)?;
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

/// The same of a pair of guests of one worker, while another worker has such a pair too, beside alone.
fn measure_pairs(
    args: &Near,
    helper: &Helper,
    kind: Kind,
    [times, alone_times]: [&mut Histogram<u64>; 2],
) -> Result<String> {
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
    let until = Until::Time(Duration::from_secs_f64(args.duration));
    let turns = turns::take(until, || line::round_trip(helper), own, || alone.window())?;
    let mut text =
        format!("{} B WRITEs within a worker, beside another worker with a pair of guests", kind.size);
    for regime in &turns.regimes {
        text += &format!("\n{}", table::beside(regime, "alone", args.figure));
        if args.figure != Figure::Lat {
            text += &format!("\ntwo workers have {:.2} times what one has", 2. * regime.ratio.median);
        }
    }
    Ok(text)
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
