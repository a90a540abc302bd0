//! What all services share: a message is cut into segments, each is judged at its responder, moves bytes, and arrives.

pub(crate) mod arrival;
pub(crate) mod segment;
pub(crate) mod stretch;
pub(crate) mod transfer;
pub(crate) mod verdict;
