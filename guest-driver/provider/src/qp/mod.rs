//! Queue pairs.

pub(crate) mod asked;
pub(crate) mod create;
pub(crate) mod kind;
pub(crate) mod modify;
pub(crate) mod state;

pub use create::{create_qp, create_qp_ex, open_qp};
pub use kind::Kind;
pub use modify::{destroy_qp, modify_qp, query_qp};
pub use state::{Qp, Requests};
