//! What waits for memory that is loaned.

use crate::memory::Loans;
use vrdma_transport as transport;

/// Turns from one time that the uplink is asked for memory to the next: each time frames of all
/// guests that wait are copied.
pub(super) const RECLAIM_TURNS: u32 = 64;

/// Something that waits for memory that is loaned.
pub(super) struct Recall {
    pub(super) loans: Loans,
    /// When this is over,
    pub(super) until: transport::Instant,
    /// and so many turns are, nobody waits any longer.
    pub(super) turns: u32,
    /// Told whether all memory is back.
    pub(super) then: Box<dyn FnOnce(bool) + Send>,
}
