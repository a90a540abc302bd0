//! Rules of messages that all services share.
//!
//! [`segmentation`] splits a message into segments. At the responder, [`verdict`] checks each
//! segment, and [`effect`] executes it. [`arrival`] updates the responder, and [`departure`] the
//! requester. [`keys`] executes a request that changes only keys of its own device. [`mirror`]
//! shows messages within the engine as packets.

pub(crate) mod accept;
pub(crate) mod arrival;
pub(crate) mod core;
pub(crate) mod ctx;
pub(crate) mod departure;
pub(crate) mod effect;
pub(crate) mod fail;
pub(crate) mod flush;
pub(crate) mod keys;
pub(crate) mod mirror;
pub(crate) mod outlet;
pub(crate) mod pair;
pub(crate) mod receive;
mod reorder;
pub(crate) mod segmentation;
pub(crate) mod step;
pub(crate) mod transfer;
pub(crate) mod verdict;
pub(crate) mod wake;
