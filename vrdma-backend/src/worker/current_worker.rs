//! The worker that the calling thread runs itself, without a thread of its own.

use super::{Stopped, Worker};
use crossbeam_channel::{Receiver, TryRecvError};
use std::cell::RefCell;

thread_local! {
    pub(super) static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
}

/// Whether this thread runs a worker.
pub fn is_here() -> bool {
    WORKER.with_borrow(Option::is_some)
}

/// Runs rounds until the worker has answered.
///
/// # Errors
/// The worker has dropped the request.
///
/// # Panics
/// No answer comes in 100,000 rounds, so our own rules are broken. Or this thread runs no worker.
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

/// Calls `f` with the worker.
///
/// # Panics
/// This thread runs no worker.
pub fn with<R>(f: impl FnOnce(&mut Worker) -> R) -> R {
    WORKER.with_borrow_mut(|worker| f(worker.as_mut().expect("a worker of this thread")))
}

impl Worker {
    /// Runs one round, as the worker's thread would.
    pub fn take_turn(&mut self) {
        self.clock.1 = 0;
        self.turn();
    }
}
