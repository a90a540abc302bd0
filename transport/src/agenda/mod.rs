//! What is to be done, and in which order.

pub(crate) mod deadlines;
pub(crate) mod fan_out;
pub(crate) mod look;
pub(crate) mod schedule;
pub(crate) mod sweeps;
