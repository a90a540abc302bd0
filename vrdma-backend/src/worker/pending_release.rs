//! Callers that wait for the uplink to release guests' memory.

use crate::memory::Pins;
use vrdma_transport as transport;

/// The number of rounds between two requests that the uplink release memory.
///
/// Each request copies the queued frames of all guests.
pub(super) const RECLAIM_TURNS: u32 = 64;

/// A caller that waits for the uplink to release guests' memory.
pub(super) struct PendingRelease {
    pub(super) pins: Pins,
    /// The end of the waiting time. `turns` has to reach its limit too.
    pub(super) until: transport::Instant,
    /// The number of rounds so far.
    pub(super) turns: u32,
    /// Called with whether all memory is released.
    pub(super) then: Box<dyn FnOnce(bool) + Send>,
}
