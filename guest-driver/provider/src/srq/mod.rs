//! Shared receive queues.

pub(crate) mod create;
pub(crate) mod modify;
pub(crate) mod state;

pub use create::{create_srq, create_srq_ex};
pub use modify::{destroy_srq, get_srq_num, modify_srq, query_srq};
pub use state::Srq;
