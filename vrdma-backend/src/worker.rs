//! The worker's loop: takes requests from channels, drives the engine, and reports completions.
//!
//! A worker owns its guests' engine, queues and regions, so it needs no locks. Other threads send
//! it closures ([`WorkerHandle::call`]), which it runs between two rounds.

mod addresses;
mod all;
mod beyond;
mod broken;
mod channels;
mod elsewhere;
mod execute;
mod failures;
mod fetched;
mod guests;
mod handle;
#[cfg(any(test, feature = "fuzzing"))]
mod here;
#[cfg(any(test, feature = "fuzzing"))]
pub mod inline;
mod link;
mod loans;
mod mail;
pub mod near;
mod order;
mod polling;
mod post;
mod recall;
mod remap;
mod second_look;
mod sleep;
mod streams;
mod sync;
mod turns;
mod uplink;
mod watch;

pub use all::{Place, Workers};
pub use execute::{CommandError, Job, Order};
pub use handle::WorkerHandle;

use crate::cycles::{self, Stage};
use crate::device::broken::{contained, step};
use crate::device::objects::CqUser;
use crate::device::outputs::Outputs;
use crate::gids::GidView;
use crate::memory::MrMemory;
use crate::net::Net;
use crate::queue::channel::{Channel, ChannelError};
use crate::ratelimit::RateLimit;
use crate::streams::Streams;
use crate::translate::event::AsyncEvent;
use crossbeam_channel::{Receiver, TryRecvError};
use fetched::Fetched;
use link::{PortState, Uplink};
use mail::Mail;
use near::NearPort;
use polling::{NAP, Pause, Polling};
use recall::Recall;
use second_look::SecondLook;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use turns::Turns;
use vmm_sys_util::epoll::Epoll;
use vmm_sys_util::event::EventConsumer;
use vrdma_transport::{self as transport, DeviceId, Engine, GidEntry, OwnerId, Question, Sge};
use vrdma_wire::num::Qpn;

/// Bytes that the engine may copy in one round before channels are drained again.
const COPY_BUDGET: u64 = 1 << 20;
/// Messages executed in one round. The limit keeps guests that give commands without end from
/// starving others.
const MESSAGES: usize = 16;
/// Rounds for which one reading of the clock is good enough while no deadline is pending: a few
/// microseconds.
const CLOCK_TURNS: u32 = 16;
/// Rounds without work before each pauses briefly, in favour of other threads on the same core.
const PROMPT: u32 = 8;
/// Rounds without work after which the worker offers its processor to others between rounds.
const SPINS: u32 = 256;
/// Rounds after which a worker that does not sleep takes a second look at consumers.
const LOOK_TURNS: u32 = 4096;

/// Marks the kick of an Ethernet function in an epoll token. The upper half is the guest's number.
const NET: u64 = 1 << 31;

type Message = Box<dyn FnOnce(&mut Worker) + Send>;

/// A worker: an engine with its devices, queues and ports, and the loop that runs them.
pub struct Worker {
    /// Queue pairs, regions and the traffic between them.
    pub engine: Engine<MrMemory>,
    /// The devices, and their outputs to the guests.
    pub outputs: Outputs,
    /// The port of all RDMA functions.
    pub port: PortState,
    /// The guests' Ethernet functions and their switch.
    pub net: Net,
    uplink: Option<Uplink>,
    /// The inter-worker endpoint to other engines, if there are other workers.
    near: Option<NearPort>,
    /// The GIDs of all guests, if there are other workers.
    gids: Option<GidView>,
    /// The GIDs that guests of this worker have claimed in `gids`.
    claimed: Vec<(DeviceId, GidEntry)>,
    /// The connections of iWARP functions.
    pub(crate) streams: Streams,
    /// Whether any guest has an iWARP function.
    has_streams: bool,
    /// The channels. Those of a guest are adjacent.
    channels: Vec<BoundChannel>,
    channel_turns: Turns,
    /// Number of channels bound so far.
    serials: u64,
    /// Commands and messages that wait until channels are drained.
    barriers: Vec<Barrier>,
    /// Callers that wait until the uplink has released pinned memory.
    recalls: Vec<Recall>,
    /// Rounds since the uplink was asked to release memory.
    since_reclaim: u32,
    /// QPs and shared receive queues whose CQs failed, by guest, in the order of the guests' turns.
    failing: VecDeque<(DeviceId, Vec<CqUser>)>,
    inbox: Receiver<Message>,
    /// Whether the inbox may have a message. Checking this is cheaper than checking the inbox.
    mail: Arc<Mail>,
    wake: EventConsumer,
    epoll: Epoll,
    second_look: SecondLook,
    /// The engine's clock as last read, and for how many more rounds this reading is used.
    clock: (transport::Instant, u32),
    polling: Polling,
    stop: bool,
    /// Requests copied out of a channel.
    fetched: Box<Fetched>,
    sges: Vec<Sge>,
    /// Limits log messages about guests' violations.
    pub violations: RateLimit,
    /// Number of requests taken from all channels.
    requests: u64,
    /// Number of times that the worker slept.
    sleeps: u64,
    /// Rounds since the last second look.
    turns: u32,
}

