//! Flushes and drops requests: all at once if they are few, of many some in each [`Engine::poll`].

use crate::completion::{Sink, WcStatus};
use crate::engine::Engine;
use crate::engine::borrowed::BorrowedQp;
use crate::flush::{FLUSHED, Flush, TURN};
use crate::id::DeviceId;
use crate::memory::Region;
use crate::place::Place;
use crate::qp::attr::QpState;
use crate::receive::recv_failure;
use std::collections::VecDeque;
use vrdma_wire::num::Qpn;

impl<R: Region> Engine<R> {
    /// Whether requests of a QP in ERR or SQE are still to be flushed, by the next calls of [`Engine::poll`].
    pub fn is_flushing(&self, device: DeviceId, qpn: Qpn) -> bool {
        self.devices.get(device.0).and_then(|device| device.qp(qpn)).is_some_and(|qp| qp.flush.is_some())
    }

    /// Ends a slice of what is to end.
    #[inline]
    pub(super) fn flush_some(&mut self, sink: &mut impl Sink) {
        self.schedule.flushes.left = FLUSHED;
        if self.schedule.flushes.any() {
            self.flush_slice(sink);
        }
    }

    #[cold]
    fn flush_slice(&mut self, sink: &mut impl Sink) {
        while self.schedule.flushes.left > 0
            && let Some(device) = self.schedule.flushes.round.pop_front()
        {
            self.begin_step();
            let all = self.schedule.flushes.left.min(TURN);
            let mut left = all;
            // A suspended one gets its turns again when it goes on.
            let known = self.devices.known_device(device);
            if known.suspended {
                continue;
            }
            known.requests.end_dropped(&mut left);
            let mut more = known.requests.has_dropped();
            more |= known.unbind_some(&mut left);
            while left > 0
                && let Some(qpn) =
                    self.schedule.flushes.devices.get_mut(device as usize).and_then(VecDeque::pop_front)
            {
                left -= 1;
                let place = Place { device, qpn };
                // It may have gone, or been reset.
                let Some(mut borrowed) = self.borrow(place, sink) else { continue };
                borrowed.flush_more(&mut left);
                if borrowed.qp.flush.is_some() {
                    borrowed.schedule.flushes.devices[device as usize].push_back(qpn);
                }
            }
            let flushes = &mut self.schedule.flushes;
            flushes.left -= all - left;
            more |= flushes.devices.get(device as usize).is_some_and(|qpns| !qpns.is_empty());
            if more {
                flushes.round.push_back(device);
            }
        }
    }

    /// The pending requests of a QP end without completions.
    pub(super) fn drop_requests(&mut self, place: Place) {
        if let Some(srq) = self.devices.known_device(place.device).drop_requests(place.qpn) {
            self.attend_to_waiters(place.device, srq);
        }
        self.free_dropped(place.device);
    }

    /// Frees requests that a device dropped: those for which there is time now, the others in slices.
    pub(super) fn free_dropped(&mut self, index: u32) {
        let device = self.devices.known_device(index);
        let flushes = &mut self.schedule.flushes;
        device.requests.end_dropped(&mut flushes.left);
        if device.requests.has_dropped() {
            flushes.list(index);
        }
    }
}

impl<R: Region, S: Sink> BorrowedQp<'_, R, S> {
    /// All sends end, and `receives` too: those for which there is time now, the others in slices.
    pub(super) fn flush(&mut self, receives: bool) {
        let before = self.qp.flush.take();
        let is_listed = before.is_some();
        let mut flush = before.map(|flush| *flush).unwrap_or_default();
        self.requests.append_sends(&mut flush.sends, &mut self.qp.requester.queue);
        if receives {
            self.requests.append_receives(&mut flush.receives, &mut self.qp.responder.queue);
        }
        let mut left = self.schedule.flushes.left;
        self.end_some(&mut flush, &mut left);
        self.schedule.flushes.left = left;
        if !flush.is_over() {
            self.qp.flush = Some(Box::new(flush));
            if !is_listed {
                self.schedule.flushes.push(self.place);
            }
        }
    }

    /// Goes on with its flush, if there is one, for up to `left` requests.
    pub(super) fn flush_more(&mut self, left: &mut usize) {
        let Some(mut flush) = self.qp.flush.take() else { return };
        self.end_some(&mut flush, left);
        if !flush.is_over() {
            self.qp.flush = Some(flush);
        } else if self.qp.state == QpState::Err {
            self.tell_last_wqe();
        }
    }

    fn end_some(&mut self, flush: &mut Flush, left: &mut usize) {
        while *left > 0
            && let Some(taken) = self.requests.take_send(&mut flush.sends, |send| *send)
        {
            *left -= 1;
            self.counters.flushes += 1;
            self.complete_send(&taken.end().work().completion(self.place.qpn, WcStatus::Flush));
        }
        while *left > 0 && flush.num_receives() > 0 {
            *left -= 1;
            if let Some((id, 0)) = flush.broken {
                flush.broken = None;
                self.complete_receive(&recv_failure(self.qp, id, WcStatus::LocQpOp));
                continue;
            }
            let taken = self.requests.take_receive(&mut flush.receives);
            let id = taken.expect("so many receives are before the broken one").end();
            if let Some((_, before)) = &mut flush.broken {
                *before -= 1;
            }
            if self.receive_ended() {
                self.counters.flushes += 1;
                self.complete_receive(&recv_failure(self.qp, id, WcStatus::Flush));
            }
        }
    }

    /// A receive that is wrong in itself took the QP to ERR: it ends after those before it.
    pub(super) fn end_broken_receive(&mut self, id: u32) {
        match &mut self.qp.flush {
            Some(flush) if !flush.receives.is_empty() => flush.broken = Some((id, flush.receives.len())),
            _ => self.complete_receive(&recv_failure(self.qp, id, WcStatus::LocQpOp)),
        }
    }
}
