//! A worker takes requests from channels, drives the engine, and reports completions.
//!
//! A worker owns its guests' engine, queues and regions, so it needs no locks. Other threads send
//! it closures ([`WorkerHandle::call`]), which it runs between two rounds.
//!
//! This file has the state. The methods of [`Worker`] are in several files. Each uses only those
//! before it:
//!
//! * [`peers`] has the guests and GIDs of other workers, and [`addresses`] checks the addresses
//!   that guests want to use;
//! * [`captures`] begins and ends captures, [`streams`] serves iWARP connections, [`uplink`] frames
//!   and packets, and [`post`] calls the engine;
//! * [`guests`] adds, starts, stops and resets guests, and [`broken`] ends those of a step that
//!   panicked;
//! * [`latencies`] measures some requests, and [`peaks`] samples guests;
//! * [`channels`] takes requests, [`failures`] fails QPs, and [`remap`] applies new memory tables;
//! * [`execution`] executes commands, [`release`] makes them wait for the uplink, and [`order`] for
//!   requests;
//! * [`usage`] accounts for its time, and [`view`] tells observers of it and of objects;
//! * [`sleep`] waits for something to do;
//! * [`run`] is the loop;
//! * [`handle`] starts the loop in a thread, [`members`] adds guests while it runs, and [`workers`]
//!   starts all workers.

mod addresses;
mod broken;
mod captures;
mod channels;
#[cfg(any(test, feature = "fuzzing"))]
mod current_worker;
mod exact_wait;
mod execution;
mod failures;
mod fetched_requests;
mod guests;
mod handle;
#[cfg(any(test, feature = "fuzzing"))]
pub mod inline;
mod latencies;
mod link;
mod mail;
mod members;
mod order;
pub mod packets;
mod peaks;
mod peers;
mod pending_release;
mod polling;
mod post;
mod release;
mod remap;
mod run;
mod second_look;
mod sinks;
mod sleep;
mod streams;
mod sync;
mod turns;
mod uplink;
mod usage;
mod view;
mod watch;
mod workers;

pub use execution::{CommandError, Job, Order};
pub use handle::WorkerHandle;
pub use members::{GuestPlacement, Members};
pub use view::WorkerAccount;
pub use workers::Workers;

use crate::config::Congestion;
use crate::device::objects::CqUser;
use crate::device::outputs::Outputs;
use crate::gids::GidView;
use crate::memory::MrMemory;
use crate::net::Net;
use crate::queue::channel::{Channel, ChannelError};
use crate::ratelimit::{RateLimit, limited};
use crate::streams::Streams;
use crate::translate::event::AsyncEvent;
use crossbeam_channel::Receiver;
use fetched_requests::Fetched;
use link::{PortState, Uplink};
use mail::Mail;
use packets::PacketPort;
use pending_release::PendingRelease;
use polling::Polling;
use second_look::SecondLook;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use turns::Turns;
use usage::{Rounds, Usage};
use vmm_sys_util::epoll::Epoll;
use vmm_sys_util::event::EventConsumer;
use vrdma_transport::{self as transport, DeviceId, DrainRequest, Engine, GidEntry, OwnerId, Sge};
use vrdma_wire::num::Qpn;

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
    /// Congestion control of the uplink.
    congestion: Congestion,
    /// The guests' Ethernet functions and their switch.
    pub net: Net,
    uplink: Option<Uplink>,
    /// The inter-worker endpoint to other engines, if there are other workers.
    packet_port: Option<PacketPort>,
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
    releases: Vec<PendingRelease>,
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
    /// Whether guests may make no QPs and iWARP connections, because the daemon is to end.
    pub is_draining: bool,
    /// Requests copied out of a channel.
    fetched: Box<Fetched>,
    sges: Vec<Sge>,
    /// Limits log messages about guests' violations.
    pub violations: RateLimit,
    /// Number of requests taken from all channels.
    requests: u64,
    /// Number of times that the worker slept.
    sleeps: u64,
    /// The time that it slept until it was woken.
    asleep: Duration,
    /// Rounds since the last second look.
    turns: u32,
    /// Rounds so far.
    rounds: Rounds,
    /// How it has spent its time.
    usage: Usage,
    /// When guests were sampled for their peaks.
    sampled: transport::Instant,
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
    Answer(DrainRequest),
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

    #[cold]
    fn channel_broken(&mut self, index: usize, reason: ChannelError) {
        let bound = &self.channels[index];
        let (id, queue, owner) = (bound.device, bound.channel.index(), bound.owner);
        self.outputs.async_event(id, AsyncEvent::channel_error(queue));
        let device = self.outputs.device(id);
        device.counters.broken_channels += 1;
        let name = &device.guest.name;
        limited!(self.violations, Warn, guest = device.guest.configured_name();
            "guest {name}: channel {queue} of context {} is broken: {reason}", owner.0);
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
