//! Rings that the guest shares with the device.
//!
//! These files move entries only. `device/` knows what the entries mean.

mod call;
pub mod chains;
pub mod channel;
pub mod cq;
pub mod event;
mod eventfd;

pub use call::{Call, Ringer};

use crate::memory::{Backlog, Extent, GuestMemory, Shared};
use eventfd::Eventfd;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

/// A virtqueue as the front-end has set it up.
#[derive(Debug)]
pub struct VirtqueueSetup {
    /// Virtqueue number.
    pub index: u16,
    /// Number of entries, a power of two.
    pub size: u16,
    /// Guest-physical address of the descriptor table.
    pub desc: u64,
    /// Guest-physical address of the available ring.
    pub avail: u64,
    /// Guest-physical address of the used ring.
    pub used: u64,
    /// Whether VIRTIO_F_EVENT_IDX was negotiated.
    pub event_idx: bool,
    /// The eventfd that the front-end signals when the driver made entries available.
    pub kick: Option<Arc<Kick>>,
    /// The eventfd to signal when entries were used.
    pub call: Option<Arc<Call>>,
}

/// The eventfd that the driver kicks.
///
/// It is watched edge-triggered and never read. The front-end holds the descriptor too, so a read
/// could block.
#[derive(Debug)]
pub struct Kick(Eventfd);

impl Kick {
    /// Takes an eventfd of the front-end. Waits while too many are `open`.
    ///
    /// # Errors
    /// The file is no eventfd. Watching another kind of file could block: a file of a FUSE file
    /// system asks a process that the front-end chose.
    pub fn new(file: File, open: &Arc<Backlog>) -> io::Result<Kick> {
        Eventfd::new(file, open).map(Kick)
    }
}

impl Kick {
    /// Makes `epoll` report it as `token`, or stops that.
    ///
    /// It is edge-triggered, so that a kick need not be read. A read could block, because the
    /// front-end has the descriptor too.
    ///
    /// # Errors
    /// The system refuses.
    pub fn watch(&self, epoll: &Epoll, token: u64, watched: bool) -> io::Result<()> {
        let operation = if watched { ControlOperation::Add } else { ControlOperation::Delete };
        let event = EpollEvent::new(EventSet::IN | EventSet::EDGE_TRIGGERED, token);
        epoll.ctl(operation, self.as_raw_fd(), event)
    }
}

impl AsRawFd for Kick {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Returns the sizes in bytes of descriptor table, available ring and used ring of a split
/// virtqueue.
///
/// The queue has `size` entries (virtio 1.2, 2.7). The sizes include the words for EVENT_IDX.
pub fn ring_lens(size: u16) -> [u64; 3] {
    let size = u64::from(size);
    [16 * size, 6 + 2 * size, 6 + 8 * size]
}

/// Available and used ring of a split virtqueue (virtio specification 2.7.6 and 2.7.8).
#[derive(Debug)]
struct Rings {
    avail: Shared<2>,
    used: Shared<4>,
    size: u16,
    event_idx: bool,
}

impl Rings {
    fn new(memory: &Arc<GuestMemory>, setup: &VirtqueueSetup) -> Option<Rings> {
        let [_, avail, used] = ring_lens(setup.size);
        Some(Rings {
            avail: Shared::<2>::new(memory, Extent { gpa: setup.avail, len: avail })?,
            used: Shared::<4>::new(memory, Extent { gpa: setup.used, len: used })?,
            size: setup.size,
            event_idx: setup.event_idx,
        })
    }

    #[inline]
    fn avail_idx(&self) -> u16 {
        self.avail.load16(2, Ordering::Acquire)
    }

    /// Returns the entry at free-running index `index`.
    #[inline]
    fn avail_entry(&self, index: u16) -> u16 {
        self.avail.load16(4 + 2 * self.slot(index), Ordering::Relaxed)
    }

    #[inline]
    fn put_used(&self, index: u16, id: u16, len: u32) {
        let offset = 4 + 8 * self.slot(index);
        self.used.store32(offset, u32::from(id), Ordering::Relaxed);
        self.used.store32(offset + 4, len, Ordering::Relaxed);
    }

    #[inline]
    fn publish_used(&self, index: u16) {
        self.used.store16(2, index, Ordering::Release);
    }

    /// Asks for a kick when the driver makes entry `index` available.
    fn ask_for_kick(&self, index: u16) {
        if self.event_idx {
            self.used.store16(4 + 8 * usize::from(self.size), index, Ordering::Relaxed);
        } else {
            self.used.store16(0, 0, Ordering::Relaxed);
        }
    }

    /// Withdraws the request for a kick. With EVENT_IDX nothing is written: the index asked for has
    /// passed.
    fn refuse_kicks(&self) {
        const USED_F_NO_NOTIFY: u16 = 1;
        if !self.event_idx {
            self.used.store16(0, USED_F_NO_NOTIFY, Ordering::Relaxed);
        }
    }

    /// Returns whether the driver asked for an interrupt by a used entry from `old` to `new`,
    /// excluding `new` (virtio 1.2, 2.7.7.2).
    fn wants_interrupt(&self, old: u16, new: u16) -> bool {
        const AVAIL_F_NO_INTERRUPT: u16 = 1;
        if !self.event_idx {
            return self.avail.load16(0, Ordering::Relaxed) & AVAIL_F_NO_INTERRUPT == 0;
        }
        let event = self.avail.load16(4 + 2 * usize::from(self.size), Ordering::Relaxed);
        new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
    }

    fn slot(&self, index: u16) -> usize {
        usize::from(index & (self.size - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::call::tests::call;
    use super::eventfd::MAX_OPEN;
    use super::*;
    use crate::memory::Busy;
    use std::os::fd::OwnedFd;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn only_eventfds_kick_and_call() {
        let eventfd = || File::from(rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap());
        let kick = |file| Kick::new(file, &Arc::default());
        assert!(kick(eventfd()).is_ok() && call(eventfd()).is_ok());
        let pipe = || File::from(OwnedFd::from(std::io::pipe().unwrap().0));
        assert!(kick(pipe()).is_err() && call(pipe()).is_err());
        let null = || File::open("/dev/null").unwrap();
        assert!(kick(null()).is_err() && call(null()).is_err());
    }

    #[test]
    fn who_sends_descriptors_waits_until_the_old_ones_are_closed() {
        let eventfd = || File::from(rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap());
        let open = Arc::default();
        let busy = Busy::new();
        (0..MAX_OPEN).for_each(|_| drop(Kick::new(eventfd(), &open).unwrap()));
        Kick::new(eventfd(), &Arc::default()).expect("another front-end does not wait");
        let released = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                Kick::new(eventfd(), &open).unwrap();
                assert!(released.load(Ordering::Relaxed));
            });
            // On most machines this is long enough for a thread that does not wait.
            (0..1000).for_each(|_| std::thread::yield_now());
            released.store(true, Ordering::Relaxed);
            drop(busy);
        });
    }
}
