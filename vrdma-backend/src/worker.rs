//! The loop that does all the work: takes requests from channels, drives the engine, tells of completions.
//!
//! A worker owns its devices' engines, queues and regions, so there are no locks inside. Others talk to it by sending closures
//! ([`WorkerHandle::call`]), which it runs between two turns.

mod channels;
mod execute;
mod failures;
mod guests;
#[cfg(any(test, feature = "fuzzing"))]
pub mod inline;
mod loans;
mod mail;
mod order;
mod post;
mod remap;
mod sleep;
mod uplink;

/// What [`mail`] synchronises by. Under loom it is loom's.
mod sync {
    pub use std::sync::atomic::{AtomicBool, Ordering};
}

use crate::config::Poll;
use crate::device::command::{Command, CommandError, Reply};
use crate::device::outputs::Outputs;
use crate::memory::MrMemory;
use crate::net::Net;
use crate::queue::channel::{Channel, ChannelError, NO_WORDS, RequestWords};
use crate::ratelimit::RateLimit;
use crate::translate::event::AsyncEvent;
use crate::translate::wqe::MAX_SGE;
use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use loans::Recall;
use mail::Mail;
use order::Barrier;
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uplink::{PortState, Uplink};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::event::{EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier};
use vrdma_transport::{self as transport, DeviceId, Engine, OwnerId, Sge};
use vrdma_wire::num::Qpn;

/// Bytes that the engine may copy in one turn before channels are looked at again.
const COPY_BUDGET: u64 = 1 << 20;
/// Messages carried out in one turn: guests that never stop giving commands leave the others their turns.
const MESSAGES: usize = 16;
/// Turns for which a reading of the clock is good enough while nothing waits for a deadline: a few microseconds.
const CLOCK_TURNS: u32 = 16;
/// Turns without work after which the processor is offered to others between two turns.
const SPINS: u32 = 256;
/// A yield that takes longer means that another thread ran meanwhile.
const CROWDED: Duration = Duration::from_micros(20);
/// Turns after which a worker that does not sleep looks at them once more.
const LOOK_TURNS: u32 = 4096;

/// In what epoll returns: the kick of an Ethernet function, of the guest whose number is in the upper half.
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
    /// Those of a guest are adjacent.
    channels: Vec<BoundChannel>,
    channel_turns: channels::Turns,
    /// Channels bound so far.
    serials: u64,
    /// What waits until channels are drained.
    barriers: Vec<Barrier>,
    /// What waits until the uplink has given memory back.
    recalls: Vec<Recall>,
    /// Turns since the uplink was asked for memory.
    since_reclaim: u32,
    /// QPs whose CQs failed, of each of these guests, in the order of their turns.
    failing: VecDeque<(DeviceId, Vec<Qpn>)>,
    inbox: Receiver<Message>,
    /// There may be something in the inbox: cheaper to look at than the inbox.
    mail: Arc<Mail>,
    wake: EventConsumer,
    epoll: Epoll,
    started: Instant,
    /// The engine's clock as last read, and for how many turns more that will do.
    clock: (transport::Instant, u32),
    poll: Poll,
    stop: bool,
    words: Box<RequestWords>,
    sges: Vec<Sge>,
    /// What guests did wrong, for the log.
    pub violations: RateLimit,
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

/// How other threads reach a worker.
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    outbox: Sender<Message>,
    mail: Arc<Mail>,
    wake: Arc<EventNotifier>,
}

/// The worker's thread ended. It does so only when the daemon stops.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the worker has stopped")]
pub struct Stopped;

impl WorkerHandle {
    /// Runs `f` in the worker, between two turns, and returns what it returns.
    ///
    /// # Errors
    /// The worker has stopped.
    pub fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Worker) -> R + Send + 'static,
    ) -> Result<R, Stopped> {
        // The caller waits for the answer, so it is there to take it.
        self.ask(|reply| Box::new(move |worker| drop(reply.send(f(worker)))))
    }

    /// Has the worker carry out a command after the requests that were posted before it, and returns its result.
    ///
    /// # Errors
    /// The worker has stopped.
    pub fn execute(&self, id: DeviceId, command: Command) -> Result<Result<Reply, CommandError>, Stopped> {
        self.ask(|reply| {
            Box::new(move |worker| {
                worker.execute_in_order(id, command, move |result| drop(reply.send(result)));
            })
        })
    }

    /// Sends a message that answers by a channel, and waits for the answer.
    fn ask<R>(&self, message: impl FnOnce(Sender<R>) -> Message) -> Result<R, Stopped> {
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.outbox.send(message(reply)).map_err(|_| Stopped)?;
        self.mail.announce();
        // A full counter means that the worker is being woken already.
        let _ = self.wake.notify();
        #[cfg(any(test, feature = "fuzzing"))]
        if inline::is_here() {
            return inline::wait(&answer);
        }
        answer.recv().map_err(|_| Stopped)
    }
}

