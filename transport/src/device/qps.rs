//! Queue pairs of a device: made, and gone with what was pending.

use super::Device;
use crate::error::Error;
use crate::id::{OwnerId, PdId, SrqId};
use crate::outstanding::{RecvSlot, Requests};
use crate::qp::Qp;
use crate::qp::attr::{QpInit, QpType};
use crate::qp::entry::QpEntry;
use vrdma_wire::num::Qpn;

impl<R> Device<R> {
    /// Whether there may be such a QP, and what all queues would take then, were they full.
    pub(super) fn admit(&self, init: &QpInit) -> Result<u64, Error> {
        let gsi = init.qp_type == QpType::Gsi;
        if self.pd(init.pd)?.owner != init.owner || gsi && init.owner != OwnerId::KERNEL {
            return Err(Error::Denied);
        }
        if let Some(id) = init.srq
            && (gsi || self.srqs.get(id.0).ok_or(Error::NotFound)?.init.owner != init.owner)
        {
            return Err(Error::Denied);
        }
        let limits = &self.limits;
        if init.max_send_wr > limits.max_qp_wr
            || init.max_recv_wr > limits.max_qp_wr
            || init.max_send_sge > limits.max_send_sge
            || init.max_recv_sge > limits.max_recv_sge
            || init.max_inline > limits.max_inline
        {
            return Err(Error::Invalid);
        }
        let promised = self.promised.saturating_add(Requests::cost(init));
        if promised > limits.max_request_memory { Err(Error::NoResources) } else { Ok(promised) }
    }

    /// `room`: bytes that requests may still take of what all devices share.
    pub(crate) fn create_qp(&mut self, init: QpInit, room: u64) -> Result<Qpn, Error> {
        let gsi = init.qp_type == QpType::Gsi;
        let init = self.with_shared_queue(init);
        let promised = self.admit(&init)?;
        if promised - self.promised > room {
            return Err(Error::NoResources);
        }
        let shared_pd = self.pd_of_receives(&init);
        let qpn = |number| Qpn::new(number).expect("numbers of QPs have 24 bits");
        let make = |number| QpEntry::new(qpn(number), init, shared_pd);
        // A device added anew begins elsewhere: what names QPs of the old one shall not fit.
        let first = self.first_generation;
        let next = |tag: u16| if tag == 0 { first } else { tag.wrapping_add(1).max(1) };
        let number = match gsi {
            true => self.qps.insert_special(Qpn::GSI.number(), make).ok_or(Error::Busy)?,
            false => self.qps.insert(next, make).ok_or(Error::NoResources)?,
        };
        self.promised = promised;
        self.qp_uses(&init, true);
        Ok(qpn(number))
    }

    /// A QP that uses a shared queue has no receives of its own, and takes such as that has.
    pub(super) fn with_shared_queue(&self, init: QpInit) -> QpInit {
        match init.srq.and_then(|id| self.srqs.get(id.0)) {
            Some(srq) => QpInit { max_recv_wr: 0, max_recv_sge: srq.init.max_sge, ..init },
            None => init,
        }
    }

    /// The PD whose memory the receives name that such a QP takes.
    pub(super) fn pd_of_receives(&self, init: &QpInit) -> PdId {
        init.srq.and_then(|id| self.srqs.get(id.0)).map_or(init.pd, |srq| srq.init.pd)
    }

    /// Whose channels can hold receives for a QP.
    pub(crate) fn owner_of_receives(&self, qp: &Qp) -> OwnerId {
        qp.init.srq.and_then(|id| self.srqs.get(id.0)).map_or(qp.owner, |srq| srq.init.owner)
    }

    /// The receive that a QP would take from its shared queue.
    pub(crate) fn next_shared_receive(&self, qp: &Qp) -> Option<&RecvSlot> {
        self.requests.front_receive(&self.srqs.get(qp.init.srq?.0)?.receives)
    }

    /// A QP begins or ceases to use what it was made with.
    pub(super) fn qp_uses(&mut self, init: &QpInit, more: bool) {
        self.pd_used(init.pd, more);
        if let Some(id) = init.srq {
            let users = &mut self.srqs.used(id).users;
            *users = if more { *users + 1 } else { *users - 1 };
        }
    }

    /// Takes a QP away that has nothing pending.
    pub(crate) fn remove_qp(&mut self, qpn: Qpn) -> Result<QpInit, Error> {
        let qp = self.qps.remove(qpn.number()).ok_or(Error::NotFound)?.qp;
        self.promised -= Requests::cost(&qp.init);
        self.qp_uses(&qp.init, false);
        Ok(qp.init)
    }

    /// The pending requests of a QP end without completions, but for receives of a shared queue, which has them again: that queue, if it uses one. Its
    /// peer waits no longer for one.
    pub(crate) fn drop_requests(&mut self, qpn: Qpn) -> Option<SrqId> {
        let qp = &mut self.qps.known(qpn).qp;
        self.srqs.waits_no_longer(qp);
        let mut flush = qp.flush.take().map(|flush| *flush).unwrap_or_default();
        if let Some(id) = qp.init.srq {
            let srq = self.srqs.used(id);
            srq.take_back(&mut qp.responder.queue, &mut self.requests);
            srq.take_back(&mut flush.receives, &mut self.requests);
        }
        self.requests.drop_queues(&mut qp.requester.queue, &mut qp.responder.queue);
        self.requests.drop_queues(&mut flush.sends, &mut flush.receives);
        qp.init.srq
    }

    /// The peer of a QP waits no longer for a receive.
    pub(crate) fn waits_no_longer(&mut self, qpn: Qpn) {
        self.srqs.waits_no_longer(&mut self.qps.known(qpn).qp);
    }
}
