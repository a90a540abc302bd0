//! QPs whose CQ failed go to ERR, some in each turn.

use super::Worker;

/// Requests flushed in one turn of QPs whose CQ failed; those of one QP are flushed together.
pub(super) const FAILURES: u64 = 2048;
/// What a QP costs of it besides.
const QP_FAILURE: u64 = 8;

impl Worker {
    /// Takes QPs to ERR whose CQs failed, some in each turn; true if there are more.
    #[inline]
    pub(super) fn fail_cqs(&mut self) -> bool {
        while let Some((device, cq)) = self.outputs.failed.pop() {
            self.failing.push_back((device, self.outputs.device(device).qps_of(cq)));
        }
        !self.failing.is_empty() && self.fail_qps()
    }

    #[cold]
    fn fail_qps(&mut self) -> bool {
        let mut effort = 0;
        while let Some((device, mut qps)) = self.failing.pop_front() {
            while let Some(qpn) = qps.pop() {
                let before = self.engine.counters(device).flushes;
                self.engine.cq_failed(device, qpn, &mut self.outputs);
                effort += QP_FAILURE + self.engine.counters(device).flushes - before;
                if effort >= FAILURES {
                    // Other CQs first.
                    self.failing.push_back((device, qps));
                    return true;
                }
            }
        }
        false
    }
}
