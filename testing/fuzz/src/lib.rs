//! The fuzz targets.
//!
//! The tests of `wire`, `transport`, its `tcp` and `vrdma-backend` include these files. They run
//! them with the corpus (`corpus/`) and with every input that ever failed (`crashes/`).

mod engine;
mod input;
mod iwarp;
mod packet;
mod stack;
mod tcp;

pub use engine::{reorder, requester, responder, restore, stream};
pub use iwarp::{fpdu, mpa_set_up, rdmap};
pub use packet::packet;
pub use stack::stack;
pub use tcp::tcp;
// These are in `vrdma-backend/src/fuzzing/`, because they need private items of the daemon.
pub use vrdma_backend::fuzzing::{connections, control, ethernet, rings, segments, vhost_user, wqe};
