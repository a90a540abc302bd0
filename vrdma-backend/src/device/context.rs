//! User contexts, which own channels, PDs, CQs and QPs.

use super::objects::UserContext;
use super::{Device, Result};
use vrdma_transport::{Error, OwnerId};

impl Device {
    /// ALLOC_CONTEXT.
    ///
    /// # Errors
    /// `NoResources`: the guest has as many as it may.
    pub fn alloc_context(&mut self) -> Result<OwnerId> {
        self.contexts.insert(UserContext::default()).map(OwnerId).ok_or(Error::NoResources)
    }

    /// DEALLOC_CONTEXT.
    ///
    /// # Errors
    /// `Denied`: it is the kernel's. `NotFound`: it does not exist. `Busy`: it owns something.
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

    /// An object of the context ends.
    pub(super) fn release(&mut self, owner: OwnerId) {
        if let Some(context) = self.contexts.get_mut(owner.0) {
            context.objects -= 1;
        }
    }
}
