//! The receiving half of a QP in the record.

use super::Responder;
use crate::base::id::SrqId;
use crate::base::transport_kind::TransportKind;
use crate::collections::pool::List;
use crate::objects::outstanding::Requests;
use crate::objects::qp::Qp;
use crate::save::{Violation, record, same_names, to_psn};
use crate::verbs::attr::{QpType, Receives};
use crate::verbs::limits::CLAIMED;
use crate::verbs::op::Message;
use crate::verbs::request::MAX_MESSAGE;

same_names!(Message { None, Send, Write });

impl Responder {
    /// Returns the record of the receiving half. `shared` is the QP's shared queue.
    pub(in crate::objects::qp) fn save(
        &self,
        shared: Option<SrqId>,
        requests: &Requests,
    ) -> record::Responder {
        let Responder { psn, ref queue, received, in_progress, sender_waits, established, service } = *self;
        let target = service == QpType::XrcRecv;
        let is_gone = target && shared.is_none();
        record::Responder {
            psn: psn.number(),
            received,
            in_progress: in_progress.into(),
            sender_waits: sender_waits && !is_gone,
            srq: shared.filter(|_| target).map(|srq| srq.0),
            established,
            queue: requests.save_receives(queue),
        }
    }

    /// Restores the receiving half, for `qp` with its state.
    pub(in crate::objects::qp) fn restore(
        record: &record::Responder,
        qp: &Qp,
        requests: &mut Requests,
    ) -> Result<Responder, Violation> {
        // The receive that could not be parsed may exceed the queue by one.
        let receives = || record.queue.iter().filter(|receive| !receive.not_understood);
        let most = match qp.receives() {
            Receives::Own => usize::from(qp.caps.recv_wr),
            Receives::Shared(_) if qp.transport == TransportKind::Tcp => CLAIMED as usize,
            Receives::Shared(_) | Receives::Xrc(_) => usize::from(qp.srq.is_some()),
        };
        let is_gone = qp.service() == QpType::XrcRecv && qp.srq.is_none();
        if is_gone && record.sender_waits {
            return Err(Violation::Xrc);
        }
        if receives().count() > most {
            return Err(Violation::Queue);
        }
        let mut queue = List::EMPTY;
        for receive in receives() {
            requests.restore_receive(&mut queue, receive, qp.caps.recv_sge.into())?;
        }
        let record::Responder { received, sender_waits, established, .. } = *record;
        let in_progress = Message::from(record.in_progress);
        let most = match in_progress {
            Message::None => 0,
            Message::Write => MAX_MESSAGE,
            // The receive was flushed when the QP entered ERR.
            Message::Send if !qp.is_receiving() => MAX_MESSAGE,
            // The message is refused when it continues.
            Message::Send if is_gone => MAX_MESSAGE,
            Message::Send => {
                let receive = requests.front_receive(&queue).ok_or(Violation::Received)?;
                receive.length.min(MAX_MESSAGE)
            }
        };
        if received > most || in_progress != Message::None && qp.service().is_datagram() {
            return Err(Violation::Received);
        }
        let psn = to_psn(record.psn)?;
        let service = qp.service();
        Ok(Responder { psn, queue, received, in_progress, sender_waits, established, service })
    }
}
