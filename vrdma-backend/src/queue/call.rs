//! Signals the driver's interrupt such that the front-end can block no other guest.
//!
//! The front-end holds the same eventfd. At any time it can make it blocking and fill its counter,
//! so that a write(2) might never return. Therefore asynchronous I/O is used (`io_submit(2)`): the
//! kernel itself signals an eventfd when a request completes, and never waits. The request reads
//! nothing from `/dev/null`, so it completes before the call returns.
//!
//! The front-end can also watch the eventfd with a million epoll instances, and each signal walks
//! through all of them. If signals to a front-end take long, a thread of its own signals it for a
//! while ([`Record`]). Other threads then only set a flag.

use super::eventfd::Eventfd;
use crate::jail;
use crate::memory::Backlog;
use crossbeam_channel::{Receiver, Sender};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vmm_sys_util::aio::{IOCB_CMD_PREAD, IOCB_FLAG_RESFD, IoContext, IoControlBlock, IoEvent};

/// The eventfd that interrupts the driver.
#[derive(Debug)]
pub struct Call {
    eventfd: Eventfd,
    /// A signal is due, and the ringer's thread has been told.
    due: AtomicBool,
    ringer: Ringer,
}

impl Call {
    /// Takes an eventfd of the front-end, for `ringer` to signal. Waits while too many are `open`.
    ///
    /// # Errors
    /// The file is something else. A write to it might block or do harm.
    pub fn new(file: File, ringer: &Ringer, open: &Arc<Backlog>) -> io::Result<Call> {
        let eventfd = Eventfd::new(file, open)?;
        // This is for systems without asynchronous I/O.
        rustix::io::ioctl_fionbio(eventfd.file(), true)?;
        Ok(Call { eventfd, due: AtomicBool::new(false), ringer: ringer.clone() })
    }

    /// Signals the eventfd, or has it signalled soon. The driver sees all writes made before the
    /// call.
    pub fn ring(self: &Arc<Self>) {
        if !self.ringer.means.ring(self.eventfd.as_raw_fd()) {
            self.hand_over();
        }
    }

    /// Asks the ringer's thread to signal it. One message stands for all calls until that happens.
    #[cold]
    fn hand_over(self: &Arc<Self>) {
        // At most one message of each call waits. The channel is large enough unless the front-end
        // makes new calls all the time. It then loses some signals.
        if !self.due.swap(true, Ordering::AcqRel) && self.ringer.outbox.try_send(self.clone()).is_err() {
            self.due.store(false, Ordering::Release);
        }
    }
}

/// The thread that interrupts the drivers of a function. It ends when nobody can send to it any
/// more.
#[derive(Clone, Debug)]
pub struct Ringer {
    outbox: Sender<Arc<Call>>,
    means: Arc<Means>,
}

/// Largest number of calls that wait: those of all virtqueues of a device, and as many that were
/// replaced.
const WAITING: usize = 512;

impl Ringer {
    /// Starts the thread with this name.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(name: &str) -> io::Result<Ringer> {
        let (outbox, inbox) = crossbeam_channel::bounded(WAITING);
        // The bell is made here, so that failures to get its resources show at the start.
        let bell = Bell::new()
            .inspect_err(|error| {
                log::warn!("{name}: no asynchronous I/O ({error}): its front-end can block it")
            })
            .ok();
        let means = Arc::new(Means { bell, started: Instant::now(), record: Record::default() });
        let theirs = means.clone();
        std::thread::Builder::new().name(name.into()).spawn(move || {
            jail::confine(jail::Kind::Helper);
            run(&inbox, theirs.bell.as_ref());
        })?;
        Ok(Ringer { outbox, means })
    }
}

fn run(inbox: &Receiver<Arc<Call>>, bell: Option<&Bell>) {
    for call in inbox {
        // The flag is cleared before the signal. Writes before a request thus precede its signal,
        // and later requests send a new message.
        call.due.swap(false, Ordering::AcqRel);
        let rung = bell.is_some_and(|bell| bell.ring(call.eventfd.as_raw_fd()).is_ok());
        if !rung {
            // If the counter is full, the driver has been signalled often enough.
            let _ = call.eventfd.file().write(&1u64.to_ne_bytes());
        }
    }
}

/// What all threads share that signal at the same time.
#[derive(Debug)]
struct Means {
    bell: Option<Bell>,
    started: Instant,
    record: Record,
}

impl Means {
    /// Signals the eventfd, unless the front-end's signals have been too slow. Returns false if it
    /// did not.
    fn ring(&self, eventfd: RawFd) -> bool {
        let Some(bell) = &self.bell else { return false };
        let start = self.started.elapsed();
        let cpu = match self.record.care(start) {
            Care::HandOver => return false,
            Care::Measure => Some(cpu_time()),
            Care::Ring => None,
        };
        let rung = bell.ring(eventfd).is_ok();
        let now = self.started.elapsed();
        match cpu {
            Some(before) => self.record.has_used(now, cpu_time() - before),
            None if now - start > SLOW => self.record.was_slow(now, now - start),
            None => {}
        }
        rung
    }
}

