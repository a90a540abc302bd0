//! What rings the driver, in a way that the front-end cannot block.
//!
//! The front-end has the same eventfd and can make it blocking and fill its counter at any time, so that a write(2) to it might
//! never return. Asynchronous I/O (io_submit(2)) has the kernel itself signal an eventfd when a request completes, which
//! never waits. The request is to read nothing from /dev/null, so it completes before the call returns.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use vmm_sys_util::aio::{IOCB_CMD_PREAD, IOCB_FLAG_RESFD, IoContext, IoControlBlock, IoEvent};

/// What rings the driver: an eventfd.
#[derive(Debug)]
pub struct Call(File);

impl Call {
    /// Takes an eventfd of the front-end.
    ///
    /// # Errors
    /// It is something else, to which a write might block or do harm.
    pub fn new(file: File) -> io::Result<Call> {
        let file = super::eventfd(file)?;
        // For a system without asynchronous I/O.
        rustix::io::ioctl_fionbio(&file, true)?;
        Ok(Call(file))
    }

    /// Gets this thread ready to ring. Else its first ring does so, when others may have taken what it needs.
    pub fn prepare() {
        BELL.with(|_| {});
    }

    /// Rings. If the counter is full the driver has been told often enough.
    pub fn ring(&self) {
        BELL.with(|bell| {
            let rung = bell.as_ref().is_some_and(|bell| bell.ring(&self.0).is_ok());
            if !rung {
                let _ = (&self.0).write(&1u64.to_ne_bytes());
            }
        });
    }
}

thread_local! {
    static BELL: Option<Bell> = Bell::new()
        .inspect_err(|error| log::warn!("no asynchronous I/O ({error}): a front-end could block this thread"))
        .ok();
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

    fn ring(&self, eventfd: &File) -> io::Result<()> {
        if self.unread.get() == ROOM {
            let mut at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            self.context.get_events(0, &mut [IoEvent::default(); ROOM], Some(&mut at_once))?;
            self.unread.set(0);
        }
        let mut request = IoControlBlock {
            aio_fildes: self.null.as_raw_fd() as u32,
            aio_lio_opcode: IOCB_CMD_PREAD as u16,
            aio_flags: IOCB_FLAG_RESFD,
            aio_resfd: eventfd.as_raw_fd() as u32,
            ..IoControlBlock::default()
        };
        self.context.submit(&[&mut request])?;
        self.unread.set(self.unread.get() + 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::EventfdFlags;
    use std::io::Read;
    use std::time::Duration;

    fn eventfd() -> (Call, File) {
        let ours = File::from(rustix::event::eventfd(0, EventfdFlags::empty()).unwrap());
        (Call::new(ours.try_clone().unwrap()).unwrap(), ours)
    }

    fn count(mut eventfd: &File) -> u64 {
        let mut bytes = [0; 8];
        eventfd.read_exact(&mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn each_ring_counts() {
        let (call, ours) = eventfd();
        for rings in [1, 2 * ROOM as u64, 1000] {
            (0..rings).for_each(|_| call.ring());
            assert_eq!(count(&ours), rings);
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
            done.send(()).unwrap();
        });
        is_done.recv_timeout(Duration::from_secs(10)).expect("ringing does not wait");
        assert_ne!(count(&ours), 0);
    }
}
