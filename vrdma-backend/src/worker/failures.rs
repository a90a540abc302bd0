//! Fails the users of failed CQs, some in each round: QPs go to ERR, and XRC shared receive queues
//! fail.

use super::Worker;
use crate::device::broken::step;
use crate::device::objects::CqUser;
use vrdma_transport::DeviceId;

/// The most QPs and shared receive queues that fail in one round because their CQ did.
///
/// The engine flushes their requests in slices.
pub(super) const FAILURES: usize = 256;
/// The most of one guest that fail before the next guest has its turn.
const GUEST_FAILURES: usize = 32;

impl Worker {
    /// Fails users of failed CQs, some in each round. Returns true if there are more.
    #[inline]
    pub(super) fn fail_cqs(&mut self) -> bool {
        while let Some((device, cq)) = self.outputs.failed.pop() {
            let users = self.outputs.device(device).users_of(cq);
            match self.failing.iter_mut().find(|(of, _)| *of == device) {
                Some((_, failing)) => failing.extend(users),
                None => self.failing.push_back((device, users)),
            }
        }
        !self.failing.is_empty() && self.fail_users()
    }

    #[cold]
    fn fail_users(&mut self) -> bool {
        let mut left = FAILURES;
        while left > 0
            && let Some((device, mut users)) = self.failing.pop_front()
        {
            let rest = users.len().saturating_sub(left.min(GUEST_FAILURES));
            left -= users.len() - rest;
            let some = users.drain(rest..);
            let done = self.step(step::FAILED_CQ, device, |worker| {
                some.for_each(|user| worker.fail_user(device, user));
            });
            if done.is_some() && !users.is_empty() {
                self.failing.push_back((device, users));
            }
        }
        !self.failing.is_empty()
    }

    fn fail_user(&mut self, device: DeviceId, user: CqUser) {
        match user {
            CqUser::Qp(qpn) => self.engine.cq_failed(device, qpn, &mut self.outputs),
            CqUser::Srq(srq) => self.engine.srq_cq_failed(device, srq, &mut self.outputs),
        }
    }
}