impl Worker {
    /// Starts a worker in a thread of its own.
    ///
    /// # Errors
    /// The system has no thread, eventfd or epoll left.
    pub fn spawn(poll: Poll, mtu: u16) -> Result<(WorkerHandle, JoinHandle<()>)> {
        let (worker, handle) = Worker::new(poll, mtu)?;
        let thread = std::thread::Builder::new().name("worker".into()).spawn(move || worker.run())?;
        Ok((handle, thread))
    }

    fn new(poll: Poll, mtu: u16) -> Result<(Worker, WorkerHandle)> {
        let (outbox, inbox) = crossbeam_channel::unbounded();
        let mail = Arc::new(Mail { flag: sync::AtomicBool::new(false) });
        let (consumer, notifier) =
            new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC).context("eventfd")?;
        let epoll = Epoll::new().context("epoll")?;
        let event = EpollEvent::new(EventSet::IN, 0);
        epoll.ctl(ControlOperation::Add, consumer.as_raw_fd(), event).context("epoll")?;
        let mut seed = [0; 8];
        vmm_sys_util::rand::rand_bytes(8).iter().zip(&mut seed).for_each(|(from, to)| *to = *from);
        let worker = Worker {
            engine: Engine::new(u64::from_ne_bytes(seed)),
            outputs: Outputs::default(),
            port: PortState::default(),
            net: Net::new(mtu),
            uplink: None,
            channels: Vec::new(),
            channel_turns: channels::Turns::default(),
            serials: 0,
            barriers: Vec::new(),
            recalls: Vec::new(),
            since_reclaim: loans::RECLAIM_TURNS,
            failing: VecDeque::new(),
            inbox,
            mail: mail.clone(),
            wake: consumer,
            epoll,
            started: Instant::now(),
            clock: (transport::Instant(0), 0),
            poll,
            stop: false,
            words: Box::new(NO_WORDS),
            sges: Vec::with_capacity(MAX_SGE),
            violations: RateLimit::default(),
            sleeps: 0,
            turns: 0,
        };
        Ok((worker, WorkerHandle { outbox, mail, wake: Arc::new(notifier) }))
    }

    /// Ends the loop after this turn.
    pub fn stop(&mut self) {
        self.stop = true;
    }

    /// The engine's clock.
    pub fn now(&self) -> transport::Instant {
        transport::Instant(self.started.elapsed().as_nanos() as u64)
    }

    /// Times that the worker slept.
    pub fn sleeps(&self) -> u64 {
        self.sleeps
    }

    fn run(mut self) {
        let mut idle_since = None;
        let mut idle_turns = 0u32;
        while !self.stop {
            if self.turn() {
                (idle_since, idle_turns) = (None, 0);
                continue;
            }
            idle_turns = idle_turns.saturating_add(1);
            if idle_turns < SPINS || self.poll == Poll::Always {
                std::hint::spin_loop();
                continue;
            }
            let now = Instant::now();
            let since = *idle_since.get_or_insert(now);
            if self.may_poll_on(since, now) {
                continue;
            }
            self.sleep();
            (idle_since, idle_turns) = (None, 0);
        }
    }

    /// Between two turns without work: whether to go on polling.
    fn may_poll_on(&self, since: Instant, now: Instant) -> bool {
        let Poll::For(time) = self.poll else { return true };
        if now.duration_since(since) >= time {
            return false;
        }
        std::thread::yield_now();
        // Somebody else wants this processor, and if it is the guest, polling only delays what we wait for: a kick will wake us at once.
        now.elapsed() < CROWDED
    }

    /// Does what there is to do; true if there was anything.
    fn turn(&mut self) -> bool {
        let mut busy = self.mail.may_be_there() && self.run_messages();
        let now = self.recent();
        busy |= self.receive_frames(now);
        busy |= self.drain_channels(now);
        busy |= self.pass_barriers(now);
        busy |= self.engine.poll(now, COPY_BUDGET, &mut self.outputs);
        busy |= self.serve_ethernet(now);
        busy |= self.transmit_packets(now);
        busy |= self.recall(now);
        self.watch_link(now);
        busy |= self.fail_cqs();
        self.outputs.flush();
        self.net.flush();
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

    /// The time as of a few turns ago, or now if anything waits for a deadline.
    fn recent(&mut self) -> transport::Instant {
        if self.clock.1 == 0 || self.engine.poll_timeout().is_some() {
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