/// A signal that takes longer than this delays other guests. A signal with one waiter takes a tenth
/// of it.
const SLOW: Duration = Duration::from_micros(20);
/// Tolerated sum of excesses beyond [`SLOW`].
///
/// If this host is itself a VM, its hypervisor may take the processor away for as long. That counts
/// as used.
const EXCESS: Duration = Duration::from_micros(200);
/// A slow signal is remembered for this many times its duration.
///
/// A front-end therefore costs others at most two parts in this number, beside [`SLOW`] for each
/// signal and [`EXCESS`].
const MEMORY: u32 = 10_000;

/// How slow the signals to a front-end were. The record outlives the front-end, so reconnecting
/// does not reset it.
///
/// Wall-clock time may have gone to other threads of the host, and reading a thread's processor
/// time is expensive. Therefore a signal that was slow by the clock only causes the next ones to be
/// measured. If measured ones took too long together, the next ones go to the ringer's thread.
#[derive(Debug, Default)]
struct Record {
    /// Time until which signals are measured, in nanoseconds of the ringer's clock.
    measure: AtomicU64,
    /// Time until which signals go to the ringer's thread, in nanoseconds of the ringer's clock.
    hand_over: AtomicU64,
    /// Nanoseconds that measured signals took beyond [`SLOW`] each. Shorter signals reduce it.
    excess: AtomicU64,
}

/// How to signal an eventfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Care {
    /// Signal at once.
    Ring,
    /// Signal at once, and measure the processor time.
    Measure,
    /// Leave it to the ringer's thread.
    HandOver,
}

impl Record {
    fn care(&self, now: Duration) -> Care {
        let now = nanos(now);
        if now < self.hand_over.load(Ordering::Relaxed) {
            Care::HandOver
        } else if now < self.measure.load(Ordering::Relaxed) {
            Care::Measure
        } else {
            Care::Ring
        }
    }

    /// Records that a signal was slow by the clock, and was not measured.
    #[cold]
    fn was_slow(&self, now: Duration, elapsed: Duration) {
        self.measure.fetch_max(nanos(now + elapsed * MEMORY), Ordering::Relaxed);
    }

    /// Records the processor time of a measured signal.
    #[cold]
    fn has_used(&self, now: Duration, used: Duration) {
        // If two threads signal at the same time, the time of one may be lost.
        let before = self.excess.load(Ordering::Relaxed);
        let excess = (before + nanos(used)).saturating_sub(nanos(SLOW));
        let too_much = excess > nanos(EXCESS);
        self.excess.store(if too_much { 0 } else { excess }, Ordering::Relaxed);
        if too_much {
            let until = now + Duration::from_nanos(excess) * MEMORY;
            self.hand_over.fetch_max(nanos(until), Ordering::Relaxed);
            // After that time, signals are measured again.
            self.measure.fetch_max(nanos(until + Duration::from_nanos(excess) * MEMORY), Ordering::Relaxed);
        } else if used > SLOW {
            self.measure.fetch_max(nanos(now + used * MEMORY), Ordering::Relaxed);
        }
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// Returns the processor time that this thread has used.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// An asynchronous I/O context by which the kernel signals eventfds. Any number of threads may use
/// it.
#[derive(Debug)]
struct Bell {
    context: IoContext,
    null: File,
}

/// Least number of completions that the context has room for. As many are taken out at once.
const ROOM: usize = 64;

impl Bell {
    fn new() -> io::Result<Bell> {
        Ok(Bell { context: IoContext::new(ROOM as u32)?, null: File::open("/dev/null")? })
    }

    fn ring(&self, eventfd: RawFd) -> io::Result<()> {
        match self.submit(eventfd) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.make_room()?;
                self.submit(eventfd)
            }
            result => result,
        }
    }

    fn submit(&self, eventfd: RawFd) -> io::Result<()> {
        let mut request = IoControlBlock {
            aio_fildes: self.null.as_raw_fd() as u32,
            aio_lio_opcode: IOCB_CMD_PREAD as u16,
            aio_flags: IOCB_FLAG_RESFD,
            aio_resfd: eventfd as u32,
            ..IoControlBlock::default()
        };
        self.context.submit(&[&mut request]).map(drop)
    }

    /// Discards completions. Nobody needs them.
    #[cold]
    fn make_room(&self) -> io::Result<()> {
        let mut at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        self.context.get_events(0, &mut [IoEvent::default(); ROOM], Some(&mut at_once)).map(drop)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, epoll};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::io::Read;
    use std::os::fd::OwnedFd;

    /// Creates a call with a ringer of its own.
    pub(crate) fn call(file: File) -> io::Result<Arc<Call>> {
        Call::new(file, &Ringer::start("test").unwrap(), &Arc::default()).map(Arc::new)
    }

    fn eventfd() -> (Arc<Call>, File) {
        let ours = File::from(rustix::event::eventfd(0, EventfdFlags::empty()).unwrap());
        (call(ours.try_clone().unwrap()).unwrap(), ours)
    }

