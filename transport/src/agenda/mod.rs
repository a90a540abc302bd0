//! Pending work, and its order.

pub(crate) mod deadlines;
pub(crate) mod drains;
pub(crate) mod fan_out;
pub(crate) mod rate;
pub(crate) mod rates;
pub(crate) mod reorder;
pub(crate) mod schedule;
pub(crate) mod sweeps;
