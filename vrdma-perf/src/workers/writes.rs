//! Engines of two workers with a guest each, one of which writes to the other. It includes those
//! parts of a worker that inter-worker packets pass.

use super::account::{WorkerAccount, WorkerStage};
use super::pair::{MEMORY, MTU, Shape, region};
use crate::helper::Helper;
use crate::load::Load;
use crate::wire::peer::{Done, Peer};
use anyhow::Result;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant as Clock;
use vrdma_backend::packets::{MrMemory, PacketPort, PinGate, packet_ports};
use vrdma_backend::port::{Burst, Origin, Port, TURN, WorkerOf, WorkerPort, worker_ports};
use vrdma_guest::memory::Memory;
use vrdma_transport::{
    Engine, Fault, Instant, InterWorkerPart, Outlet, PacketOutlet, Pieces, StreamOutlet, Way, write_frame,
};
use vrdma_wire::num::Mac;
use vrdma_wire::roce::Packet;

/// Number of rounds for which one reading of the clock is good enough.
const CLOCK_TURNS: u32 = 64;

/// One worker, reduced to the parts that inter-worker packets pass.
struct Side {
    engine: Engine<MrMemory>,
    peer: Peer,
    near: Option<PacketPort>,
    frames: Port,
    burst: Burst,
    sink: Done,
    start: Clock,
    now: Instant,
    turns: u32,
    account: WorkerAccount,
    _memory: Arc<Memory>,
}

/// The outlet to the other worker, for packets or for frames.
struct Out<'a> {
    near: &'a mut Option<PacketPort>,
    frames: &'a mut Port,
}

impl Outlet for Out<'_> {
    fn has_room(&mut self) -> bool {
        self.frames.has_room()
    }
}

impl PacketOutlet<MrMemory> for Out<'_> {
    fn way_to(&mut self, dst: Mac) -> Way {
        let near = self.near.as_mut().and_then(|near| near.way_to(dst));
        near.unwrap_or_else(|| self.frames.way_to(dst))
    }

    fn carries(&mut self, payload: &Pieces<'_, MrMemory>) -> bool {
        PacketPort::carries(payload)
    }

    fn send_inter_worker(
        &mut self,
        device: vrdma_transport::DeviceId,
        packet: &Packet,
        part: InterWorkerPart,
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

impl StreamOutlet<MrMemory> for Out<'_> {}

impl Side {
    /// Runs a round of the worker. With `ACCOUNT` it accounts for the time.
    fn turn<const ACCOUNT: bool>(&mut self) {
        let Side { engine, near, frames, burst, sink, account, .. } = self;
        let mut end = |stage| {
            if ACCOUNT {
                account.end(stage);
            }
        };
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(CLOCK_TURNS) {
            self.now = Instant(self.start.elapsed().as_nanos() as u64);
        }
        let now = self.now;
        engine.poll(now, 1 << 20, sink);
        end(WorkerStage::Around);
        let before = engine.port_counters().frames_out;
        engine.transmit(now, TURN, &mut Out { near, frames }, sink);
        let sent = engine.port_counters().frames_out != before;
        end(if sent { WorkerStage::Send } else { WorkerStage::Around });
        match near {
            Some(near) => {
                near.publish();
                end(WorkerStage::Around);
                let came = near.receive(now, engine, sink);
                end(if came { WorkerStage::Receive } else { WorkerStage::Around });
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

/// Creates two connected sides, which exchange packets or frames.
fn sides(as_frames: bool) -> Result<[Side; 2]> {
    let mut workers = WorkerOf::default();
    let mut homes = HashMap::new();
    let start = Clock::now();
    let mut sides = Vec::new();
    let mut ports: Vec<WorkerPort> = Vec::new();
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
    ports.extend(worker_ports(2, workers, 4500, None)?);
    let endpoints: Vec<_> = ports.iter().map(|port| port.endpoint().clone()).collect();
    let near = packet_ports(&endpoints, homes);
    let [one, other] = [peers[0].1, peers[1].1];
    for (((mut engine, peer, memory), port), mut near) in peers.into_iter().zip(ports).zip(near) {
        near.add(peer.device, Arc::<PinGate>::default());
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
            account: WorkerAccount::default(),
            _memory: memory,
        });
    }
    sides.try_into().map_err(|_| anyhow::anyhow!("two sides"))
}

/// The load of WRITEs from one worker's guest to the other's.
pub(super) struct WorkerWrites {
    near: Side,
    far: Arc<Mutex<Side>>,
    rkey: u32,
    shape: Shape,
    /// Ends the rounds of the other thread.
    stop: Arc<AtomicBool>,
    /// There is no other thread: this one runs the rounds of both.
    one_thread: bool,
    /// Whether the time of each stage is counted.
    has_account: bool,
}

impl WorkerWrites {
    pub fn new(length: u32, as_frames: bool, one_thread: bool) -> Result<WorkerWrites> {
        let [near, far] = sides(as_frames)?;
        let rkey = far.peer.key;
        let (far, stop) = (Arc::new(Mutex::new(far)), Arc::default());
        Ok(WorkerWrites { near, far, rkey, shape: Shape::new(length), stop, one_thread, has_account: false })
    }

    /// Lets the other worker run, until [`WorkerWrites::end`].
    pub fn begin(&self, helper: &Helper) {
        if self.one_thread {
            return helper.begin(|| 0.);
        }
        let (far, stop) = (self.far.clone(), self.stop.clone());
        stop.store(false, Ordering::Relaxed);
        helper.begin(move || {
            let mut far = far.lock().expect("nobody panicked with it");
            while !stop.load(Ordering::Relaxed) {
                far.turn::<false>();
            }
            0.
        });
    }

    /// Stops the other worker.
    pub fn end(&self, helper: &Helper) {
        self.stop.store(true, Ordering::Relaxed);
        helper.end();
    }
}

impl WorkerWrites {
    /// Starts to count the time of each stage, which needs a single thread.
    pub fn begin_account(&mut self) {
        assert!(self.one_thread, "a worker's stages are found where it has turns when we say so");
        self.has_account = true;
        let far = &mut *self.far.lock().expect("nobody panicked with it");
        (self.near.account, far.account) = (WorkerAccount::default(), WorkerAccount::default());
    }

    /// Returns the accounts of the sending worker and of the other one.
    pub fn accounts(&self) -> [WorkerAccount; 2] {
        [self.near.account, self.far.lock().expect("nobody panicked with it").account]
    }

    /// Returns the number of WRITEs that have ended so far.
    pub fn completed(&self) -> u32 {
        self.near.sink.completed
    }

    fn poll_with_account(&mut self) -> Result<u32> {
        let far = &mut *self.far.lock().expect("nobody panicked with it");
        for side in [&mut self.near, far] {
            side.account.begin();
            side.turn::<true>();
        }
        self.shape.told(&self.near.sink)
    }
}

impl Load for WorkerWrites {
    fn post(&mut self) -> bool {
        let room = self.shape.has_room(self.near.sink.completed);
        if room {
            let Side { engine, peer, sink, now, account, .. } = &mut self.near;
            if self.has_account {
                account.begin();
            }
            peer.post(engine, *now, self.rkey, self.shape.length, sink);
            if self.has_account {
                account.end(WorkerStage::Post);
            }
        }
        room
    }

    fn ring(&mut self) {}

    fn poll(&mut self) -> Result<u32> {
        if self.has_account {
            return self.poll_with_account();
        }
        self.near.turn::<false>();
        if self.one_thread {
            self.far.lock().expect("nobody panicked with it").turn::<false>();
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
