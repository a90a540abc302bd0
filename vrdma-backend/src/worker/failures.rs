//! QPs whose CQ failed go to ERR, some in each turn.

use super::Worker;

/// Requests flushed in one turn of QPs whose CQ failed; those of one QP are flushed together.
pub(super) const FAILURES: u64 = 2048;
/// What a QP costs of it besides.
const QP_FAILURE: u64 = 8;
/// What one guest's QPs may cost of it before those of the next.
const GUEST_FAILURES: u64 = FAILURES / 8;

impl Worker {
    /// Takes QPs to ERR whose CQs failed, some in each turn; true if there are more.
    #[inline]
    pub(super) fn fail_cqs(&mut self) -> bool {
        while let Some((device, cq)) = self.outputs.failed.pop() {
            let qps = self.outputs.device(device).qps_of(cq);
            match self.failing.iter_mut().find(|(of, _)| *of == device) {
                Some((_, failing)) => failing.extend(qps),
                None => self.failing.push_back((device, qps)),
            }
        }
        !self.failing.is_empty() && self.fail_qps()
    }

    #[cold]
    fn fail_qps(&mut self) -> bool {
        let mut effort = 0;
        while effort < FAILURES
            && let Some((device, mut qps)) = self.failing.pop_front()
        {
            let end = FAILURES.min(effort + GUEST_FAILURES);
            while effort < end
                && let Some(qpn) = qps.pop()
            {
                let before = self.engine.counters(device).flushes;
                self.engine.cq_failed(device, qpn, &mut self.outputs);
                effort += QP_FAILURE + self.engine.counters(device).flushes - before;
            }
            if !qps.is_empty() {
                self.failing.push_back((device, qps));
            }
        }
        !self.failing.is_empty()
    }
}
