//! A worker begins, and how other threads reach it.

#[cfg(any(test, feature = "fuzzing"))]
use super::here;
use super::link::PortState;
use super::mail::Mail;
use super::polling::Polling;
use super::recall::RECLAIM_TURNS;
use super::second_look::SecondLook;
use super::streams::STREAMS;
use super::sync::{AtomicBool, Ordering};
use super::turns::Turns;
use super::{CommandError, Job, Message, Stopped, Worker};
use crate::config::Poll;
use crate::device::broken::step;
use crate::device::outputs::Outputs;
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
use std::time::Duration;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::event::{EventFlag, EventNotifier, new_event_consumer_and_notifier};
use vrdma_transport::{self as transport, DeviceId, Engine};

/// How often one who waits for an answer looks whether the worker is stuck.
const LOOK: Duration = Duration::from_millis(100);

/// How other threads reach a worker.
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    pub(super) outbox: Sender<Message>,
    mail: Arc<Mail>,
    wake: Arc<EventNotifier>,
    /// Whoever watches the workers finds that this one does not go on.
    stuck: Arc<AtomicBool>,
}

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

    /// Has the worker carry out a command after the requests that were posted before it, and
    /// returns its result.
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
                // Without an answer if it panics.
                let done = move |result| drop(reply.send(result));
                worker.step(step::COMMAND, id, |worker| worker.execute_in_order(id, job, done));
            })
        })
    }

    /// Runs `f` in the worker, between two turns, and returns what it returns; `None` if the worker
    /// is stuck.
    ///
    /// # Errors
    /// The worker has stopped.
    pub fn call_unless_stuck<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Worker) -> R + Send + 'static,
    ) -> Result<Option<R>, Stopped> {
        let (reply, answer) = crossbeam_channel::bounded(1);
        // Who found it stuck does not wait for the answer, which may come late.
        self.send(Box::new(move |worker| drop(reply.send(f(worker)))))?;
        while !self.is_stuck() {
            match answer.recv_timeout(LOOK) {
                Ok(answer) => return Ok(Some(answer)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Stopped),
            }
        }
        Ok(None)
    }

    /// Has the worker do something, and does not wait for it. If it has stopped it does nothing any
    /// more.
    pub fn tell(&self, f: impl FnOnce(&mut Worker) + Send + 'static) {
        let _ = self.send(Box::new(f));
    }

    /// Whether the worker does not go on.
    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }

    /// Says whether it does not.
    pub(super) fn set_stuck(&self, stuck: bool) {
        self.stuck.store(stuck, Ordering::Relaxed);
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
        if here::is_here() {
            return here::wait(&answer);
        }
        answer.recv().map_err(|_| Stopped)
    }
}

/// Has the calling thread woken from naps when they are over, not when it suits the system (50 us
/// later, by default).
fn exact_naps() {
    if let Err(error) = set_current_timer_slack(NonZeroU64::new(SLACK_NS)) {
        log::debug!("timers cannot be made exact: {error}");
    }
}

/// Nanoseconds that a worker's timers may be late for the system's sake.
const SLACK_NS: u64 = 1000;

impl Worker {
    /// Starts a worker in a thread of its own.
    ///
    /// # Errors
    /// The system has no thread, eventfd or epoll left.
    pub fn spawn(
        name: &str,
        cpu: Option<u16>,
        poll: Poll,
        mtu: u16,
    ) -> Result<(WorkerHandle, JoinHandle<()>)> {
        let (worker, handle) = Worker::new(poll, mtu)?;
        let (pinned, is_pinned) = crossbeam_channel::bounded(1);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            let result = cpu.map_or(Ok(()), pin);
            let goes_on = result.is_ok();
            // The starter waits for it.
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
            net: Net::new(mtu),
            uplink: None,
            near: None,
            gids: None,
            claimed: Vec::new(),
            streams,
            has_streams: false,
            channels: Vec::new(),
            channel_turns: Turns::default(),
            serials: 0,
            barriers: Vec::new(),
            recalls: Vec::new(),
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
            fetched: Box::default(),
            sges: Vec::with_capacity(MAX_SGE),
            violations: RateLimit::default(),
            requests: 0,
            sleeps: 0,
            turns: 0,
        };
        let stuck = Arc::default();
        Ok((worker, WorkerHandle { outbox, mail, wake: Arc::new(notifier), stuck }))
    }
}
