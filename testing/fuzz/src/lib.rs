//! What is fuzzed. The tests of `wire`, `transport`, its `tcp` and `vrdma-backend` include the same
//! files, and feed them the corpus (`testing/fuzz/corpus`) and every input that ever made them fail
//! (`testing/fuzz/crashes`).

mod engine;
mod input;
mod iwarp;
mod packet;
mod stack;
mod tcp;

pub use engine::{requester, responder, restore, stream};
pub use iwarp::{fpdu, mpa_set_up, rdmap};
pub use packet::packet;
pub use stack::stack;
pub use tcp::tcp;
// `backend/` is compiled as a module of vrdma-backend, whose insides it needs.
pub use vrdma_backend::fuzzing::{connections, control, ethernet, rings, segments, vhost_user, wqe};
