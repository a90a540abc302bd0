//! Completion queues.

use super::moderation::{Moderation, Waiting};
use super::objects::{Cq, CqUser};
use super::{Device, Result};
use crate::queue::cq::{CqLayout, CqMapping, CqRing};
use crate::translate::event::{self, AsyncEvent};
use std::ops::Range;
use vrdma_transport::{CqId, Error, OwnerId};

impl Device {
    /// CREATE_CQ.
    ///
    /// # Errors
    /// `Invalid`: the vector does not exist. `NotFound`: the context does not exist. `NoResources`:
    /// the guest has reached its limit of CQs or extents.
    pub fn create_cq(&mut self, owner: OwnerId, vector: u16, ring: CqRing) -> Result<CqId> {
        let extents = ring.extents();
        if usize::from(vector) >= self.comp_events.len() {
            return Err(Error::Invalid);
        }
        self.context(owner)?;
        if !self.cqs.has_room() {
            return Err(Error::NoResources);
        }
        self.quota.take_extents(extents, &self.limits)?;
        let cq = Cq {
            owner,
            vector,
            ring,
            extents,
            users: Vec::new(),
            dirty: false,
            new: 0,
            solicited: false,
            quiet: false,
            quiet_solicited: false,
            moderation: None,
            waiting: Waiting::default(),
            failed: false,
        };
        let cqn = self.cqs.insert(cq).ok_or(Error::NoResources)?;
        self.context(owner)?.objects += 1;
        Ok(CqId(cqn))
    }

    /// DESTROY_CQ.
    ///
    /// # Errors
    /// `NotFound`: it does not exist. `Busy`: QPs or shared receive queues use it.
    pub fn destroy_cq(&mut self, cqn: CqId) -> Result<()> {
        let cq = self.cqs.get_mut(cqn.0).ok_or(Error::NotFound)?;
        if !cq.users.is_empty() {
            return Err(Error::Busy);
        }
        let vector = usize::from(cq.vector);
        let cq = self.cqs.remove(cqn.0).ok_or(Error::NotFound)?;
        self.comp_events[vector].forget(cqn.0, &[event::COMPLETION]);
        self.async_events.forget(cqn.0, &[AsyncEvent::cq_error(cqn).kind]);
        self.quota.return_extents(cq.extents);
        self.release(cq.owner);
        Ok(())
    }

    /// RESIZE_CQ: continues the CQ in `ring`. The consumer still has `held` entries that it has
    /// taken.
    ///
    /// # Errors
    /// `NotFound`: it does not exist. `NoResources`: the guest has reached its limit of extents.
    /// `Invalid`: the unconsumed CQEs do not fit, the CQEs are of another kind, or the CQ failed.
    pub fn resize_cq(&mut self, cqn: CqId, held: u32, ring: CqRing) -> Result<()> {
        let cq = self.cqs.get_mut(cqn.0).ok_or(Error::NotFound)?;
        let unpolled = cq.ring.unconsumed().filter(|_| !cq.failed).ok_or(Error::Invalid)?;
        let is_too_small = u64::from(unpolled) + u64::from(held) > ring.entries().into();
        if is_too_small || ring.kind() != cq.ring.kind() {
            return Err(Error::Invalid);
        }
        let extents = ring.extents();
        self.quota.exchange_extents(cq.extents, extents, &self.limits)?;
        cq.extents = extents;
        cq.ring.go_on_in(ring);
        Ok(())
    }

    /// MODIFY_CQ. An event that already waits keeps its deadline.
    ///
    /// # Errors
    /// `NotFound`: it does not exist.
    pub fn modify_cq(&mut self, cqn: CqId, moderation: Option<Moderation>) -> Result<()> {
        self.cqs.get_mut(cqn.0).ok_or(Error::NotFound)?.moderation = moderation;
        Ok(())
    }

    /// Returns the owner of a CQ.
    pub fn cq_owner(&mut self, cqn: CqId) -> Option<OwnerId> {
        self.cqs.get_mut(cqn.0).map(|cq| cq.owner)
    }

    /// Returns one more than the highest CQ number so far.
    pub fn cq_end(&self) -> u32 {
        self.cqs.end()
    }

    /// Returns the layouts of those CQs in a range of numbers that are mapped.
    pub fn cq_layouts(&mut self, numbers: Range<u32>) -> Vec<(CqId, CqLayout)> {
        let layout = |cqn| Some((CqId(cqn), self.cqs.get_mut(cqn)?.ring.layout()?));
        numbers.filter_map(layout).collect()
    }

    /// Switches a CQ to a mapping in a new memory table. Returns the old mapping.
    ///
    /// `new` is `None` if its memory is gone.
    pub fn install_cq(&mut self, cq: CqId, new: Option<CqMapping>) -> Option<CqMapping> {
        self.cqs.get_mut(cq.0)?.ring.install(new)
    }

    /// Returns the users of a CQ.
    pub fn users_of(&mut self, cq: CqId) -> Vec<CqUser> {
        self.cqs.get_mut(cq.0).map(|cq| cq.users.clone()).unwrap_or_default()
    }

    /// Removes a user of a CQ.
    pub(super) fn leave_cq(&mut self, cq: CqId, user: CqUser) {
        let Some(cq) = self.cqs.get_mut(cq.0) else { return };
        if let Some(at) = cq.users.iter().position(|&other| other == user) {
            cq.users.swap_remove(at);
        }
    }

    /// Returns a CQ of the context.
    ///
    /// # Errors
    /// `NotFound`: it does not exist. `Denied`: another context owns it.
    pub(super) fn cq(&mut self, cqn: CqId, owner: OwnerId) -> Result<&mut Cq> {
        let cq = self.cqs.get_mut(cqn.0).ok_or(Error::NotFound)?;
        if cq.owner == owner { Ok(cq) } else { Err(Error::Denied) }
    }
}
