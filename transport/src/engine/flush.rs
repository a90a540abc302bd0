//! Flushing and dropping of requests: at once if they are few, else in slices in each
//! [`Engine::poll`].

use crate::base::id::DeviceId;
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::collections::flush::{FLUSHED, TURN};
use crate::engine::Engine;
use crate::verbs::completion::Sink;
use std::collections::VecDeque;
use vrdma_wire::num::Qpn;

impl<R: Region> Engine<R> {
    /// Whether requests of a QP in ERR or SQE are still to be flushed, by the next calls of
    /// [`Engine::poll`].
    pub fn is_flushing(&self, device: DeviceId, qpn: Qpn) -> bool {
        self.core.devices.get(device.0).and_then(|device| device.qp(qpn)).is_some_and(|qp| qp.flush.is_some())
    }

    /// Flushes and drops a slice of the requests that are to end.
    #[inline]
    pub(crate) fn flush_some(&mut self, sink: &mut impl Sink) {
        self.core.schedule.flushes.left = FLUSHED;
        if self.core.schedule.flushes.any() {
            self.flush_slice(sink);
        }
    }

    #[cold]
    fn flush_slice(&mut self, sink: &mut impl Sink) {
        while self.core.schedule.flushes.left > 0
            && let Some(device) = self.core.schedule.flushes.round.pop_front()
        {
            self.begin_step();
            let all = self.core.schedule.flushes.left.min(TURN);
            let mut left = all;
            // A suspended device gets its turns again when it goes on.
            let known = self.core.devices.known_device(device);
            if known.suspended {
                continue;
            }
            known.requests.end_dropped(&mut left);
            let mut more = known.requests.has_dropped();
            more |= known.unbind_some(&mut left);
            while left > 0
                && let Some(qpn) =
                    self.core.schedule.flushes.devices.get_mut(device as usize).and_then(VecDeque::pop_front)
            {
                left -= 1;
                let place = QpRef { device, qpn };
                // The QP may have been destroyed or reset.
                let Some(mut borrowed) = self.core.borrow(place, sink) else { continue };
                borrowed.flush_more(&mut left);
                if borrowed.qp.flush.is_some() {
                    borrowed.schedule.flushes.devices[device as usize].push_back(qpn);
                }
            }
            let flushes = &mut self.core.schedule.flushes;
            flushes.left -= all - left;
            more |= flushes.devices.get(device as usize).is_some_and(|qpns| !qpns.is_empty());
            if more {
                flushes.round.push_back(device);
            }
        }
    }

    /// Drops the pending requests of a QP, without completions.
    pub(crate) fn drop_requests(&mut self, place: QpRef) {
        if let Some(srq) = self.core.devices.known_device(place.device).drop_requests(place.qpn) {
            self.attend_to_waiters(place.device, srq);
        }
        self.free_dropped(place.device);
    }

    /// Frees requests that a device dropped. Requests beyond the current budget are freed in
    /// slices.
    pub(crate) fn free_dropped(&mut self, index: u32) {
        let device = self.core.devices.known_device(index);
        let flushes = &mut self.core.schedule.flushes;
        device.requests.end_dropped(&mut flushes.left);
        if device.requests.has_dropped() {
            flushes.list(index);
        }
    }
}
