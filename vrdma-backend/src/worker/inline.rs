//! A worker without a thread of its own, for fuzzing (`fuzz/src/backend`): who calls it runs it, so that an input does the same each time,
//! thousands of times a second.

use super::{Stopped, Worker, WorkerHandle};
use crate::config::Poll;
use crate::queue::channel::RequestWords;
use crossbeam_channel::{Receiver, TryRecvError};
use std::cell::RefCell;
use std::time::Duration;
use vrdma_transport::{DeviceId, Engine, OwnerId};

thread_local! {
    static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
}

/// Makes a worker that this thread runs, in the place of the one before. Its engine's random numbers are the same each time.
pub fn start(mtu: u16) -> WorkerHandle {
    let (mut worker, handle) = Worker::new(Poll::Always, mtu).expect("descriptors are left");
    worker.engine = Engine::new(7);
    WORKER.set(Some(worker));
    handle
}

/// Ends it.
pub fn stop() {
    WORKER.set(None);
}

/// Whether this thread runs a worker.
pub fn is_here() -> bool {
    WORKER.with_borrow(Option::is_some)
}

/// Takes turns until the worker has answered.
///
/// # Errors
/// What was asked is forgotten.
///
/// # Panics
/// There is no answer, as far as one can see: our own rules are broken. Or this thread runs no worker.
pub fn wait<R>(answer: &Receiver<R>) -> Result<R, Stopped> {
    for _ in 0..100_000 {
        match answer.try_recv() {
            Ok(answer) => return Ok(answer),
            Err(TryRecvError::Disconnected) => return Err(Stopped),
            Err(TryRecvError::Empty) => with(Worker::take_turn),
        }
    }
    panic!("the worker never answers");
}

/// Does something with the worker.
///
/// # Panics
/// This thread runs no worker.
pub fn with<R>(f: impl FnOnce(&mut Worker) -> R) -> R {
    WORKER.with_borrow_mut(|worker| f(worker.as_mut().expect("a worker of this thread")))
}

impl Worker {
    /// One turn, as the worker's thread would take it.
    pub fn take_turn(&mut self) {
        self.clock.1 = 0;
        self.turn();
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) {
        self.started = self.started.checked_sub(time).unwrap_or(self.started);
    }

    /// Posts a request as if it had come out of a channel of that owner.
    pub fn post_words(&mut self, device: DeviceId, owner: OwnerId, words: &RequestWords, units: usize) {
        *self.words = *words;
        let now = self.now();
        self.post(device, owner, units, now);
    }
}