#[derive(Debug)]
struct BoundChannel {
    device: DeviceId,
    owner: OwnerId,
    channel: Channel,
    /// Serial number, which no other channel of this worker has or had.
    serial: u64,
    /// Whether its kick is in the epoll set. It may be there while the channel is broken.
    watched: bool,
}

/// A command or message that waits until channels are drained and the engine has done its part.
struct Barrier {
    device: DeviceId,
    marks: Vec<Mark>,
    until: Until,
    then: Then,
}

/// What the engine has to finish for a device first.
#[derive(Debug)]
enum Until {
    /// Nothing.
    Now,
    /// The flush of this QP, and the unbinding of memory windows of QPs that were reset or
    /// destroyed.
    Flushed(Qpn),
    /// All QPs have the addresses of the GID table.
    GidsSet,
    /// None of these QPs has a request that can go on at once, or a message for which the peer's
    /// receive is looked for.
    ///
    /// The wait ends at this time at the latest, because a process may go on to post.
    Settled(Vec<Qpn>, transport::Instant),
}

/// The position up to which a channel is to be drained.
struct Mark {
    /// The channel's serial number.
    serial: u64,
    /// The channel's position in `Worker::channels` when it was last found.
    position: usize,
    index: u16,
}

/// What to do when a barrier is passed.
enum Then {
    /// Tell the engine that it has all receives.
    Answer(Question),
    /// Run a message.
    Run(Message),
}

/// The error that the worker's thread has ended. It ends only when the daemon stops.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the worker has stopped")]
pub struct Stopped;

impl Worker {
    /// Ends the loop after this round.
    pub fn stop(&mut self) {
        self.stop = true;
    }

    /// Reads the engine's clock.
    pub fn now(&self) -> transport::Instant {
        self.outputs.clock.now()
    }

    /// Returns how many times the worker slept.
    pub fn sleeps(&self) -> u64 {
        self.sleeps
    }

    fn run(mut self) {
        let mut idle_turns = 0u32;
        cycles::begin();
        while !self.stop {
            let busy = self.turn();
            cycles::end_turn(busy);
            if busy {
                self.polling.stop();
                idle_turns = 0;
                continue;
            }
            let _idle = cycles::enter(Stage::Idle);
            idle_turns = idle_turns.saturating_add(1);
            let spins = if self.polling.is_brief() { PROMPT } else { SPINS };
            if idle_turns < spins || self.polling.is_endless() {
                if idle_turns > PROMPT {
                    std::hint::spin_loop();
                }
                continue;
            }
            self.pause(&mut idle_turns);
        }
    }

    /// Waits between two rounds without work.
    fn pause(&mut self, idle_turns: &mut u32) {
        let now = Instant::now();
        match self.polling.pause(now, self.requests) {
            Pause::Yield => {
                std::thread::yield_now();
                let end = Instant::now();
                self.polling.yielded(end, end - now);
            }
            Pause::Nap => {
                std::thread::sleep(NAP);
                *idle_turns = 0;
            }
            Pause::Sleep => {
                let woken = self.sleep();
                self.polling.slept(Instant::now(), woken);
                *idle_turns = 0;
            }
        }
    }

