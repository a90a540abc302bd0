//! Wake-up of the first request of a QP.

use crate::base::memory::Region;
use crate::base::time::NEVER;
use crate::base::transport_kind::TransportKind;
use crate::message::ctx::QpCtx;
use crate::objects::qp::requester::Wait;
use crate::objects::service::ConnState;
use crate::verbs::completion::Sink;

impl<R: Region, S: Sink, T: ConnState> QpCtx<'_, R, S, T> {
    /// Wakes the first request, because what it waits for may have come. It is tried in its turn.
    pub(crate) fn wake(&mut self) {
        match self.qp.requester.wait {
            Wait::Receive | Wait::Answer => {
                self.counters.retries += 1;
                self.try_at_once();
            }
            // The caller does not have to drain posts for it any more.
            Wait::Drain => self.qp.requester.wait = Wait::No,
            Wait::No | Wait::Drained | Wait::Woken => return,
        }
        self.make_ready();
    }

    /// Lets the first request be tried at once.
    ///
    /// If it waits for a receive on this host, its deadline stays. At that time it counts as not
    /// ready once more.
    pub(crate) fn try_at_once(&mut self) {
        let has_time = self.qp.transport == TransportKind::Local && self.qp.timer != NEVER;
        self.qp.requester.wait = match self.qp.requester.wait {
            Wait::Receive | Wait::Woken if has_time => Wait::Woken,
            _ => {
                self.disarm();
                self.arm_nak();
                Wait::No
            }
        };
    }

    /// Ends the wait of the first request, which was woken and goes on.
    #[cold]
    pub(crate) fn waited_enough(&mut self) {
        if self.qp.requester.wait == Wait::Woken {
            self.qp.requester.wait = Wait::No;
        }
        self.disarm();
    }
}