    fn count(mut eventfd: &File) -> u64 {
        let mut bytes = [0; 8];
        loop {
            match eventfd.read_exact(&mut bytes) {
                Ok(()) => return u64::from_ne_bytes(bytes),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn each_ring_of_the_bell_counts() {
        let (call, ours) = eventfd();
        let bell = Bell::new().unwrap();
        for rings in [1, 2 * ROOM as u64, 1000] {
            (0..rings).for_each(|_| bell.ring(call.eventfd.as_raw_fd()).unwrap());
            assert_eq!(count(&ours), rings);
        }
    }

    #[test]
    fn a_call_comes_after_each_ring() {
        let (call, ours) = eventfd();
        for _ in 0..1000 {
            call.ring();
            assert_ne!(count(&ours), 0);
        }
    }

    #[test]
    fn a_front_end_cannot_block_who_rings() {
        let (call, mut ours) = eventfd();
        ours.write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
        rustix::io::ioctl_fionbio(&ours, false).unwrap();
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            (0..3).for_each(|_| call.ring());
            // This drops the last call of the function, so the thread then has dealt with all of
            // them.
            drop(call);
            done.send(()).unwrap();
        });
        crate::wait::receive("the end of ringing, which does not wait", &is_done);
        assert_ne!(count(&ours), 0);
    }

    const MS: Duration = Duration::from_millis(1);
    const US: Duration = Duration::from_micros(1);

    #[test]
    fn a_ring_that_waited_for_a_processor_is_not_held_against_the_front_end() {
        let record = Record::default();
        assert_eq!(record.care(MS), Care::Ring);
        record.was_slow(5 * MS, 4 * MS);
        assert_eq!(record.care(6 * MS), Care::Measure);
        record.has_used(10 * MS, 2 * US);
        assert_eq!(record.care(11 * MS), Care::Measure);
        assert_eq!(record.care(5 * MS + 4 * MS * MEMORY), Care::Ring);
    }

    #[test]
    fn rings_that_are_slow_now_and_then_are_not_held_against_the_front_end() {
        let record = Record::default();
        for ring in 0..1000 {
            let used = if ring % 10 == 0 { 150 * US } else { 4 * US };
            record.has_used(MS + ring * 10 * US, used);
            assert_eq!(record.care(MS + ring * 10 * US), Care::Measure);
        }
    }

    #[test]
    fn rings_that_are_a_little_slow_each_are_handed_over_by_and_by() {
        let record = Record::default();
        let slow = |ring: &u32| {
            record.has_used(MS, 21 * US);
            *ring < 1000 && record.care(MS) == Care::Measure
        };
        assert_eq!((0..).take_while(slow).count(), 200);
        assert_eq!(record.care(MS), Care::HandOver);
    }

    #[test]
    fn slow_rings_are_handed_over_for_a_time_that_they_are_a_small_part_of() {
        let record = Record::default();
        record.was_slow(MS, MS);
        record.has_used(2 * MS, MS);
        let end = 2 * MS + (MS - SLOW) * MEMORY;
        assert_eq!((record.care(3 * MS), record.care(end - US)), (Care::HandOver, Care::HandOver));
        // After that, signals are measured at once.
        assert_eq!(record.care(end), Care::Measure);
        // A shorter slow signal does not end the time earlier.
        record.has_used(4 * MS, 300 * US);
        assert_eq!(record.care(end - US), Care::HandOver);
    }

    #[test]
    fn who_rings_does_not_walk_the_watches_of_the_front_end() {
        const WATCHES: u64 = 100_000;
        // The test needs 700 descriptors, beside those of the other tests in this process.
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
        let (call, ours) = eventfd();
        // An epoll instance watches a file once for each of its descriptors.
        let mut watched = 0;
        let descriptors: Vec<OwnedFd> = (0..200).map(|_| ours.try_clone().unwrap().into()).collect();
        let mut instances = Vec::new();
        while watched < WATCHES {
            let instance = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            for descriptor in &descriptors {
                let data = epoll::EventData::new_u64(watched);
                epoll::add(&instance, descriptor, data, epoll::EventFlags::IN).unwrap();
                watched += 1;
            }
            instances.push(instance);
        }
        let time = |mut ring: Box<dyn FnMut()>| {
            let time = |_| {
                let start = cpu_time();
                ring();
                let time = cpu_time() - start;
                count(&ours);
                time
            };
            (0..10).map(time).sum::<Duration>()
        };
        // The first signal is slow by the clock, the second one when measured.
        for care in [Care::Ring, Care::Measure] {
            assert_eq!(call.ringer.means.record.care(call.ringer.means.started.elapsed()), care);
            call.ring();
            count(&ours);
        }
        let bell = Bell::new().unwrap();
        let (one, other) = (call.clone(), call.clone());
        let direct = time(Box::new(move || bell.ring(one.eventfd.as_raw_fd()).unwrap()));
        let handed_over = time(Box::new(move || other.ring()));
        assert!(handed_over < direct / 10, "{handed_over:?}, {direct:?} with all watches");
    }
}
