//! Definitions that all layers use: identifiers, time, memory, errors.

pub(crate) mod carrier;
pub(crate) mod error;
pub(crate) mod gid;
pub(crate) mod id;
pub(crate) mod memory;
pub(crate) mod near;
pub(crate) mod place;
pub(crate) mod rng;
pub(crate) mod time;
