//! Shared receive queues, as far as the quota is concerned. The engine has the rest.

use super::objects::CqUser;
use super::{Device, Result};
use crate::memory::MrMemory;
use crate::translate::event;
use vrdma_transport::{Engine, SrqId, SrqInit};

impl Device {
    /// CREATE_SRQ.
    ///
    /// # Errors
    /// `NotFound`: the context, the PD, the XRC domain or the CQ does not exist. `Denied`: one
    /// belongs to another context. `NoResources`: the guest has reached its limit of outstanding
    /// receives. Also the errors of [`Engine::create_srq`].
    pub fn create_srq(&mut self, engine: &mut Engine<MrMemory>, init: SrqInit) -> Result<SrqId> {
        self.context(init.owner)?;
        if let Some(xrc) = init.xrc {
            self.cq(xrc.cq, init.owner)?;
        }
        let requests = u64::from(init.max_wr);
        self.quota.check_requests(requests, &self.limits)?;
        let srq = engine.create_srq(self.id, init)?;
        self.quota.take_requests(requests);
        if let Some(xrc) = init.xrc {
            self.cq(xrc.cq, init.owner)?.users.push(CqUser::Srq(srq));
        }
        self.context(init.owner)?.objects += 1;
        Ok(srq)
    }

    /// Checks whether a queue of `old` receives may be resized to `new`.
    ///
    /// # Errors
    /// `NoResources`: the guest has reached its limit of outstanding receives.
    pub fn check_resize(&self, old: u32, new: u32) -> Result<()> {
        self.quota.check_requests(u64::from(new.saturating_sub(old)), &self.limits)
    }

    /// Records that a queue of `old` receives was resized to `new`, which was checked.
    pub fn resized(&mut self, old: u32, new: u32) {
        self.quota.take_requests(new.into());
        self.quota.return_requests(old.into());
    }

    /// DESTROY_SRQ.
    ///
    /// # Errors
    /// `NotFound`: it does not exist. `Busy`: QPs use it.
    pub fn destroy_srq(&mut self, engine: &mut Engine<MrMemory>, srq: SrqId) -> Result<()> {
        let init = engine.srq_init(self.id, srq)?;
        engine.destroy_srq(self.id, srq)?;
        self.quota.return_requests(init.max_wr.into());
        if let Some(xrc) = init.xrc {
            self.leave_cq(xrc.cq, CqUser::Srq(srq));
        }
        self.async_events.forget(srq.0, &event::OF_SRQ);
        self.release(init.owner);
        Ok(())
    }
}
