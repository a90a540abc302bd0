//! Memory regions.

use super::command::Reply;
use super::{Device, Result};
use crate::memory::MrMemory;
use vrdma_transport::{Access, Engine, Error, OwnerId, PdId};

/// A region to be registered.
#[derive(Debug)]
pub struct NewRegion {
    /// Its protection domain.
    pub pd: PdId,
    /// Its rights.
    pub access: Access,
    /// Address by which requests name its first byte.
    pub iova: u64,
    /// Length in bytes.
    pub length: u64,
    /// Where it is.
    pub memory: MrMemory,
    /// Runs of memory that it has, for the quota.
    pub runs: u64,
}

impl Device {
    /// REG_MR.
    ///
    /// # Errors
    /// `NoResources`: the guest has as many regions or runs as it may. Those of [`Engine::reg_mr`].
    pub fn reg_mr(&mut self, engine: &mut Engine<MrMemory>, new: NewRegion) -> Result<Reply> {
        let NewRegion { pd, access, iova, length, memory, runs } = new;
        self.quota.take_runs(runs, &self.limits)?;
        let key = engine.reg_mr(self.id, pd, access, iova, length, memory);
        key.map(Reply::Key).inspect_err(|_| self.quota.return_runs(runs))
    }

    /// GET_DMA_MR: all of the guest's memory, for its kernel.
    ///
    /// # Errors
    /// `Denied`: the PD is not the kernel's. Those of [`Engine::reg_mr`].
    pub fn dma_mr(&mut self, engine: &mut Engine<MrMemory>, pd: PdId, access: Access) -> Result<Reply> {
        if engine.pd_owner(self.id, pd)? != OwnerId::KERNEL {
            return Err(Error::Denied);
        }
        let memory = MrMemory::all(&self.memory);
        self.reg_mr(engine, NewRegion { pd, access, iova: 0, length: u64::MAX, memory, runs: 0 })
    }

    /// DEREG_MR.
    ///
    /// # Errors
    /// `NotFound`: the key is none of a region.
    pub fn dereg_mr(&mut self, engine: &mut Engine<MrMemory>, key: u32) -> Result<Reply> {
        let memory = engine.dereg_mr(self.id, key)?;
        self.quota.return_runs(memory.runs());
        Ok(Reply::Done)
    }
}
