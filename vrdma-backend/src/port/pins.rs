//! Which memory of guests is pinned for a device that comes and goes.
//!
//! To pin memory takes as long as it has pages: seconds for a tebibyte. So the book is locked to
//! look and to write, and never while something is pinned: sessions of other guests go on
//! meanwhile, as far as the device's driver lets them. (VFIO of DPDK has a lock of its own for each
//! container.)

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What pins memory. It may be asked by several threads at once, about memory that does not
/// overlap.
pub trait Pinner: Send + Sync {
    /// Pins `len` bytes from `start` on.
    ///
    /// # Errors
    /// The device, the IOMMU or the system has no room for it.
    fn map(&self, start: usize, len: usize) -> Result<()>;
    /// Pins it no longer.
    fn unmap(&self, start: usize, len: usize);
}

/// See the module.
#[derive(Debug)]
pub struct Book<P> {
    state: Mutex<State<P>>,
    /// A range is busy no longer.
    changed: Condvar,
}

#[derive(Debug)]
struct State<P> {
    /// While it is there.
    device: Option<Arc<P>>,
    /// What is pinned, or about to be, or no longer, by first byte.
    ranges: BTreeMap<usize, Range>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    len: usize,
    /// Some thread is about to pin it, or to do so no longer, without the lock.
    is_busy: bool,
}

impl<P: Pinner> Book<P> {
    /// That of a device.
    pub fn new(device: P) -> Book<P> {
        let state = State { device: Some(Arc::new(device)), ranges: BTreeMap::new() };
        Book { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Pins memory, which is none that is pinned.
    ///
    /// # Errors
    /// As of [`Pinner::map`], or the device is gone.
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

    /// Pins memory no longer, if it does: also if the device went meanwhile, nothing reaches it
    /// when this returns.
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

    /// The device is about to go: when this returns nothing is pinned for it, and nobody asks it
    /// for anything. It waits for who does.
    pub fn detach(&self) {
        let mut state = self.lock();
        let Some(device) = state.device.take() else { return };
        while state.ranges.values().any(|range| range.is_busy) {
            state = self.wait(state);
        }
        let ranges = state.ranges.clone();
        // Who unmaps one of these waits until it is done here.
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

    /// Pins at once, but what begins at [`SLOW`] only when it is told to.
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
        // In a thread, so that one that waits for the slow one fails the test.
        let others = start(|book| {
            book.map(0x1000, 1).unwrap();
            book.map(0x2000, 1).unwrap();
            book.unmap(0x1000, 1);
        });
        wait::receive("others, who do not wait for it", &others);
        assert_eq!(*pinned.lock().unwrap(), BTreeSet::from([0x2000]));
        let detached = start(Book::detach);
        // From then on nothing more is pinned.
        wait::until("the device to be about to go", || book.lock().device.is_none().then_some(()));
        assert!(book.map(0x3000, 1).is_err() && detached.try_recv().is_err(), "it is in use");
        go.send(()).unwrap();
        wait::receive("the slow one", &slow);
        wait::receive("the device to be gone", &detached);
        assert!(pinned.lock().unwrap().is_empty());
        // Whose memory it was goes later.
        book.unmap(SLOW, 1);
        book.unmap(0x2000, 1);
    }
}