    /// Runs one round. Returns true if there was work.
    fn turn(&mut self) -> bool {
        let _mark = cycles::enter(Stage::Poll);
        let mut busy = self.mail.may_be_there() && self.run_messages();
        let now = self.recent();
        busy |= self.receive_frames(now);
        busy |= self.receive_near(now);
        busy |= cycles::within(Stage::Wire, || self.serve_streams(now));
        self.end_broken();
        busy |= self.drain_channels(now, busy);
        busy |= self.pass_barriers(now);
        busy |= cycles::within(Stage::Execute, || self.poll_engine(now));
        busy |= self.serve_ethernet(now);
        busy |= self.transmit_packets(now);
        self.end_broken();
        busy |= self.recall(now);
        self.watch_link(now);
        busy |= self.fail_cqs();
        busy |= cycles::within(Stage::Complete, || self.outputs.flush(now));
        self.net.flush();
        self.end_broken();
        self.turns = self.turns.saturating_add(1);
        let look = self.turns >= LOOK_TURNS;
        #[cfg(feature = "hooks")]
        let look = look && crate::hooks::has_second_looks();
        if look {
            #[cfg(feature = "hooks")]
            crate::hooks::run();
            self.look_for_consumers();
        }
        busy
    }

    /// Runs the engine's own work. Returns true if there is more.
    fn poll_engine(&mut self, now: transport::Instant) -> bool {
        let Worker { engine, outputs, .. } = self;
        let poll =
            |engine: &mut Engine<MrMemory>, outputs: &mut Outputs| engine.poll(now, COPY_BUDGET, outputs);
        // After a panic, the remaining devices may have more.
        contained(step::TURN, None, engine, outputs, poll).unwrap_or(true)
    }

    /// Returns a time that is at most a few rounds old, or now if a deadline is pending.
    fn recent(&mut self) -> transport::Instant {
        let waits = self.engine.poll_timeout().is_some()
            || self.outputs.next_timer().is_some()
            || self.streams.own.next_deadline().is_some();
        if self.clock.1 == 0 || waits {
            self.clock = (self.now(), CLOCK_TURNS);
        }
        self.clock.1 -= 1;
        self.clock.0
    }

    fn run_messages(&mut self) -> bool {
        self.mail.take();
        for taken in 0..MESSAGES {
            match self.inbox.try_recv() {
                Ok(message) => message(self),
                Err(TryRecvError::Empty) => return taken != 0,
                Err(TryRecvError::Disconnected) => {
                    self.stop = true;
                    return taken != 0;
                }
            }
        }
        // There may be more.
        self.mail.announce();
        true
    }

    #[cold]
    fn channel_broken(&mut self, index: usize, reason: ChannelError) {
        let bound = &self.channels[index];
        let (id, queue, owner) = (bound.device, bound.channel.index(), bound.owner);
        self.outputs.async_event(id, AsyncEvent::channel_error(queue));
        let device = self.outputs.device(id);
        device.counters.broken_channels += 1;
        let name = &device.guest.name;
        self.violations
            .warn(|| format!("guest {name}: channel {queue} of context {} is broken: {reason}", owner.0));
    }
}

impl BoundChannel {
    /// Adds the channel's kick to the epoll set, or removes it.
    fn watch(&mut self, epoll: &Epoll, watched: bool) {
        let Some(kick) = self.channel.kick().filter(|_| self.watched != watched) else { return };
        match kick.watch(epoll, self.token(), watched) {
            Ok(()) => self.watched = watched,
            Err(error) => log::debug!("channel {}: its kick: {error}", self.channel.index()),
        }
    }

    /// Returns the epoll token of the channel's kick. It is never 0, and never has [`NET`] set.
    fn token(&self) -> u64 {
        u64::from(self.device.0) << 32 | u64::from(self.channel.index())
    }
}

#[cfg(test)]
mod tests;
