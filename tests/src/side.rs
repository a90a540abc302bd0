//! A process with all that a connection needs.

use crate::lab::Lab;
use crate::qp::QpOptions;
pub use vrdma_guest::side::{Side, pair_between};

/// Two connected sides, the first in guest 0, the second in guest `peer`, each with a region of
/// `len` bytes.
pub fn pair(lab: &Lab, peer: usize, len: u64, options: &QpOptions) -> (Side, Side) {
    pair_between(&lab.guests[0], &lab.guests[peer], len, options)
}
