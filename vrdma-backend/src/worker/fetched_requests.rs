//! Requests on their way from a channel to the engine.

use crate::queue::channel::{NO_WORDS, RequestWords};
use vrdma_transport::DeviceId;
use vrdma_wire::num::{Qpn, Rkey};

/// The number of requests copied out of a channel before the first of them is executed.
///
/// So the processor waits for the cache lines of many at once.
pub(super) const TOGETHER: usize = 8;

/// Requests that were copied out of a channel and wait to be executed.
#[derive(Debug)]
pub struct Fetched {
    /// The words of each request.
    pub(super) words: [RequestWords; TOGETHER],
    /// The length of each request in 64-byte units.
    pub(super) units: [usize; TOGETHER],
    /// The number of requests.
    pub(super) count: usize,
    /// The device of the last requests, and the QP and rkey named last.
    ///
    /// What is named again need not be prefetched again.
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
