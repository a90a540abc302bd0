//! Requests on their way from a channel to the engine.

use crate::queue::channel::{NO_WORDS, RequestWords};
use vrdma_transport::DeviceId;
use vrdma_wire::num::{Qpn, Rkey};

/// Requests copied out of a channel before the first of them is carried out, so that the processor
/// waits for the lines of many at once.
pub(super) const TOGETHER: usize = 8;

/// Requests that are copied out and wait to be carried out.
#[derive(Debug)]
pub struct Fetched {
    /// One each.
    pub(super) words: [RequestWords; TOGETHER],
    /// Their units.
    pub(super) units: [usize; TOGETHER],
    /// How many there are.
    pub(super) count: usize,
    /// Whose the last ones were, and what the last named: if it is named again, it needs not be
    /// fetched.
    pub(super) device: Option<DeviceId>,
    pub(super) qpn: Option<Qpn>,
    pub(super) rkey: Option<Rkey>,
}

impl Default for Fetched {
    fn default() -> Fetched {
        Fetched {
            words: [NO_WORDS; TOGETHER],
            units: [0; TOGETHER],
            count: 0,
            device: None,
            qpn: None,
            rkey: None,
        }
    }
}
