//! The loop that does all the work: takes requests from channels, drives the engine, tells of
//! completions.
//!
//! A worker owns its devices' engines, queues and regions, so there are no locks inside. Others
//! talk to it by sending closures ([`WorkerHandle::call`]), which it runs between two turns.

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

/// Bytes that the engine may copy in one turn before channels are looked at again.
const COPY_BUDGET: u64 = 1 << 20;
/// Messages carried out in one turn: guests that never stop giving commands leave the others their
/// turns.
const MESSAGES: usize = 16;
/// Turns for which a reading of the clock is good enough while nothing waits for a deadline: a few
/// microseconds.
const CLOCK_TURNS: u32 = 16;
/// Turns without work before each waits a little, for the sake of who shares the processor's core.
const PROMPT: u32 = 8;
/// Turns without work after which the processor is offered to others between two turns.
const SPINS: u32 = 256;
/// Turns after which a worker that does not sleep looks at them once more.
const LOOK_TURNS: u32 = 4096;

/// In what epoll returns: the kick of an Ethernet function, of the guest whose number is in the
/// upper half.
const NET: u64 = 1 << 31;

type Message = Box<dyn FnOnce(&mut Worker) + Send>;

/// See the module.
pub struct Worker {
    /// Queue pairs, regions and what flows between them.
    pub engine: Engine<MrMemory>,
    /// Devices, and the way to their guests.
    pub outputs: Outputs,
    /// The port of all RDMA functions.
    pub port: PortState,
    /// Guests' Ethernet functions and their switch.
    pub net: Net,
    uplink: Option<Uplink>,
    /// The way to engines of other workers, if there are any.
    near: Option<NearPort>,
    /// GIDs of all guests, if there are other workers,
    gids: Option<GidView>,
    /// and those among them that guests of this worker have.
    claimed: Vec<(DeviceId, GidEntry)>,
    /// Connections of iWARP functions,
    pub(crate) streams: Streams,
    /// of which there are.
    has_streams: bool,
    /// Those of a guest are adjacent.
    channels: Vec<BoundChannel>,
    channel_turns: Turns,
    /// Channels bound so far.
    serials: u64,
    /// What waits until channels are drained.
    barriers: Vec<Barrier>,
    /// What waits until the uplink has given memory back.
    recalls: Vec<Recall>,
    /// Turns since the uplink was asked for memory.
    since_reclaim: u32,
    /// QPs and shared receive queues whose CQs failed, of each of these guests, in the order of
    /// their turns.
    failing: VecDeque<(DeviceId, Vec<CqUser>)>,
    inbox: Receiver<Message>,
    /// There may be something in the inbox: cheaper to look at than the inbox.
    mail: Arc<Mail>,
    wake: EventConsumer,
    epoll: Epoll,
    second_look: SecondLook,
    /// The engine's clock as last read, and for how many turns more that will do.
    clock: (transport::Instant, u32),
    polling: Polling,
    stop: bool,
    /// Requests that were copied out of a channel.
    fetched: Box<Fetched>,
    sges: Vec<Sge>,
    /// What guests did wrong, for the log.
    pub violations: RateLimit,
    /// Requests taken from all channels.
    requests: u64,
    /// Times that the worker slept.
    sleeps: u64,
    /// Turns since the last second look.
    turns: u32,
}

#[derive(Debug)]
struct BoundChannel {
    device: DeviceId,
    owner: OwnerId,
    channel: Channel,
    /// No other channel has or had this number.
    serial: u64,
    /// Its kick is in the epoll set: also while the channel is broken.
    watched: bool,
}

/// Something that waits for channels, and for the engine.
struct Barrier {
    device: DeviceId,
    marks: Vec<Mark>,
    until: Until,
    then: Then,
}

/// What of a device the engine is to have done.
#[derive(Debug)]
enum Until {
    /// Nothing.
    Now,
    /// All is flushed of this QP that is to be, and windows of QPs that were reset or destroyed are
    /// unbound.
    Flushed(Qpn),
    /// All QPs have the addresses of the GID table.
    GidsSet,
    /// These QPs have no request that can go on at once, or when its receive was looked for. Not
    /// beyond this time: a process may go on to post.
    Settled(Vec<Qpn>, transport::Instant),
}

/// Where a channel is to be drained to.
struct Mark {
    /// The channel's serial number,
    serial: u64,
    /// and where it was found last.
    position: usize,
    index: u16,
}

/// What happens then.
enum Then {
    /// The engine is told that it has all receives.
    Answer(Question),
    /// Something else is done.
    Run(Message),
}

/// The worker's thread ended. It does so only when the daemon stops.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the worker has stopped")]
pub struct Stopped;

impl Worker {
    /// Ends the loop after this turn.
    pub fn stop(&mut self) {
        self.stop = true;
    }

    /// The engine's clock.
    pub fn now(&self) -> transport::Instant {
        self.outputs.clock.now()
    }

    /// Times that the worker slept.
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

    /// Between two turns without work.
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

    /// Does what there is to do; true if there was anything.
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

    /// Has the engine do what it does by itself; true if there is more.
    fn poll_engine(&mut self, now: transport::Instant) -> bool {
        let Worker { engine, outputs, .. } = self;
        let poll =
            |engine: &mut Engine<MrMemory>, outputs: &mut Outputs| engine.poll(now, COPY_BUDGET, outputs);
        // Of what is left there may be more.
        contained(step::TURN, None, engine, outputs, poll).unwrap_or(true)
    }

    /// The time as of a few turns ago, or now if anything waits for a deadline.
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
    /// Watches its kick, or no longer.
    fn watch(&mut self, epoll: &Epoll, watched: bool) {
        let Some(kick) = self.channel.kick().filter(|_| self.watched != watched) else { return };
        match kick.watch(epoll, self.token(), watched) {
            Ok(()) => self.watched = watched,
            Err(error) => log::debug!("channel {}: its kick: {error}", self.channel.index()),
        }
    }

    /// What epoll returns for its kick; never 0, and without [`NET`].
    fn token(&self) -> u64 {
        u64::from(self.device.0) << 32 | u64::from(self.channel.index())
    }
}

#[cfg(test)]
mod tests;
