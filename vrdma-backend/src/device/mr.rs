//! Memory regions and windows.

use super::{Device, Result};
use crate::memory::MrMemory;
use vrdma_transport::{Access, Engine, Error, OwnerId, PdId, Rereg};
use vrdma_wire::num::Lkey;

/// A region to register.
#[derive(Debug)]
pub struct NewRegion {
    /// Its protection domain.
    pub pd: PdId,
    /// Its rights.
    pub access: Access,
    /// Its memory.
    pub memory: NewMemory,
}

/// The memory for a region.
#[derive(Debug)]
pub struct NewMemory {
    /// The address by which requests name the first byte.
    pub iova: u64,
    /// Length in bytes.
    pub length: u64,
    /// The memory itself.
    pub memory: MrMemory,
    /// Number of extents, for the quota.
    pub extents: u64,
}

impl Device {
    /// REG_MR.
    ///
    /// # Errors
    /// `NoResources`: the guest has reached its limit of regions or extents. Also the errors of
    /// [`Engine::reg_mr`].
    pub fn reg_mr(&mut self, engine: &mut Engine<MrMemory>, new: NewRegion) -> Result<u32> {
        let NewRegion { pd, access, memory } = new;
        let NewMemory { iova, length, memory, extents } = memory;
        self.quota.take_extents(extents, &self.limits)?;
        let key = engine.reg_mr(self.id, pd, access, iova, length, memory);
        key.inspect_err(|_| self.quota.return_extents(extents))
    }

    /// GET_DMA_MR: registers all of the guest's memory, for its kernel.
    ///
    /// # Errors
    /// `Denied`: the PD is not the kernel's. Also the errors of [`Engine::reg_mr`].
    pub fn dma_mr(&mut self, engine: &mut Engine<MrMemory>, pd: PdId, access: Access) -> Result<u32> {
        if engine.pd_owner(self.id, pd)? != OwnerId::KERNEL {
            return Err(Error::Denied);
        }
        let memory = MrMemory::all(&self.memory);
        let memory = NewMemory { iova: 0, length: u64::MAX, memory, extents: 0 };
        self.reg_mr(engine, NewRegion { pd, access, memory })
    }

    /// ALLOC_FAST_MR.
    ///
    /// # Errors
    /// `NoResources`: the guest has reached its limit of regions or extents. Also the errors of
    /// [`Engine::alloc_fast_mr`].
    pub fn alloc_fast_mr(&mut self, engine: &mut Engine<MrMemory>, pd: PdId, max_pages: u32) -> Result<u32> {
        let memory = MrMemory::pages(&self.memory, max_pages);
        let extents = memory.extents();
        self.quota.take_extents(extents, &self.limits)?;
        let key = engine.alloc_fast_mr(self.id, pd, max_pages, memory);
        key.inspect_err(|_| self.quota.return_extents(extents))
    }

    /// DEREG_MR.
    ///
    /// # Errors
    /// `NotFound`: the key is not a region's. `Busy`: windows are bound to the region.
    pub fn dereg_mr(&mut self, engine: &mut Engine<MrMemory>, key: Lkey) -> Result<()> {
        let memory = engine.dereg_mr(self.id, key.0)?;
        self.quota.return_extents(memory.extents());
        Ok(())
    }

    /// REREG_MR.
    ///
    /// # Errors
    /// `NoResources`: the guest has reached its limit of extents. Also the errors of
    /// [`Engine::rereg_mr`].
    pub fn rereg_mr(
        &mut self,
        engine: &mut Engine<MrMemory>,
        key: Lkey,
        (pd, access): (Option<PdId>, Option<Access>),
        memory: Option<NewMemory>,
    ) -> Result<u32> {
        let old = engine.region(self.id, key.0)?.extents();
        let new = memory.as_ref().map_or(old, |memory| memory.extents);
        self.quota.exchange_extents(old, new, &self.limits)?;
        let memory = memory.map(|NewMemory { iova, length, memory, .. }| (iova, length, memory));
        let changed = engine.rereg_mr(self.id, key.0, Rereg { pd, access, memory });
        match changed {
            Ok((key, _)) => Ok(key),
            Err(error) => {
                let back = self.quota.exchange_extents(new, old, &self.limits);
                back.expect("they were in use before, and nothing took any since");
                Err(error)
            }
        }
    }
}
