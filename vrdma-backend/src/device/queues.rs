//! The purpose of each virtqueue (`vrdma_abi::config::queue`): control, async events, completion
//! events by vector, channels.

use vrdma_abi::config::queue;

pub use queue::CONTROL;

/// An event queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// Asynchronous events.
    Async,
    /// Completion events of this vector. The vector is not checked.
    Completion(u16),
}

impl Events {
    /// Returns the event queue with this virtqueue number.
    pub fn of_queue(index: u16) -> Option<Events> {
        match index {
            queue::ASYNC_EVENTS => Some(Events::Async),
            _ => index.checked_sub(queue::FIRST_COMP_EVENTS).map(Events::Completion),
        }
    }
}

/// Returns the virtqueue of the first channel, which is the kernel's. It follows the event queues.
pub fn first_channel(comp_vectors: u16) -> u16 {
    queue::FIRST_COMP_EVENTS + comp_vectors
}
