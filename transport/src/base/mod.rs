//! Definitions that all layers use: identifiers, time, memory, errors.

pub(crate) mod dcqcn;
pub(crate) mod error;
pub(crate) mod gid;
pub(crate) mod id;
pub(crate) mod inter_worker;
pub(crate) mod marks;
pub(crate) mod memory;
pub(crate) mod qp_ref;
pub(crate) mod rng;
pub(crate) mod time;
pub(crate) mod transport_kind;
