//! The state of an unreliable connection on RoCE.

use crate::save::record;
use vrdma_wire::num::Rkey;
use vrdma_wire::roce::Reth;

/// The state of an unreliable connection whose peer is reached by packets.
pub(crate) struct UcRoce {
    /// The WRITE that the peer's next packet continues.
    pub(crate) write: Reth,
}

impl UcRoce {
    pub(crate) fn new() -> UcRoce {
        UcRoce { write: Reth { va: 0, rkey: Rkey(0), length: 0 } }
    }

    /// Returns the record of the state.
    pub(crate) fn save(&self) -> record::Roce {
        let UcRoce { write } = *self;
        record::Roce::Uc { write: write.into() }
    }

    /// Restores the state.
    pub(crate) fn restore(write: &record::Reth) -> UcRoce {
        UcRoce { write: write.into() }
    }
}
