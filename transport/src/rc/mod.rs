//! Reliable connections: the two ends, and the way between them that needs no packets.

pub(crate) mod arrival;
pub(crate) mod local;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod segment;
pub(crate) mod transfer;
pub(crate) mod wire;
