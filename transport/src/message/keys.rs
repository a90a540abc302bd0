//! Requests that change keys of their own device, and need no peer.
//!
//! They bind a memory window, register memory or invalidate a key.

use crate::base::id::OwnerId;
use crate::base::memory::Region;
use crate::message::ctx::QpCtx;
use crate::objects::mr::register::RegisterError;
use crate::objects::service::ConnState;
use crate::verbs::completion::{Sink, WcStatus};
use crate::verbs::op::SendOp;
use crate::verbs::window::Binder;
use crate::verbs::work::Work;

impl<R: Region, S: Sink, T: ConnState> QpCtx<'_, R, S, T> {
    /// Executes and ends `work`, the first request, whose operation changes only keys of its own
    /// device ([alone](crate::verbs::op::Row::alone)).
    ///
    /// The request need not be in the queue yet if the queue is empty.
    pub(crate) fn change_key(&mut self, work: &Work<'_>) {
        let done = match work.error {
            Some(status) => Err(status),
            None => self.try_change_key(work),
        };
        if let Err(status) = done {
            return self.fail(work, status);
        }
        work.row.count(self.counters);
        self.qp.requester.ended();
        self.end_send(work, WcStatus::Success);
        self.tell_if_drained();
    }

    fn try_change_key(&mut self, work: &Work<'_>) -> Result<(), WcStatus> {
        let QpCtx { qp, mrs, counters, .. } = self;
        match work.op {
            SendOp::BindMw(bind) => {
                let by = Binder { pd: qp.pd, qpn: qp.qpn, life: &mut qp.life };
                mrs.bind(bind, by).map_err(|_| WcStatus::MwBind)
            }
            SendOp::LocalInvalidate { key } => {
                mrs.invalidate(*key, qp.holder()).then_some(()).ok_or(WcStatus::LocQpOp)
            }
            // Only the guest's kernel may register a list of pages, because the list may name any
            // memory of the guest.
            SendOp::RegMr { .. } if qp.owner != OwnerId::KERNEL => {
                counters.refused_registrations += 1;
                Err(WcStatus::LocQpOp)
            }
            SendOp::RegMr { .. } => {
                let registration = work.op.registration().expect("it is one");
                mrs.register(&registration, qp.pd).map_err(|error| match error {
                    RegisterError::Refused => WcStatus::MwBind,
                    RegisterError::NoMemory => WcStatus::LocProt,
                })
            }
            _ => unreachable!("its row says that it is of own keys alone"),
        }
    }
}
