//! Unreliable datagrams.

pub(crate) mod wire;
