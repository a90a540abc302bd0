//! Starts a worker, and lets other threads reach it.

#[cfg(any(test, feature = "fuzzing"))]
use super::current_worker;
use super::link::PortState;
use super::mail::Mail;
use super::pending_release::RECLAIM_TURNS;
use super::polling::Polling;
use super::second_look::SecondLook;
use super::streams::STREAMS;
use super::sync::{AtomicBool, Ordering};
use super::turns::Turns;
use super::usage::{Rounds, Usage};
use super::{CommandError, Job, Message, Stopped, Worker};
use crate::config::{Congestion, Poll};
use crate::device::broken::step;
use crate::device::outputs::Outputs;
use crate::jail;
use crate::memory::Pins;
use crate::net::Net;
use crate::processors::pin;
use crate::ratelimit::RateLimit;
use crate::streams::Streams;
use crate::translate::wqe::MAX_SGE;
use anyhow::{Context, Result};
use crossbeam_channel::{RecvTimeoutError, Sender};
use rustix::thread::set_current_timer_slack;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::event::{EventFlag, EventNotifier, new_event_consumer_and_notifier};
use vrdma_transport::{self as transport, DeviceId, Engine};

/// How often a thread that waits for an answer checks whether the worker is stuck.
const LOOK: Duration = Duration::from_millis(100);
/// How long such a thread waits for a worker that nobody watches.
const PATIENCE: Duration = Duration::from_secs(5);
/// The number of regions that are visited in one message.
const SLICE: usize = 1024;

/// A handle by which other threads reach a worker.
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    pub(super) outbox: Sender<Message>,
    mail: Arc<Mail>,
    wake: Arc<EventNotifier>,
    /// Set while the watch thread finds that the worker makes no progress.
    stuck: Arc<AtomicBool>,
}

impl WorkerHandle {
    /// Runs `f` in the worker between two rounds, and returns its result.
    ///
    /// # Errors
    /// The worker has stopped.
    pub fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Worker) -> R + Send + 'static,
    ) -> Result<R, Stopped> {
        // The caller waits for the answer, so it is there to receive it.
        self.ask(|reply| Box::new(move |worker| drop(reply.send(f(worker)))))
    }

    /// Has the worker execute a command after the requests that were posted before it. Returns its
    /// result.
    ///
    /// # Errors
    /// The worker has stopped.
    pub fn execute<R: Send + 'static>(
        &self,
        id: DeviceId,
        job: Job<R>,
    ) -> Result<Result<R, CommandError>, Stopped> {
        self.ask(|reply| {
            Box::new(move |worker| {
                // If the command panics, there is no answer.
                let done = move |result| drop(reply.send(result));
                worker.step(step::COMMAND, id, |worker| worker.execute_in_order(id, job, done));
            })
        })
    }

    /// Runs `f` in the worker between two rounds, and returns its result, or `None` if the worker
    /// is stuck or does not answer for [`PATIENCE`].
    ///
    /// # Errors
    /// The worker has stopped.
    pub fn call_unless_stuck<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Worker) -> R + Send + 'static,
    ) -> Result<Option<R>, Stopped> {
        // What is sent to a stuck worker stays until it goes on.
        if self.is_stuck() {
            return Ok(None);
        }
        let (reply, answer) = crossbeam_channel::bounded(1);
        // A caller that found the worker stuck is gone when the answer comes late.
        self.send(Box::new(move |worker| drop(reply.send(f(worker)))))?;
        let until = Instant::now() + PATIENCE;
        while !self.is_stuck() && Instant::now() < until {
            match answer.recv_timeout(LOOK) {
                Ok(answer) => return Ok(Some(answer)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Stopped),
            }
        }
        Ok(None)
    }

    /// Has the worker run `f` without waiting for it. A worker that has stopped does nothing.
    pub fn tell(&self, f: impl FnOnce(&mut Worker) + Send + 'static) {
        let _ = self.send(Box::new(f));
    }

    /// Whether the worker makes no progress.
    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }

    /// Sets whether the worker makes no progress.
    pub(super) fn set_stuck(&self, stuck: bool) {
        self.stuck.store(stuck, Ordering::Relaxed);
    }

    /// Waits until the uplink has released this memory, or will not do so soon.
    ///
    /// # Errors
    /// The worker has stopped.
    pub fn wait_for(&self, pins: Pins) -> Result<(), Stopped> {
        self.ask(|reply| Box::new(move |worker| worker.when_released(pins, move |_| _ = reply.send(()))))
    }

    /// Waits until the uplink has released all memory of a device, or will not do so soon.
    ///
    /// No more is passed to it, because the device is suspended.
    ///
    /// # Errors
    /// The worker has stopped.
    pub fn wait_for_device(&self, id: DeviceId) -> Result<(), Stopped> {
        let pins =
            move |worker: &mut Worker| worker.uplink.as_ref().is_some_and(|uplink| uplink.has_pinned());
        if !self.call(pins)? {
            return Ok(());
        }
        let regions = self.call(move |worker| worker.engine.region_indices(id))?;
        let mut pins = Pins::default();
        for start in (0..regions).step_by(SLICE) {
            pins.extend(self.call(move |worker| worker.revoke_pins(id, start..start + SLICE))?);
        }
        self.wait_for(pins)
    }

    fn send(&self, message: Message) -> Result<(), Stopped> {
        self.outbox.send(message).map_err(|_| Stopped)?;
        self.mail.announce();
        // A full counter means that the worker is being woken already.
        let _ = self.wake.notify();
        Ok(())
    }

    /// Sends a message that answers by a channel, and waits for the answer.
    pub(super) fn ask<R>(&self, message: impl FnOnce(Sender<R>) -> Message) -> Result<R, Stopped> {
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.send(message(reply))?;
        #[cfg(any(test, feature = "fuzzing"))]
        if current_worker::is_here() {
            return current_worker::wait(&answer);
        }
        answer.recv().map_err(|_| Stopped)
    }
}

