//! One side of a connection: a process with all objects that a connection needs.

use crate::lab::Lab;
use crate::qp::QpOptions;
pub use vrdma_guest::side::{Side, pair_between};

/// Connects two sides, each with a region of `len` bytes.
///
/// The first side is in guest 0, the second in guest `peer`.
pub fn pair(lab: &Lab, peer: usize, len: u64, options: &QpOptions) -> (Side, Side) {
    pair_between(&lab.guests[0], &lab.guests[peer], len, options)
}
