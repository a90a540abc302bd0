//! ibv_wr_post(3): send requests made by function calls, from ibv_wr_start() to ibv_wr_complete().
//!
//! A batch is collected as the list that ibv_post_send() would get. Then all of it is posted, or
//! nothing.

pub(crate) mod calls;
pub(crate) mod list;

pub use calls::{inline_data, operations, set_functions};
pub use list::Batches;
