//! Unreliable connections.

pub(crate) mod wire;
