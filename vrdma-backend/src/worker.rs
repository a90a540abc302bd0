//! The loop that does all the work: takes requests from channels, drives the engine, tells of completions.
//!
//! A worker owns its devices' engines, queues and regions, so there are no locks inside. Others talk to it by sending closures
//! ([`WorkerHandle::call`]), which it runs between two turns.

mod execute;
mod guests;
#[cfg(any(test, feature = "fuzzing"))]
pub mod inline;
mod loans;
mod mail;
mod order;
mod remap;
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
use crate::queue::channel::{Broken, Channel, RequestWords};
use crate::ratelimit::RateLimit;
use crate::translate::event::AsyncEvent;
use crate::translate::wqe::{MAX_SGE, Request, destination, parse};
use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use loans::Recall;
use mail::Mail;
use order::Barrier;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uplink::{PortState, UPLINK, Uplink};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::event::{EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier};
use vrdma_transport::{self as transport, DeviceId, Engine, OwnerId, PostError, SendOp, Sge};
use vrdma_wire::num::Qpn;

/// Bytes that the engine may copy in one turn before channels are looked at again.
const COPY_BUDGET: u64 = 1 << 20;
/// Messages carried out in one turn: guests that never stop giving commands leave the others their turns.
const MESSAGES: usize = 16;
/// Requests taken from one channel in one turn.
const BATCH: usize = 64;
/// Turns for which a reading of the clock is good enough while nothing waits for a deadline: a few microseconds.
const CLOCK_TURNS: u32 = 16;
/// Turns without work after which the processor is offered to others between two turns.
const SPINS: u32 = 256;
/// A yield that takes longer means that another thread ran meanwhile.
const CROWDED: Duration = Duration::from_micros(20);
/// How long a sleep is at first; then the worker looks at what guests wrote once more, and sleeps on. Rings are shared without locks: who
/// publishes and then looks at the other's wish has to have a barrier between. A guest's may be none (a `lock`ed instruction in a VM with
/// one processor under QEMU's TCG), so what it wrote may show after the worker looked; after this time it has long left the store buffer.
const SECOND_LOOK: Duration = Duration::from_millis(1);
/// Turns after which a worker that does not sleep looks at them once more.
const LOOK_TURNS: u32 = 4096;
/// Requests flushed in one turn of QPs whose CQ failed; those of one QP are flushed together.
const FAILURES: u64 = 2048;
/// What a QP costs of it besides.
const QP_FAILURE: u64 = 8;
/// How often events that found no buffer are tried again while the worker would sleep.
const EVENT_RETRY: Duration = Duration::from_millis(10);

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
    channels: Vec<BoundChannel>,
    /// Channels bound so far.
    serials: u64,
    /// What waits until channels are drained.
    barriers: Vec<Barrier>,
    /// What waits until the uplink has given memory back.
    recalls: Vec<Recall>,
    /// Turns since the uplink was asked for memory.
    since_reclaim: u32,
    /// QPs whose CQ failed, by device.
    failing: Vec<(DeviceId, Vec<Qpn>)>,
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
    pub misdeeds: RateLimit,
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
            serials: 0,
            barriers: Vec::new(),
            recalls: Vec::new(),
            since_reclaim: loans::RECLAIM_TURNS,
            failing: Vec::new(),
            inbox,
            mail: mail.clone(),
            wake: consumer,
            epoll,
            started: Instant::now(),
            clock: (transport::Instant(0), 0),
            poll,
            stop: false,
            words: Box::new([0; 64]),
            sges: Vec::with_capacity(MAX_SGE),
            misdeeds: RateLimit::default(),
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
        for index in 0..self.channels.len() {
            busy |= self.drain_channel(index, now);
        }
        busy |= self.pass_barriers(now);
        busy |= self.engine.poll(now, COPY_BUDGET, &mut self.outputs);
        busy |= self.serve_ethernet(now);
        busy |= self.transmit_packets(now);
        busy |= self.recall(now);
        self.watch_link(now);
        busy |= self.fail_cqs();
        self.outputs.flush();
        self.net.flush();
        self.turns += 1;
        if self.turns >= LOOK_TURNS {
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

    /// Takes up to [`BATCH`] requests from a channel; true if there were any.
    fn drain_channel(&mut self, index: usize, now: transport::Instant) -> bool {
        let bound = &mut self.channels[index];
        match bound.channel.refresh() {
            Ok(true) => {}
            Ok(false) => return false,
            Err(broken) => return self.channel_broken(index, broken),
        }
        let (device, owner) = (bound.device, bound.owner);
        let mut taken = 0;
        let result = loop {
            if taken == BATCH {
                break Ok(());
            }
            match self.channels[index].channel.pop(&mut self.words) {
                Ok(Some(units)) => {
                    taken += 1;
                    self.post(device, owner, units, now);
                }
                Ok(None) => break Ok(()),
                Err(broken) => break Err(broken),
            }
        };
        self.channels[index].channel.publish_used();
        self.outputs.device(device).counters.requests += taken as u64;
        match result {
            Ok(()) => taken != 0,
            Err(broken) => self.channel_broken(index, broken),
        }
    }

    /// Hands the request in `self.words` to the engine.
    #[inline]
    fn post(&mut self, device: DeviceId, owner: OwnerId, units: usize, now: transport::Instant) {
        let engine = &mut self.engine;
        // By reference: the request is read where the parser wrote it, field by field.
        let result = match &parse(&self.words, units, &mut self.sges) {
            &Request::Send(qpn, ref request)
                if matches!(request.op, SendOp::Send { .. }) && engine.is_datagram(device, qpn) =>
            {
                let handles = self.outputs.device(device).ah_table();
                match handles.and_then(|handles| destination(&self.words, |index| handles.get(index))) {
                    Some(to) => {
                        engine.post_datagram(now, device, owner, qpn, request, &to, &mut self.outputs)
                    }
                    None => {
                        self.outputs.device(device).counters.bad_address_handles += 1;
                        let queue = transport::Queue::Send;
                        engine.post_invalid(now, device, owner, qpn, request.id, queue, &mut self.outputs)
                    }
                }
            }
            &Request::Send(qpn, ref request) => {
                engine.post_send(now, device, owner, qpn, request, &mut self.outputs)
            }
            &Request::Recv(qpn, request) => {
                engine.post_recv(now, device, owner, qpn, request, &mut self.outputs)
            }
            &Request::Invalid(qpn, id, queue) => {
                self.outputs.device(device).counters.invalid_requests += 1;
                engine.post_invalid(now, device, owner, qpn, id, queue, &mut self.outputs)
            }
            Request::Stray => Err(PostError::NoSuchQp),
        };
        if let Err(error) = result {
            let counters = &mut self.outputs.device(device).counters;
            match error {
                PostError::NoSuchQp | PostError::NotOwner => counters.stray_requests += 1,
                PostError::BadState => counters.untimely_requests += 1,
                PostError::Overflow => counters.overflows += 1,
            }
        }
    }

    #[cold]
    fn channel_broken(&mut self, index: usize, reason: Broken) -> bool {
        let bound = &self.channels[index];
        let (id, queue, owner) = (bound.device, bound.channel.index(), bound.owner);
        self.outputs.async_event(id, AsyncEvent::channel_error(queue));
        let device = self.outputs.device(id);
        device.counters.broken_channels += 1;
        let name = &device.guest.name;
        self.misdeeds
            .warn(|| format!("guest {name}: channel {queue} of context {} is broken: {reason}", owner.0));
        true
    }

    /// Takes QPs to ERR whose CQs failed, some in each turn; true if there are more.
    #[inline]
    fn fail_cqs(&mut self) -> bool {
        while let Some((device, cq)) = self.outputs.failed.pop() {
            self.failing.push((device, self.outputs.device(device).qps_of(cq)));
        }
        !self.failing.is_empty() && self.fail_qps()
    }

    #[cold]
    fn fail_qps(&mut self) -> bool {
        let mut effort = 0;
        while let Some((device, qps)) = self.failing.last_mut() {
            let device = *device;
            let Some(qpn) = qps.pop() else {
                self.failing.pop();
                continue;
            };
            if effort >= FAILURES {
                qps.push(qpn);
                return true;
            }
            let before = self.engine.counters(device).flushes;
            self.engine.cq_failed(device, qpn, &mut self.outputs);
            effort += QP_FAILURE + self.engine.counters(device).flushes - before;
        }
        false
    }

    /// Waits for a kick, a message or a deadline.
    fn sleep(&mut self) {
        let mut late = false;
        for bound in &self.channels {
            late |= bound.channel.arm();
        }
        late |= self.net.arm();
        late |= !self.inbox.is_empty();
        let uplink_limit = self.uplink.as_mut().map(Uplink::arm);
        // What came before that would wake nobody.
        late |= uplink_limit.is_some() && self.receive_frames(self.now());
        late |= self.has_barriers() || !self.recalls.is_empty() || !self.failing.is_empty();
        if !late {
            self.sleeps += 1;
            self.sleep_twice(uplink_limit);
        }
        for bound in &self.channels {
            bound.channel.disarm();
        }
        self.net.disarm();
        if let Some(uplink) = &mut self.uplink {
            uplink.disarm();
        }
    }

    /// Sleeps for a short time, looks again, and sleeps on.
    fn sleep_twice(&mut self, uplink_limit: Option<Duration>) {
        #[cfg(feature = "hooks")]
        crate::hooks::run();
        let limit = self.sleep_limit(uplink_limit);
        if limit.is_some_and(|limit| limit <= SECOND_LOOK) {
            self.wait(limit);
        } else if !self.wait(Some(SECOND_LOOK)) && !self.look_again() {
            let limit = self.sleep_limit(uplink_limit.map(|limit| limit - SECOND_LOOK));
            self.wait(limit);
        }
    }

    /// How long nothing is to be done by itself.
    fn sleep_limit(&mut self, uplink_limit: Option<Duration>) -> Option<Duration> {
        let now = self.now();
        let deadline = self.engine.poll_timeout().map(|at| Duration::from_nanos(at.0.saturating_sub(now.0)));
        let retry = self.outputs.retry_events().then_some(EVENT_RETRY);
        [deadline, retry, uplink_limit].into_iter().flatten().min()
    }

    /// Whether guests have written something that did not show when the worker asked for kicks.
    fn look_again(&mut self) -> bool {
        self.look_for_consumers();
        self.channels.iter_mut().any(|bound| bound.channel.reach().is_some()) || self.net.is_kicked_late()
    }

    /// Looks once more whether those who had asked for no event or interrupt have asked meanwhile.
    fn look_for_consumers(&mut self) {
        self.turns = 0;
        self.outputs.look_again();
        self.net.look_again();
    }

    /// Waits for what epoll watches; false if the time is over.
    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        self.clock.1 = 0;
        // Rounded up, so that the deadline has passed when we wake; but what is less is slept without being woken.
        let millis = match timeout {
            None => -1,
            Some(short) if short < Duration::from_millis(1) => 0,
            Some(long) => long.as_nanos().div_ceil(1_000_000).min(60_000) as i32,
        };
        let mut events = [EpollEvent::default(); 32];
        let count = match self.epoll.wait(millis, &mut events) {
            Ok(0) if millis == 0 => {
                std::thread::sleep(timeout.unwrap_or_default());
                return false;
            }
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => 0,
            Err(error) => panic!("epoll_wait fails only for arguments that are wrong: {error}"),
        };
        for event in &events[..count] {
            match event.data() {
                0 => drop(self.wake.consume()),
                UPLINK => {}
                token if token & NET != 0 => self.net.kicked((token >> 32) as usize),
                token => self.outputs.device(DeviceId((token >> 32) as u32)).counters.kicks += 1,
            }
        }
        count != 0
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
mod tests {
    use super::*;
    use crate::memory::tests::memory;
    use crate::memory::{Run, Shared};
    use crate::queue::Kick;
    use crate::queue::VirtqueueSetup;
    use std::io::Write;
    use std::sync::atomic::Ordering;

    /// A channel of one slot, in memory that is its own, and its kick.
    fn channel() -> (Channel, std::fs::File, Shared) {
        let memory = memory(&[(0, 0x1000)]);
        let words = Shared::new(&memory, Run { gpa: 0, len: 0x1000 }, 8).unwrap();
        words.store64(0x000, 0x400, Ordering::Relaxed);
        words.store64(0x008, 64, Ordering::Relaxed);
        let eventfd = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        let eventfd = std::fs::File::from(eventfd);
        let kick = Kick::new(eventfd.try_clone().unwrap(), &Arc::default()).unwrap();
        let setup = VirtqueueSetup {
            index: 4,
            size: 1,
            desc: 0,
            avail: 0x100,
            used: 0x200,
            event_idx: true,
            kick: Some(Arc::new(kick)),
            call: None,
        };
        let channel = Channel::bind(&memory, setup, &[Run { gpa: 0x400, len: 64 }]).unwrap();
        (channel, eventfd, words)
    }

    #[test]
    fn a_broken_channel_is_watched_until_it_goes_and_no_longer() {
        let (mut worker, _handle) = Worker::new(Poll::Always, 1500).unwrap();
        let (channel, mut eventfd, words) = channel();
        worker.add_channel(DeviceId(0), OwnerId(0), channel);
        let mut kicked = |worker: &Worker| {
            eventfd.write_all(&1u64.to_ne_bytes()).unwrap();
            worker.epoll.wait(0, &mut [EpollEvent::default(); 2]).unwrap() != 0
        };
        assert!(kicked(&worker));
        words.store16(0x102, 7, Ordering::Relaxed);
        assert!(worker.channels[0].channel.refresh().is_err());
        // The front-end has the eventfd too, so that closing it here takes it from no epoll set.
        worker.remove_channel(DeviceId(0), 4).unwrap();
        assert!(!kicked(&worker));
    }

    #[test]
    fn a_channel_whose_entries_are_taken_back_holds_nobody_up() {
        let (mut channel, _eventfd, words) = channel();
        words.store16(0x102, 1, Ordering::Relaxed);
        let mark = channel.reach().unwrap();
        assert!(!channel.has_taken(mark));
        words.store16(0x102, 0, Ordering::Relaxed);
        assert!(channel.refresh().is_err() && channel.has_taken(mark));
    }

    #[test]
    fn qps_of_a_cq_that_failed_are_flushed_in_slices() {
        use crate::config::Config;
        use crate::device::DeviceLimits;
        use crate::queue::cq::CqRing;
        use vrdma_transport::{AttrMask, CqId, PdId, QpAttr, QpInit, QpState, QpType, RecvRequest};
        const QPS: u64 = 500;
        const RECEIVES: u64 = 16;
        let (mut worker, _handle) = Worker::new(Poll::Always, 1500).unwrap();
        let guest = "name=a,socket=/none,mac=52:54:00:00:00:01".parse().unwrap();
        let (id, _) = worker.add_guest(guest, DeviceLimits::new(&Config::default()));
        let memory = memory(&[(0, 0x100000)]);
        let entries = 1 << 14;
        let ring = CqRing::new(&memory, &[Run { gpa: 0, len: CqRing::bytes(entries) }], entries).unwrap();
        let object = |reply| match reply {
            Ok(Reply::Object(number)) => number,
            other => panic!("{other:?}"),
        };
        let create_cq = Command::CreateCq { context: 0, vector: 0, ring: Box::new(ring) };
        let cq = CqId(object(worker.execute(id, create_cq)));
        let pd = PdId(object(worker.execute(id, Command::AllocPd { context: 0 })));
        let init = QpInit {
            owner: OwnerId::KERNEL,
            pd,
            qp_type: QpType::Rc,
            send_cq: cq,
            recv_cq: cq,
            max_send_wr: 1,
            max_recv_wr: RECEIVES as u32,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
        };
        let now = worker.now();
        for _ in 0..QPS {
            let qpn = Qpn::new(object(worker.execute(id, Command::CreateQp { init }))).unwrap();
            let mask = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
            let attr = Box::new(QpAttr { state: QpState::Init, port: 1, ..QpAttr::default() });
            worker.execute(id, Command::ModifyQp { qpn, mask, attr }).unwrap();
            for _ in 0..RECEIVES {
                let request = RecvRequest { id: 0, sges: &[] };
                let Worker { engine, outputs, .. } = &mut worker;
                engine.post_recv(now, id, OwnerId::KERNEL, qpn, request, outputs).unwrap();
            }
        }
        worker.outputs.fail_cq(id, cq);
        let mut before = 0;
        loop {
            let more = worker.fail_cqs();
            let flushed = worker.engine.counters(id).flushes;
            assert!(flushed - before <= FAILURES + RECEIVES, "{flushed} {before}");
            before = flushed;
            if !more {
                break;
            }
        }
        assert_eq!(before, QPS * RECEIVES);
    }

    #[test]
    fn messages_without_end_leave_time_for_the_rest_of_a_turn() {
        let (mut worker, handle) = Worker::new(Poll::Always, 1500).unwrap();
        // Each asks for the next, as many guests do whose commands never end.
        fn again(outbox: Sender<Message>) -> Message {
            Box::new(move |_| outbox.clone().send(again(outbox)).unwrap())
        }
        handle.outbox.send(again(handle.outbox.clone())).unwrap();
        assert!(worker.run_messages() && worker.run_messages());
        assert!(!worker.inbox.is_empty() && !worker.stop);
    }
}
