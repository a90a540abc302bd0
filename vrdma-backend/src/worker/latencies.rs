//! Measures how long some requests take, for observers ([`crate::device::latency`]).

use super::Worker;
use crate::translate::wqe;
use vrdma_transport::{DeviceId, Instant, OwnerId};

impl Worker {
    /// Reads the clock before a request is posted that is to be measured.
    #[cold]
    pub(super) fn before_measured(&self) -> Instant {
        self.now()
    }

    /// Measures the fetched request at `at`, which was just posted. The post began at `since`.
    ///
    /// Returns the distance to the next request to be measured. Receives are not measured: how long
    /// they wait is up to the peer's program.
    #[cold]
    pub(super) fn measure(&mut self, device: DeviceId, owner: OwnerId, at: usize, since: Instant) -> usize {
        if let Some(qpn) = wqe::send_queue(&self.fetched.words[at]) {
            self.engine.watch_last(device, owner, qpn, since, &mut self.outputs);
        }
        self.outputs.device(device).latencies.step()
    }
}
