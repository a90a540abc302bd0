//! A thread that drops what the kernel takes long to free: mappings of guest memory, and long lists
//! of extents.
//!
//! Otherwise the last holder of a guest's memory would unmap it. That is mostly the worker, for
//! which all guests wait.

use crate::jail;
use crossbeam_channel::Sender;
use std::sync::{Arc, Condvar, Mutex, OnceLock};

/// An object to drop.
type Load = Box<dyn Send>;

/// Drops `load` in the reaper's thread.
pub fn reap(load: impl Send + 'static) {
    if let Some(outbox) = outbox() {
        // The thread never ends, so it receives everything.
        let _ = outbox.send(Box::new(load));
    }
}

/// The number of objects of one kind that are not dropped yet.
#[derive(Debug, Default)]
pub struct Backlog {
    loads: Mutex<usize>,
    less: Condvar,
}

/// One object of a backlog. It has to be dropped after the object that it stands for.
#[derive(Debug)]
pub struct Entry(Arc<Backlog>);

impl Backlog {
    /// Adds one object.
    pub fn enter(self: &Arc<Backlog>) -> Entry {
        *self.loads.lock().expect(NO_PANIC) += 1;
        Entry(self.clone())
    }

    /// Waits until the backlog is empty.
    ///
    /// The worker must not call this: the thread may have much of other guests to drop first.
    pub fn wait(&self) {
        self.wait_for_less(1);
    }

    /// Waits until there are fewer than `most` objects. The worker must not call this either.
    pub fn wait_for_less(&self, most: usize) {
        let loads = self.loads.lock().expect(NO_PANIC);
        drop(self.less.wait_while(loads, |loads| *loads >= most).expect(NO_PANIC));
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        *self.0.loads.lock().expect(NO_PANIC) -= 1;
        self.0.less.notify_all();
    }
}

const NO_PANIC: &str = "no thread panics with it";

/// Starts the thread, unless it runs. Without a thread, [`reap`] drops objects at once.
pub fn prepare() {
    outbox();
}

fn outbox() -> Option<&'static Sender<Load>> {
    static OUTBOX: OnceLock<Option<Sender<Load>>> = OnceLock::new();
    let start = || {
        let (outbox, inbox) = crossbeam_channel::unbounded::<Load>();
        let thread = std::thread::Builder::new().name("reaper".into());
        let started = thread.spawn(move || {
            jail::confine(jail::Kind::Helper);
            inbox.iter().for_each(drop);
        });
        started
            .inspect_err(|error| log::warn!("no thread to unmap guests' memory: {error}"))
            .ok()
            .map(|_| outbox)
    };
    OUTBOX.get_or_init(start).as_ref()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::Barrier;

    /// Blocks the thread until it is dropped.
    pub(crate) struct Busy(Arc<Barrier>);

    struct Load(Arc<Barrier>);

    impl Drop for Load {
        fn drop(&mut self) {
            self.0.wait();
            self.0.wait();
        }
    }

    /// Returns the number of objects in a backlog.
    pub(crate) fn loads(backlog: &Backlog) -> usize {
        *backlog.loads.lock().unwrap()
    }

    impl Busy {
        pub(crate) fn new() -> Busy {
            let barrier = Arc::new(Barrier::new(2));
            reap(Load(barrier.clone()));
            barrier.wait();
            Busy(barrier)
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            self.0.wait();
        }
    }
}
