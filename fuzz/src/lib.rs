//! What is fuzzed. The tests of `wire` and `transport` include the same files, and feed them the corpus (`fuzz/corpus`) and every input
//! that ever made them fail.

mod engine;
mod packet;

pub use engine::{requester, responder};
pub use packet::packet;
