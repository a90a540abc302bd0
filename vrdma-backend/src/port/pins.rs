//! Records which memory of guests is pinned for a device that may be removed.
//!
//! Pinning takes time in proportion to the number of pages: seconds for a tebibyte. So the book is
//! locked only to read or update it, and never while memory is being pinned. Sessions of other
//! guests continue meanwhile, as far as the device's driver lets them. (DPDK's VFIO has a lock of
//! its own for each container.)

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Pins memory. Several threads may call it at once, for memory that does not overlap.
pub trait Pinner: Send + Sync {
    /// Pins `len` bytes from `start` on.
    ///
    /// # Errors
    /// The device, the IOMMU or the system has no room for it.
    fn map(&self, start: usize, len: usize) -> Result<()>;
    /// Unpins these bytes.
    fn unmap(&self, start: usize, len: usize);
}

/// The ranges of memory that are pinned for a device.
#[derive(Debug)]
pub struct Book<P> {
    state: Mutex<State<P>>,
    /// Notified when a range is not busy any more.
    changed: Condvar,
}

#[derive(Debug)]
struct State<P> {
    /// The device, while it is there.
    device: Option<Arc<P>>,
    /// The ranges that are pinned, being pinned or being unpinned, by first byte.
    ranges: BTreeMap<usize, Range>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    len: usize,
    /// Whether some thread is pinning or unpinning it, without the lock.
    is_busy: bool,
}

impl<P: Pinner> Book<P> {
    /// Creates the book of a device.
    pub fn new(device: P) -> Book<P> {
        let state = State { device: Some(Arc::new(device)), ranges: BTreeMap::new() };
        Book { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Pins memory that is not pinned yet.
    ///
    /// # Errors
    /// Those of [`Pinner::map`], or the device is gone.
    pub fn map(&self, start: usize, len: usize) -> Result<()> {
        let mut state = self.lock();
        let device = state.device.clone().context("the device is gone")?;
        state.ranges.insert(start, Range { len, is_busy: true });
        drop(state);
        let result = device.map(start, len);
        let mut state = self.lock();
        match &result {
            Ok(()) => _ = state.ranges.insert(start, Range { len, is_busy: false }),
            Err(_) => _ = state.ranges.remove(&start),
        }
        self.changed.notify_all();
        result
    }

    /// Unpins memory if it is pinned. When this returns, no device reaches the memory.
    ///
    /// That holds even if the device is removed meanwhile.
    pub fn unmap(&self, start: usize, len: usize) {
        let mut state = self.lock();
        while state.ranges.get(&start).is_some_and(|range| range.is_busy) {
            state = self.wait(state);
        }
        let State { device: Some(device), ranges } = &mut *state else { return };
        let Some(range) = ranges.get_mut(&start) else { return };
        range.is_busy = true;
        let device = device.clone();
        drop(state);
        device.unmap(start, len);
        self.lock().ranges.remove(&start);
        self.changed.notify_all();
    }

    /// Unpins everything, because the device is about to be removed.
    ///
    /// When this returns, nothing is pinned and nobody calls the device any more. It waits for
    /// calls in progress.
    pub fn detach(&self) {
        let mut state = self.lock();
        let Some(device) = state.device.take() else { return };
        while state.ranges.values().any(|range| range.is_busy) {
            state = self.wait(state);
        }
        let ranges = state.ranges.clone();
        // A thread that unmaps one of these waits until this is done.
        state.ranges.values_mut().for_each(|range| range.is_busy = true);
        drop(state);
        ranges.iter().for_each(|(start, range)| device.unmap(*start, range.len));
        self.lock().ranges.clear();
        self.changed.notify_all();
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<P>>) -> MutexGuard<'a, State<P>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait;
    use std::collections::BTreeSet;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Pins at once, except for memory at [`SLOW`], for which it waits for a signal.
    struct Fake {
        pinned: Arc<Mutex<BTreeSet<usize>>>,
        begins: Mutex<Sender<()>>,
        go_on: Mutex<Receiver<()>>,
    }

    const SLOW: usize = 0x10_0000;

    impl Pinner for Fake {
        fn map(&self, start: usize, _: usize) -> Result<()> {
            if start == SLOW {
                self.begins.lock().unwrap().send(()).unwrap();
                wait::receive("the test", &self.go_on.lock().unwrap());
            }
            assert!(self.pinned.lock().unwrap().insert(start));
            Ok(())
        }

        fn unmap(&self, start: usize, _: usize) {
            assert!(self.pinned.lock().unwrap().remove(&start));
        }
    }

    #[test]
    fn while_memory_of_one_guest_is_pinned_those_of_others_come_and_go() {
        let pinned = Arc::<Mutex<BTreeSet<usize>>>::default();
        let ((begins, begun), (go, go_on)) = (channel(), channel());
        let fake = Fake { pinned: pinned.clone(), begins: Mutex::new(begins), go_on: Mutex::new(go_on) };
        let book = Arc::new(Book::new(fake));
        let start = |work: fn(&Book<Fake>)| {
            let (book, (ends, end)) = (book.clone(), channel());
            std::thread::spawn(move || {
                work(&book);
                ends.send(()).unwrap();
            });
            end
        };
        let slow = start(|book| book.map(SLOW, 1).unwrap());
        wait::receive("the slow one to begin", &begun);
        // This runs in a thread, so that waiting for the slow one fails the test.
        let others = start(|book| {
            book.map(0x1000, 1).unwrap();
            book.map(0x2000, 1).unwrap();
            book.unmap(0x1000, 1);
        });
        wait::receive("others, who do not wait for it", &others);
        assert_eq!(*pinned.lock().unwrap(), BTreeSet::from([0x2000]));
        let detached = start(Book::detach);
        // After this, nothing more is pinned.
        wait::until("the device to be about to go", || book.lock().device.is_none().then_some(()));
        assert!(book.map(0x3000, 1).is_err() && detached.try_recv().is_err(), "it is in use");
        go.send(()).unwrap();
        wait::receive("the slow one", &slow);
        wait::receive("the device to be gone", &detached);
        assert!(pinned.lock().unwrap().is_empty());
        // The guests unmap their memory later.
        book.unmap(SLOW, 1);
        book.unmap(0x2000, 1);
    }
}
