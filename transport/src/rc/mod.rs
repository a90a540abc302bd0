//! Reliable connections: on the same host, in packets, and in streams.

mod allowance;
pub(crate) mod local;
pub(crate) mod roce;
pub(crate) mod tcp;
