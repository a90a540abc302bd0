//! Completion queues.

use super::command::Reply;
use super::objects::Cq;
use super::{Device, Result};
use crate::queue::cq::{CqLayout, CqMapping, CqRing};
use crate::translate::event::{self, AsyncEvent};
use std::ops::Range;
use vrdma_transport::{CqId, Error, OwnerId};
use vrdma_wire::num::Qpn;

impl Device {
    /// CREATE_CQ.
    ///
    /// # Errors
    /// `Invalid`: there is no such vector. `NotFound`: there is no such context. `NoResources`: the guest has as many CQs or runs as
    /// it may.
    pub fn create_cq(&mut self, owner: OwnerId, vector: u16, ring: CqRing) -> Result<Reply> {
        let runs = ring.runs();
        if usize::from(vector) >= self.comp_events.len() {
            return Err(Error::Invalid);
        }
        self.context(owner)?;
        if !self.cqs.has_room() {
            return Err(Error::NoResources);
        }
        self.quota.take_runs(runs, &self.limits)?;
        let cq = Cq {
            owner,
            vector,
            ring,
            runs,
            qps: Vec::new(),
            dirty: false,
            solicited: false,
            quiet: false,
            quiet_solicited: false,
            failed: false,
        };
        let cqn = self.cqs.insert(cq).ok_or(Error::NoResources)?;
        self.context(owner)?.objects += 1;
        Ok(Reply::Object(cqn))
    }

    /// DESTROY_CQ.
    ///
    /// # Errors
    /// `NotFound`: it does not exist. `Busy`: QPs use it.
    pub fn destroy_cq(&mut self, cqn: CqId) -> Result<Reply> {
        let cq = self.cqs.get_mut(cqn.0).ok_or(Error::NotFound)?;
        if !cq.qps.is_empty() {
            return Err(Error::Busy);
        }
        let vector = usize::from(cq.vector);
        let cq = self.cqs.remove(cqn.0).ok_or(Error::NotFound)?;
        self.comp_events[vector].forget(cqn.0, &[event::COMPLETION]);
        self.async_events.forget(cqn.0, &[AsyncEvent::cq_error(cqn).kind]);
        self.quota.return_runs(cq.runs);
        self.release(cq.owner);
        Ok(Reply::Done)
    }

    /// One more than the highest number of a CQ so far.
    pub fn cq_end(&self) -> u32 {
        self.cqs.end()
    }

    /// Where CQs are that work, by number.
    pub fn cq_layouts(&mut self, numbers: Range<u32>) -> Vec<(CqId, CqLayout)> {
        let layout = |cqn| Some((CqId(cqn), self.cqs.get_mut(cqn)?.ring.layout()?));
        numbers.filter_map(layout).collect()
    }

    /// A CQ follows a new memory table; the old mapping. `None` for `new`: its memory is gone.
    pub fn install_cq(&mut self, cq: CqId, new: Option<CqMapping>) -> Option<CqMapping> {
        self.cqs.get_mut(cq.0)?.ring.install(new)
    }

    /// The QPs of a CQ.
    pub fn qps_of(&mut self, cq: CqId) -> Vec<Qpn> {
        self.cqs.get_mut(cq.0).map(|cq| cq.qps.clone()).unwrap_or_default()
    }

    /// A CQ of that context.
    ///
    /// # Errors
    /// `NotFound`: it does not exist. `Denied`: it is another context's.
    pub(super) fn cq(&mut self, cqn: CqId, owner: OwnerId) -> Result<&mut Cq> {
        let cq = self.cqs.get_mut(cqn.0).ok_or(Error::NotFound)?;
        if cq.owner == owner { Ok(cq) } else { Err(Error::Denied) }
    }
}
