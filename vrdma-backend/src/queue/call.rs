//! What rings the driver, in a way that the front-end can hold nobody up with.
//!
//! The front-end has the same eventfd. It can watch it with a million epoll instances, each of which a ring walks through: so it is rung by
//! a thread of that front-end's function, and whoever rings hands over a flag. And it can make it blocking and fill its counter at any time,
//! so that a write(2) to it might never return: asynchronous I/O (io_submit(2)) has the kernel itself signal an eventfd when a request
//! completes, which never waits. The request is to read nothing from /dev/null, so it completes before the call returns.

use super::Eventfd;
use crossbeam_channel::{Receiver, Sender};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vmm_sys_util::aio::{IOCB_CMD_PREAD, IOCB_FLAG_RESFD, IoContext, IoControlBlock, IoEvent};

/// What rings the driver: an eventfd.
#[derive(Debug)]
pub struct Call {
    eventfd: Eventfd,
    /// It is to be rung, and the ringer knows.
    due: AtomicBool,
    ringer: Ringer,
}

impl Call {
    /// Takes an eventfd of the front-end, to be rung by `ringer`.
    ///
    /// # Errors
    /// It is something else, to which a write might block or do harm.
    pub fn new(file: File, ringer: &Ringer) -> io::Result<Call> {
        let eventfd = Eventfd::new(file)?;
        // For a system without asynchronous I/O.
        rustix::io::ioctl_fionbio(eventfd.file(), true)?;
        Ok(Call { eventfd, due: AtomicBool::new(false), ringer: ringer.clone() })
    }

    /// Has it rung, once for all calls until that happens. What was written before is there when the driver wakes.
    pub fn ring(self: &Arc<Self>) {
        // No more than one message of each call waits; there are not so many unless the front-end made new ones all the time, which then loses some.
        if self.due.swap(true, Ordering::AcqRel) {
            return;
        }
        match self.ringer.0.try_send(self.clone()) {
            // The system may have put the ringer behind this thread, which polls and would keep it waiting; else this returns at once.
            Ok(()) => std::thread::yield_now(),
            Err(_) => self.due.store(false, Ordering::Release),
        }
    }
}

/// The thread that rings the drivers of a function. It ends when nobody can ask it any more.
#[derive(Clone, Debug)]
pub struct Ringer(Sender<Arc<Call>>);

/// Calls that may wait to be rung: those of all virtqueues that a device can have, and as many that were replaced.
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
        std::thread::Builder::new().name(name.into()).spawn(move || run(&inbox, bell.as_ref()))?;
        Ok(Ringer(outbox))
    }
}

fn run(inbox: &Receiver<Arc<Call>>, bell: Option<&Bell>) {
    for call in inbox {
        // From here on it has to be asked again; what was written before it was asked comes before the ring.
        call.due.swap(false, Ordering::AcqRel);
        let rung = bell.is_some_and(|bell| bell.ring(call.eventfd.as_raw_fd()).is_ok());
        if !rung {
            // If the counter is full the driver has been told often enough.
            let _ = call.eventfd.file().write(&1u64.to_ne_bytes());
        }
    }
}

/// A thread's means to have the kernel signal eventfds.
struct Bell {
    context: IoContext,
    null: File,
    /// Completions that nobody has taken out of the context.
    unread: Cell<usize>,
}

/// Completions between two calls that take them out.
const ROOM: usize = 64;

impl Bell {
    fn new() -> io::Result<Bell> {
        let context = IoContext::new(ROOM as u32)?;
        Ok(Bell { context, null: File::open("/dev/null")?, unread: Cell::new(0) })
    }

    fn ring(&self, eventfd: RawFd) -> io::Result<()> {
        if self.unread.get() == ROOM {
            let mut at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            self.context.get_events(0, &mut [IoEvent::default(); ROOM], Some(&mut at_once))?;
            self.unread.set(0);
        }
        let mut request = IoControlBlock {
            aio_fildes: self.null.as_raw_fd() as u32,
            aio_lio_opcode: IOCB_CMD_PREAD as u16,
            aio_flags: IOCB_FLAG_RESFD,
            aio_resfd: eventfd as u32,
            ..IoControlBlock::default()
        };
        self.context.submit(&[&mut request])?;
        self.unread.set(self.unread.get() + 1);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, epoll};
    use rustix::time::{ClockId, clock_gettime};
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    /// A ringer of its own for each call.
    pub(crate) fn call(file: File) -> io::Result<Arc<Call>> {
        Call::new(file, &Ringer::start("test").unwrap()).map(Arc::new)
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
        let (done, is_done) = crossbeam_channel::bounded(1);
        std::thread::spawn(move || {
            (0..3).for_each(|_| call.ring());
            // The last one of this function's, so that the thread has dealt with those.
            drop(call);
            done.send(()).unwrap();
        });
        is_done.recv_timeout(Duration::from_secs(10)).expect("ringing does not wait");
        assert_ne!(count(&ours), 0);
    }

    fn cpu_time() -> Duration {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }

    #[test]
    fn who_rings_does_not_walk_the_watches_of_the_front_end() {
        const WATCHES: u64 = 100_000;
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
        let bell = Bell::new().unwrap();
        let (one, other) = (call.clone(), call.clone());
        let direct = time(Box::new(move || bell.ring(one.eventfd.as_raw_fd()).unwrap()));
        let handed_over = time(Box::new(move || other.ring()));
        assert!(handed_over < direct / 10, "{handed_over:?}, {direct:?} with all watches");
    }
}