/// Makes timers of the calling thread exact, so that naps end on time.
///
/// By default they may end 50 us late, as it suits the system.
fn exact_naps() {
    if let Err(error) = set_current_timer_slack(NonZeroU64::new(SLACK_NS)) {
        log::debug!("timers cannot be made exact: {error}");
    }
}

/// The delay that the system may add to a worker's timers, in nanoseconds.
const SLACK_NS: u64 = 1000;

impl Worker {
    /// Starts a worker in its own thread.
    ///
    /// # Errors
    /// The system has no thread, eventfd or epoll left, or the worker may not run on its processor.
    pub fn spawn(
        name: &str,
        cpu: Option<u16>,
        poll: Poll,
        mtu: u16,
    ) -> Result<(WorkerHandle, JoinHandle<()>)> {
        let (worker, handle) = Worker::new(poll, mtu)?;
        let (pinned, is_pinned) = crossbeam_channel::bounded(1);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            jail::confine(jail::Kind::Worker);
            let result = cpu.map_or(Ok(()), pin);
            let goes_on = result.is_ok();
            // The caller of `spawn` waits for this.
            let _ = pinned.send(result);
            if goes_on {
                exact_naps();
                worker.run();
            }
        })?;
        let result = is_pinned.recv().context("the worker's thread")?;
        result.with_context(|| format!("cpus = {}: {name} may not run there", cpu.unwrap_or_default()))?;
        Ok((handle, thread))
    }

    pub(super) fn new(poll: Poll, mtu: u16) -> Result<(Worker, WorkerHandle)> {
        let (outbox, inbox) = crossbeam_channel::unbounded();
        let mail = Arc::new(Mail { flag: AtomicBool::new(false) });
        let (consumer, notifier) =
            new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC).context("eventfd")?;
        let epoll = Epoll::new().context("epoll")?;
        let event = EpollEvent::new(EventSet::IN, 0);
        epoll.ctl(ControlOperation::Add, consumer.as_raw_fd(), event).context("epoll")?;
        let streams = Streams::new().context("epoll")?;
        streams.watch_in(&epoll, STREAMS).context("epoll")?;
        let second_look = SecondLook::new(&epoll).context("timerfd")?;
        let mut seed = [0; 8];
        vmm_sys_util::rand::rand_bytes(8).iter().zip(&mut seed).for_each(|(from, to)| *to = *from);
        let worker = Worker {
            engine: Engine::new(u64::from_ne_bytes(seed)),
            outputs: Outputs::default(),
            port: PortState::default(),
            congestion: Congestion::default(),
            net: Net::new(mtu),
            uplink: None,
            packet_port: None,
            gids: None,
            claimed: Vec::new(),
            streams,
            has_streams: false,
            channels: Vec::new(),
            channel_turns: Turns::default(),
            serials: 0,
            barriers: Vec::new(),
            releases: Vec::new(),
            since_reclaim: RECLAIM_TURNS,
            failing: VecDeque::new(),
            inbox,
            mail: mail.clone(),
            wake: consumer,
            epoll,
            second_look,
            clock: (transport::Instant(0), 0),
            polling: Polling::new(poll),
            stop: false,
            is_draining: false,
            fetched: Box::default(),
            sges: Vec::with_capacity(MAX_SGE),
            violations: RateLimit::default(),
            requests: 0,
            sleeps: 0,
            asleep: Duration::ZERO,
            turns: 0,
            rounds: Rounds::default(),
            usage: Usage::default(),
            sampled: transport::Instant(0),
        };
        let stuck = Arc::default();
        Ok((worker, WorkerHandle { outbox, mail, wake: Arc::new(notifier), stuck }))
    }
}
