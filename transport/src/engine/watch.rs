//! Watches single requests, and counts those that have not ended, for observers. Nothing else
//! changes by it.

use crate::base::id::{DeviceId, OwnerId};
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use crate::engine::Engine;
use crate::verbs::attr::QpState;
use crate::verbs::completion::{Sink, WcStatus};
use vrdma_wire::num::Qpn;

impl<R: Region> Engine<R> {
    /// Watches the request that `owner` has just posted to the send queue of a QP. `since` is the
    /// time at which its post began.
    ///
    /// When the request succeeds, the sink of that call gets [`Sink::watched`]. If it has succeeded
    /// already, `sink` gets that now. A request that fails, or is flushed or dropped, is forgotten.
    /// So is one that was refused, and one while 64 others of the device are watched.
    ///
    /// A record of the engine does not tell which requests are watched.
    #[cold]
    pub fn watch_last(
        &mut self,
        device: DeviceId,
        owner: OwnerId,
        qpn: Qpn,
        since: Instant,
        sink: &mut impl Sink,
    ) {
        let place = QpRef { device: device.0, qpn };
        if !self.core.devices.qp_mut(place).is_some_and(|qp| owner == OwnerId::KERNEL || owner == qp.owner) {
            return;
        }
        let mut known = self.core.known(place, sink);
        let is_outstanding = known.requests.watch_last(&known.qp.requester.queue, since);
        // A request that failed has taken the QP to another state. Without one to send, a QP in RTS
        // has executed the request within the post.
        if !is_outstanding && known.qp.state == QpState::Rts {
            known.watched_send_ended(since, WcStatus::Success);
        }
    }

    /// Returns how many sends and receives of a device have not ended. They are 0 if it does not
    /// exist.
    #[inline]
    pub fn outstanding(&self, device: DeviceId) -> (u64, u64) {
        self.core.devices.get(device.0).map_or((0, 0), |device| device.requests.counts())
    }
}
