//! Which virtqueue is for what (`vrdma_abi::config::queue`): control, async events, completion
//! events by vector, channels.

use vrdma_abi::config::queue;

pub use queue::CONTROL;

/// An event queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// Asynchronous events.
    Async,
    /// Completion events of this vector; whether there is such a vector is not known yet.
    Completion(u16),
}

impl Events {
    /// The event queue with this virtqueue number.
    pub fn of_queue(index: u16) -> Option<Events> {
        match index {
            queue::ASYNC_EVENTS => Some(Events::Async),
            _ => index.checked_sub(queue::FIRST_COMP_EVENTS).map(Events::Completion),
        }
    }
}

/// Number of the first channel, which is the kernel's: it follows the event queues.
pub fn first_channel(comp_vectors: u16) -> u16 {
    queue::FIRST_COMP_EVENTS + comp_vectors
}
