//! Protection domains.

use super::{Device, Result};
use crate::memory::MrMemory;
use vrdma_transport::{Engine, OwnerId, PdId};

impl Device {
    /// ALLOC_PD.
    ///
    /// # Errors
    /// `NotFound`: there is no such context. `NoResources`: the guest has as many as it may.
    pub fn alloc_pd(&mut self, engine: &mut Engine<MrMemory>, owner: OwnerId) -> Result<PdId> {
        self.context(owner)?;
        let pd = engine.alloc_pd(self.id, owner)?;
        self.context(owner)?.objects += 1;
        Ok(pd)
    }

    /// DEALLOC_PD.
    ///
    /// # Errors
    /// `NotFound`: it does not exist. `Busy`: regions, shared receive queues or QPs use it.
    pub fn dealloc_pd(&mut self, engine: &mut Engine<MrMemory>, pd: PdId) -> Result<()> {
        let owner = engine.pd_owner(self.id, pd)?;
        engine.dealloc_pd(self.id, pd)?;
        self.release(owner);
        Ok(())
    }
}
