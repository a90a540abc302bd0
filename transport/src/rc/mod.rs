//! Reliable connections: the way between two ends that needs no packets, and the way in packets.

pub(crate) mod local;
pub(crate) mod wire;
