//! Reliable connections: on the same host, and in packets.

pub(crate) mod local;
pub(crate) mod roce;
