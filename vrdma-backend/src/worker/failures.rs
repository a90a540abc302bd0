//! QPs whose CQ failed go to ERR, some in each turn.

use super::Worker;

/// QPs that go to ERR in one turn because their CQ failed. The engine flushes their requests in slices.
pub(super) const FAILURES: usize = 256;
/// Those of one guest before the next has its turn.
const GUEST_FAILURES: usize = 32;

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
        let mut left = FAILURES;
        while left > 0
            && let Some((device, mut qps)) = self.failing.pop_front()
        {
            let rest = qps.len().saturating_sub(left.min(GUEST_FAILURES));
            left -= qps.len() - rest;
            for qpn in qps.drain(rest..) {
                self.engine.cq_failed(device, qpn, &mut self.outputs);
            }
            if !qps.is_empty() {
                self.failing.push_back((device, qps));
            }
        }
        !self.failing.is_empty()
    }
}
