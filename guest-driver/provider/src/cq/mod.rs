//! Completion queues.

pub(crate) mod create;
pub(crate) mod lock;
pub(crate) mod poll;
pub(crate) mod poll_ex;
pub(crate) mod resize;
pub(crate) mod ring;
pub(crate) mod started;
pub(crate) mod state;

pub use create::{create_cq, create_cq_ex, destroy_cq, modify_cq};
pub use poll::{poll_cq, req_notify_cq};
pub use resize::resize_cq;
pub use state::Cq;
