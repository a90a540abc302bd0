//! User contexts. They own channels, PDs, CQs, QPs and shared receive queues.

use super::objects::UserContext;
use super::{Device, Result};
use vrdma_transport::{Error, OwnerId};

impl Device {
    /// ALLOC_CONTEXT.
    ///
    /// # Errors
    /// `NoResources`: the guest has reached its limit.
    pub fn alloc_context(&mut self) -> Result<OwnerId> {
        self.contexts.insert(UserContext::default()).map(OwnerId).ok_or(Error::NoResources)
    }

    /// DEALLOC_CONTEXT.
    ///
    /// # Errors
    /// `Denied`: it is the kernel's. `NotFound`: it does not exist. `Busy`: it owns an object.
    pub fn dealloc_context(&mut self, owner: OwnerId) -> Result<()> {
        if owner == OwnerId::KERNEL {
            return Err(Error::Denied);
        }
        if self.context(owner)?.objects != 0 {
            return Err(Error::Busy);
        }
        self.contexts.remove(owner.0);
        Ok(())
    }

    pub(super) fn context(&mut self, owner: OwnerId) -> Result<&mut UserContext> {
        self.contexts.get_mut(owner.0).ok_or(Error::NotFound)
    }

    /// Counts an object of the context that ended.
    pub(super) fn release(&mut self, owner: OwnerId) {
        if let Some(context) = self.contexts.get_mut(owner.0) {
            context.objects -= 1;
        }
    }
}
