//! Queue pairs of a device: made, and removed with their pending requests.

use super::Device;
use crate::base::error::Error;
use crate::base::id::{OwnerId, PdId, SrqId};
use crate::objects::outstanding::Requests;
use crate::objects::qp::Qp;
use crate::objects::qp::entry::{QpEntry, next_generation};
use crate::objects::srq::life::SrqRef;
use crate::verbs::attr::{QpInit, QpType, Receives};
use crate::verbs::caps::Caps;
use vrdma_wire::num::Qpn;

impl<R> Device<R> {
    /// Checks whether a QP may have these parameters, and returns the bytes that all full queues
    /// then take.
    pub(super) fn admit(&self, init: &QpInit) -> Result<u64, Error> {
        let gsi = init.qp_type == QpType::Gsi;
        if gsi && init.owner != OwnerId::KERNEL {
            return Err(Error::Denied);
        }
        match init.pd {
            Some(pd) if self.pd(pd)?.owner != init.owner => return Err(Error::Denied),
            _ if init.pd.is_none() == (init.qp_type == QpType::XrcRecv) => {}
            _ => return Err(Error::Invalid),
        }
        self.admit_receives(init)?;
        let limits = &self.limits;
        if init.max_send_wr > limits.max_qp_wr
            || init.max_recv_wr > limits.max_qp_wr
            || init.max_send_sge > limits.max_send_sge
            || init.max_recv_sge > limits.max_recv_sge
            || init.max_inline > limits.max_inline
            || !Caps::can_hold(init)
        {
            return Err(Error::Invalid);
        }
        let promised = self.promised.saturating_add(Requests::cost(init));
        if promised > limits.max_request_memory { Err(Error::NoResources) } else { Ok(promised) }
    }

    /// Checks whether a QP may take its receives from there.
    fn admit_receives(&self, init: &QpInit) -> Result<(), Error> {
        match (init.receives, init.qp_type) {
            (Receives::Own, service) if service != QpType::XrcRecv => Ok(()),
            (Receives::Xrc(id), QpType::XrcRecv) => self.xrcds.get(id.0).map(drop).ok_or(Error::NotFound),
            (Receives::Shared(_), QpType::Gsi) => Err(Error::Denied),
            (Receives::Shared(id), QpType::Rc | QpType::Uc | QpType::Ud) => {
                let srq = self.parts.srqs.get(id.0).ok_or(Error::NotFound)?;
                match srq.init.xrc {
                    _ if srq.init.owner != init.owner => Err(Error::Denied),
                    Some(_) => Err(Error::Invalid),
                    None => Ok(()),
                }
            }
            _ => Err(Error::Invalid),
        }
    }

    /// Creates a QP. `room` is how many bytes requests may still take of what all devices share.
    pub(crate) fn create_qp(&mut self, init: QpInit, room: u64) -> Result<Qpn, Error> {
        let gsi = init.qp_type == QpType::Gsi;
        let init = self.with_own_queues(init);
        let promised = self.admit(&init)?;
        if promised - self.promised > room {
            return Err(Error::NoResources);
        }
        let shared = self.shared_queue(&init);
        let qpn = |number| Qpn::new(number).expect("numbers of QPs have 24 bits");
        let make = |number| QpEntry::new(qpn(number), init, shared);
        // A device that is added again starts with other QPNs, so that references to old QPs do not
        // match.
        let (first, max_qp) = (self.first_generation, self.limits.max_qp);
        let next = |tag: u16| next_generation(max_qp, tag, first);
        let number = match gsi {
            true => self.qps.insert_special(Qpn::GSI.number(), make).ok_or(Error::Busy)?,
            false => self.qps.insert(next, make).ok_or(Error::NoResources)?,
        };
        self.promised = promised;
        self.qp_uses(&init, true);
        Ok(qpn(number))
    }

    /// Removes the queues from the parameters that such a QP does not have.
    ///
    /// With a shared queue, a QP takes receives of that queue's size. A QP of XRC is one half of a
    /// connection.
    pub(super) fn with_own_queues(&self, init: QpInit) -> QpInit {
        let no_sends = QpInit { max_send_wr: 0, max_send_sge: 0, max_inline: 0, ..init };
        match (init.qp_type, init.receives) {
            (QpType::XrcSend, _) => QpInit { max_recv_wr: 0, max_recv_sge: 0, ..init },
            (QpType::XrcRecv, _) => {
                QpInit { max_recv_wr: 0, max_recv_sge: self.limits.max_recv_sge, ..no_sends }
            }
            (_, Receives::Shared(id)) => match self.parts.srqs.get(id.0) {
                Some(srq) => QpInit { max_recv_wr: 0, max_recv_sge: srq.init.max_sge, ..init },
                None => init,
            },
            (_, Receives::Own | Receives::Xrc(_)) => init,
        }
    }

    /// Returns the shared queue that a QP has as long as it lives, with the PD of the memory that
    /// its receives name.
    pub(super) fn shared_queue(&self, init: &QpInit) -> Option<(SrqRef, PdId)> {
        match init.receives {
            Receives::Shared(id) => self.parts.srqs.get(id.0).map(|srq| (srq.this, srq.init.pd)),
            Receives::Own | Receives::Xrc(_) => None,
        }
    }

    /// Returns the owner of the channels that can hold receives for a QP.
    pub(crate) fn owner_of_receives(&self, qp: &Qp) -> OwnerId {
        self.parts.srqs.peek(qp).map_or(qp.owner, |srq| srq.init.owner)
    }

    /// Counts a QP that begins or ceases to use its objects.
    pub(super) fn qp_uses(&mut self, init: &QpInit, more: bool) {
        if let Some(pd) = init.pd {
            self.pd_used(pd, more);
        }
        match init.receives {
            Receives::Own => {}
            Receives::Shared(id) => {
                let users = &mut self.parts.srqs.used(id).users;
                *users = if more { *users + 1 } else { *users - 1 };
            }
            Receives::Xrc(id) => self.xrcds.used(id, more),
        }
    }

    /// Removes a QP without pending requests.
    pub(crate) fn remove_qp(&mut self, qpn: Qpn) -> Result<QpInit, Error> {
        let qp = self.qps.remove(qpn.number()).ok_or(Error::NotFound)?.qp;
        let init = qp.init();
        self.promised -= Requests::cost(&init);
        self.qp_uses(&init, false);
        Ok(init)
    }

    /// Ends the pending requests of a QP without completions. Its peer no longer waits for a
    /// receive.
    ///
    /// Receives of a shared queue return to that queue, which is the result.
    pub(crate) fn drop_requests(&mut self, qpn: Qpn) -> Option<SrqId> {
        let qp = &mut self.qps.known(qpn).qp;
        self.parts.srqs.waits_no_longer(qp);
        let mut flush = qp.flush.take().map(|flush| *flush).unwrap_or_default();
        let srq = self.parts.srqs.of(qp).map(|srq| {
            srq.take_back(&mut qp.responder.queue, &mut self.parts.requests);
            srq.take_back(&mut flush.receives, &mut self.parts.requests);
            srq.this.id()
        });
        self.parts.requests.drop_queues(&mut qp.requester.queue, &mut qp.responder.queue);
        self.parts.requests.drop_queues(&mut flush.sends, &mut flush.receives);
        srq
    }

    /// Records that the peer of a QP no longer waits for a receive.
    pub(crate) fn waits_no_longer(&mut self, qpn: Qpn) {
        self.parts.srqs.waits_no_longer(&mut self.qps.known(qpn).qp);
    }
}
