//! Queue pairs, as far as their CQs and the quota are concerned; the engine has all else.

use super::command::Reply;
use super::{Device, Result};
use crate::memory::MrMemory;
use crate::translate::event;
use vrdma_transport::{Engine, Error, QpInit};
use vrdma_wire::num::Qpn;

/// Requests that a QP may have outstanding in queues of its own.
fn requests(init: &QpInit) -> u64 {
    let receives = if init.srq.is_some() { 0 } else { init.max_recv_wr };
    u64::from(init.max_send_wr) + u64::from(receives)
}

impl Device {
    /// CREATE_QP.
    ///
    /// # Errors
    /// `NotFound`: there is no such context, CQ or PD. `Denied`: one is another context's. `NoResources`: the guest has as many
    /// requests outstanding as it may. Those of [`Engine::create_qp`].
    pub fn create_qp(&mut self, engine: &mut Engine<MrMemory>, init: QpInit) -> Result<Reply> {
        let QpInit { owner, send_cq, recv_cq, .. } = init;
        self.context(owner)?;
        self.cq(send_cq, owner)?;
        self.cq(recv_cq, owner)?;
        let requests = requests(&init);
        self.quota.check_requests(requests, &self.limits)?;
        if engine.pd_owner(self.id, init.pd)? != owner {
            return Err(Error::Denied);
        }
        let qpn = engine.create_qp(self.id, init)?;
        self.quota.take_requests(requests);
        self.cq(send_cq, owner)?.qps.push(qpn);
        self.cq(recv_cq, owner)?.qps.push(qpn);
        self.context(owner)?.objects += 1;
        Ok(Reply::Object(qpn.number()))
    }

    /// DESTROY_QP.
    ///
    /// # Errors
    /// `NotFound`: it does not exist.
    pub fn destroy_qp(&mut self, engine: &mut Engine<MrMemory>, qpn: Qpn) -> Result<Reply> {
        let init = engine.destroy_qp(self.id, qpn)?;
        self.quota.return_requests(requests(&init));
        for cq in [init.send_cq, init.recv_cq] {
            let qps = &mut self.cq(cq, init.owner)?.qps;
            if let Some(at) = qps.iter().position(|&user| user == qpn) {
                qps.swap_remove(at);
            }
        }
        self.async_events.forget(qpn.number(), &event::OF_QP);
        self.release(init.owner);
        Ok(Reply::Done)
    }
}
