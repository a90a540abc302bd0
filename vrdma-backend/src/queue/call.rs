//! What rings the driver, in a way that the front-end can hold nobody up with.
//!
//! The front-end has the same eventfd. It can make it blocking and fill its counter at any time, so
//! that a write(2) to it might never return: asynchronous I/O (io_submit(2)) has the kernel itself
//! signal an eventfd when a request completes, which never waits. The request is to read nothing
//! from /dev/null, so it completes before the call returns.
//!
//! And the front-end can watch it with a million epoll instances, each of which a ring walks
//! through. So a front-end whose rings take long is rung by a thread of its own for a time
//! ([`Record`]), and whoever rings hands over a flag.

use super::eventfd::Eventfd;
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

/// What rings the driver: an eventfd.
#[derive(Debug)]
pub struct Call {
    eventfd: Eventfd,
    /// It is to be rung, and the ringer's thread knows.
    due: AtomicBool,
    ringer: Ringer,
}

impl Call {
    /// Takes an eventfd of the front-end, to be rung by `ringer`, and waits if `open` has too many.
    ///
    /// # Errors
    /// It is something else, to which a write might block or do harm.
    pub fn new(file: File, ringer: &Ringer, open: &Arc<Backlog>) -> io::Result<Call> {
        let eventfd = Eventfd::new(file, open)?;
        // For a system without asynchronous I/O.
        rustix::io::ioctl_fionbio(eventfd.file(), true)?;
        Ok(Call { eventfd, due: AtomicBool::new(false), ringer: ringer.clone() })
    }

    /// Rings it, or has it rung soon. What was written before is there when the driver wakes.
    pub fn ring(self: &Arc<Self>) {
        if !self.ringer.means.ring(self.eventfd.as_raw_fd()) {
            self.hand_over();
        }
    }

    /// Has the ringer's thread ring it, once for all calls until that happens.
    #[cold]
    fn hand_over(self: &Arc<Self>) {
        // No more than one message of each call waits; there are not so many unless the front-end
        // made new ones all the time, which then loses some.
        if !self.due.swap(true, Ordering::AcqRel) && self.ringer.outbox.try_send(self.clone()).is_err() {
            self.due.store(false, Ordering::Release);
        }
    }
}

/// What rings the drivers of a function. Its thread ends when nobody can ask it any more.
#[derive(Clone, Debug)]
pub struct Ringer {
    outbox: Sender<Arc<Call>>,
    means: Arc<Means>,
}

/// Calls that may wait to be rung: those of all virtqueues that a device can have, and as many that
/// were replaced.
const WAITING: usize = 512;

impl Ringer {
    /// Starts the thread; `name` tells whose it is.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(name: &str) -> io::Result<Ringer> {
        let (outbox, inbox) = crossbeam_channel::bounded(WAITING);
        // Made here, so that what it needs of the system is there from the beginning.
        let bell = Bell::new()
            .inspect_err(|error| {
                log::warn!("{name}: no asynchronous I/O ({error}): its front-end can block it")
            })
            .ok();
        let means = Arc::new(Means { bell, started: Instant::now(), record: Record::default() });
        let theirs = means.clone();
        std::thread::Builder::new().name(name.into()).spawn(move || run(&inbox, theirs.bell.as_ref()))?;
        Ok(Ringer { outbox, means })
    }
}

fn run(inbox: &Receiver<Arc<Call>>, bell: Option<&Bell>) {
    for call in inbox {
        // From here on it has to be asked again; what was written before it was asked comes before
        // the ring.
        call.due.swap(false, Ordering::AcqRel);
        let rung = bell.is_some_and(|bell| bell.ring(call.eventfd.as_raw_fd()).is_ok());
        if !rung {
            // If the counter is full the driver has been told often enough.
            let _ = call.eventfd.file().write(&1u64.to_ne_bytes());
        }
    }
}

/// What threads that ring at once have in common.
#[derive(Debug)]
struct Means {
    bell: Option<Bell>,
    started: Instant,
    record: Record,
}

impl Means {
    /// Rings, if the front-end's rings have not been too slow for that. False if it has not rung.
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

/// A ring that takes longer keeps the other guests waiting: with one waiter it takes a tenth.
const SLOW: Duration = Duration::from_micros(20);
/// What rings may take beyond that, by and by: the hypervisor of this host's may take its processor
/// away for as long, and that counts as used.
const EXCESS: Duration = Duration::from_micros(200);
/// For how many times as long a slow ring is remembered: a front-end costs others no more than two
/// parts of so many, beside [`SLOW`] a ring and [`EXCESS`].
const MEMORY: u32 = 10_000;

/// How slow the rings of a front-end were. It outlives the front-end, so that it does not help to
/// come anew.
///
/// Time on the clock may have gone to other threads of the host, but the time that a thread has
/// used is dear to ask for. So a ring that was slow by the clock only has the next ones measured,
/// and measured ones that together took too long have the next ones handed over.
#[derive(Debug, Default)]
struct Record {
    /// Nanoseconds on the ringer's clock until which rings are measured,
    measure: AtomicU64,
    /// and until which they are handed over.
    hand_over: AtomicU64,
    /// Nanoseconds that measured rings took beyond [`SLOW`] each, less what others left of it.
    excess: AtomicU64,
}

/// How to ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Care {
    /// At once.
    Ring,
    /// At once, and see what processor time it takes.
    Measure,
    /// Not at all: the ringer's thread does.
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

    /// A ring was slow by the clock, and was not measured.
    #[cold]
    fn was_slow(&self, now: Duration, elapsed: Duration) {
        self.measure.fetch_max(nanos(now + elapsed * MEMORY), Ordering::Relaxed);
    }

    /// A ring was measured.
    #[cold]
    fn has_used(&self, now: Duration, used: Duration) {
        // Of two threads that ring at once, one's may be missed.
        let before = self.excess.load(Ordering::Relaxed);
        let excess = (before + nanos(used)).saturating_sub(nanos(SLOW));
        let too_much = excess > nanos(EXCESS);
        self.excess.store(if too_much { 0 } else { excess }, Ordering::Relaxed);
        if too_much {
            let until = now + Duration::from_nanos(excess) * MEMORY;
            self.hand_over.fetch_max(nanos(until), Ordering::Relaxed);
            // Measured again behind that.
            self.measure.fetch_max(nanos(until + Duration::from_nanos(excess) * MEMORY), Ordering::Relaxed);
        } else if used > SLOW {
            self.measure.fetch_max(nanos(now + used * MEMORY), Ordering::Relaxed);
        }
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// Processor time that this thread has used.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The means to have the kernel signal eventfds, for any number of threads.
#[derive(Debug)]
struct Bell {
    context: IoContext,
    null: File,
}

/// Completions that the context has room for at least, and that are taken out of it together.
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

    /// Nobody else wants to know what completed.
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

    /// A ringer of its own for each call.
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
            // The last one of this function's, so that the thread has dealt with those.
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
        // And then measured at once.
        assert_eq!(record.care(end), Care::Measure);
        // A shorter one does not make an end of it.
        record.has_used(4 * MS, 300 * US);
        assert_eq!(record.care(end - US), Care::HandOver);
    }

    #[test]
    fn who_rings_does_not_walk_the_watches_of_the_front_end() {
        const WATCHES: u64 = 100_000;
        // It takes 700 descriptors, and the other tests of this process have theirs.
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
        let (call, ours) = eventfd();
        // An epoll instance watches a file as often as there are descriptors of it.
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
        // Slow by the clock, then slow when measured.
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
