//! Memory regions and windows.

use super::command::{NewMemory, Reply};
use super::{Device, Result};
use crate::memory::MrMemory;
use vrdma_transport::{Access, Engine, Error, MwType, OwnerId, PdId, Rereg};
use vrdma_wire::num::Rkey;

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

    /// ALLOC_FAST_MR.
    ///
    /// # Errors
    /// `NoResources`: the guest has as many regions or runs as it may. Those of [`Engine::alloc_fast_mr`].
    pub fn alloc_fast_mr(
        &mut self,
        engine: &mut Engine<MrMemory>,
        pd: PdId,
        max_pages: u32,
    ) -> Result<Reply> {
        let memory = MrMemory::pages(&self.memory, max_pages);
        let runs = memory.runs();
        self.quota.take_runs(runs, &self.limits)?;
        let key = engine.alloc_fast_mr(self.id, pd, max_pages, memory);
        key.map(Reply::Key).inspect_err(|_| self.quota.return_runs(runs))
    }

    /// DEREG_MR.
    ///
    /// # Errors
    /// `NotFound`: the key is none of a region. `Busy`: windows are bound to it.
    pub fn dereg_mr(&mut self, engine: &mut Engine<MrMemory>, key: u32) -> Result<Reply> {
        let memory = engine.dereg_mr(self.id, key)?;
        self.quota.return_runs(memory.runs());
        Ok(Reply::Done)
    }

    /// REREG_MR.
    ///
    /// # Errors
    /// `NoResources`: the guest has as many runs as it may. Those of [`Engine::rereg_mr`].
    pub fn rereg_mr(
        &mut self,
        engine: &mut Engine<MrMemory>,
        key: u32,
        (pd, access): (Option<PdId>, Option<Access>),
        memory: Option<NewMemory>,
    ) -> Result<Reply> {
        let old = engine.region(self.id, key)?.runs();
        let new = memory.as_ref().map_or(old, |memory| memory.runs);
        self.quota.exchange_runs(old, new, &self.limits)?;
        let memory = memory.map(|NewMemory { iova, length, memory, .. }| (iova, length, memory));
        let changed = engine.rereg_mr(self.id, key, Rereg { pd, access, memory });
        match changed {
            Ok((key, _)) => Ok(Reply::Key(key)),
            Err(error) => {
                let back = self.quota.exchange_runs(new, old, &self.limits);
                back.expect("they were in use before, and nothing took any since");
                Err(error)
            }
        }
    }

    /// ALLOC_MW.
    ///
    /// # Errors
    /// Those of [`Engine::alloc_mw`].
    pub fn alloc_mw(&mut self, engine: &mut Engine<MrMemory>, pd: PdId, mw_type: MwType) -> Result<Reply> {
        engine.alloc_mw(self.id, pd, mw_type).map(|key| Reply::Object(key.0))
    }

    /// DEALLOC_MW.
    ///
    /// # Errors
    /// `NotFound`: there is no such window.
    pub fn dealloc_mw(&mut self, engine: &mut Engine<MrMemory>, key: u32) -> Result<Reply> {
        engine.dealloc_mw(self.id, Rkey(key)).map(|()| Reply::Done)
    }
}
