//! A worker without a thread of its own, for fuzzing (`fuzzing/`).
//!
//! The caller runs it. So an input has the same effect each time, thousands of times a second.

pub use super::current_worker::{wait, with};

use super::current_worker::WORKER;
use super::{Worker, WorkerHandle};
use crate::config::Poll;
use crate::queue::channel::RequestWords;
use std::time::Duration;
use vrdma_transport::{DeviceId, Engine, OwnerId};

/// Makes a worker that this thread runs, in place of the previous one.
///
/// Its engine's random numbers are the same each time.
pub fn start(mtu: u16) -> WorkerHandle {
    let (mut worker, handle) = Worker::new(Poll::Always, mtu).expect("descriptors are left");
    worker.engine = Engine::new(7);
    WORKER.set(Some(worker));
    handle
}

/// Ends the worker of this thread.
pub fn stop() {
    WORKER.set(None);
}

impl Worker {
    /// Advances the worker's clock.
    pub fn pass(&mut self, time: Duration) {
        self.outputs.clock.pass(time);
    }

    /// Posts a request as if it had come out of a channel of this owner.
    pub fn post_words(&mut self, device: DeviceId, owner: OwnerId, words: &RequestWords, units: usize) {
        self.fetched.words[0] = *words;
        let now = self.now();
        self.post(device, owner, 0, units, now);
    }
}
