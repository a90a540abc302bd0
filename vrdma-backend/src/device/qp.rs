//! Queue pairs, as far as their CQs and the quota are concerned. The engine has the rest.

use super::objects::CqUser;
use super::{Device, Result};
use crate::memory::MrMemory;
use crate::translate::event;
use vrdma_transport::{CqId, Engine, Error, QpInit, QpType, Receives};
use vrdma_wire::num::Qpn;

/// Returns the number of requests that a QP may have outstanding in its own queues.
fn requests(init: &QpInit) -> u64 {
    let receives = if init.receives == Receives::Own { init.max_recv_wr } else { 0 };
    match init.qp_type {
        QpType::XrcRecv => 0,
        QpType::XrcSend => init.max_send_wr.into(),
        _ => u64::from(init.max_send_wr) + u64::from(receives),
    }
}

/// Returns the CQs where its requests complete, one for each direction that it has.
fn cqs(init: &QpInit) -> impl Iterator<Item = CqId> + use<> {
    let sends = (init.qp_type != QpType::XrcRecv).then_some(init.send_cq);
    let receives = !matches!(init.qp_type, QpType::XrcSend | QpType::XrcRecv);
    sends.into_iter().chain(receives.then_some(init.recv_cq))
}

impl Device {
    /// CREATE_QP.
    ///
    /// # Errors
    /// `NotFound`: the context, a CQ, the PD or the XRC domain does not exist. `Denied`: one
    /// belongs to another context. `NoResources`: the guest has reached its limit of outstanding
    /// requests. Also the errors of [`Engine::create_qp`].
    pub fn create_qp(&mut self, engine: &mut Engine<MrMemory>, init: QpInit) -> Result<Qpn> {
        let owner = init.owner;
        self.context(owner)?;
        for cq in cqs(&init) {
            self.cq(cq, owner)?;
        }
        let requests = requests(&init);
        self.quota.check_requests(requests, &self.limits)?;
        if let Some(pd) = init.pd
            && engine.pd_owner(self.id, pd)? != owner
        {
            return Err(Error::Denied);
        }
        let qpn = engine.create_qp(self.id, init)?;
        self.quota.take_requests(requests);
        for cq in cqs(&init) {
            self.cq(cq, owner)?.users.push(CqUser::Qp(qpn));
        }
        self.context(owner)?.objects += 1;
        Ok(qpn)
    }

    /// DESTROY_QP.
    ///
    /// # Errors
    /// `NotFound`: it does not exist.
    pub fn destroy_qp(&mut self, engine: &mut Engine<MrMemory>, qpn: Qpn) -> Result<()> {
        let init = engine.destroy_qp(self.id, qpn)?;
        self.quota.return_requests(requests(&init));
        for cq in cqs(&init) {
            self.leave_cq(cq, CqUser::Qp(qpn));
        }
        self.async_events.forget(qpn.number(), &event::OF_QP);
        self.release(init.owner);
        Ok(())
    }
}
