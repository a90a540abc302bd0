//! Wake-up of senders that wait for a receive.
//!
//! A sender is woken by a receive of its peer. Receives of a shared queue wake senders in the order
//! in which they began to wait, one sender for each receive.
//!
//! A sender that was woken by a receive of a shared queue may find that another message took it. It
//! then waits on, in its old place and until its old deadline, and has spent no retry. A sender may
//! have disappeared by its turn, or want nothing any more. [`Engine::poll`] finds such a sender,
//! and wakes the next one instead.

use crate::base::id::SrqId;
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::transport_kind::TransportKind;
use crate::collections::wakes::{TURN, WOKEN};
use crate::engine::Engine;
use crate::objects::qp::requester::Wait;
use crate::verbs::completion::Sink;

impl<R: Region> Engine<R> {
    /// Wakes the peer of a QP, because what it waits for may have come.
    ///
    /// Returns false if there is no peer that will try.
    pub(super) fn wake_peer(&mut self, place: QpRef, sink: &mut impl Sink) -> bool {
        let (_, qp) = self.core.devices.known(place);
        let Ok((peer, ..)) = self.core.devices.find_peer(qp) else { return false };
        let mut borrowed = self.core.known(peer, sink);
        borrowed.wake();
        borrowed.qp.requester.ready
    }

    /// Resumes a QP whose device goes on. Neither the QP nor its peer waits any longer.
    ///
    /// A peer that waits for a receive of a shared queue is woken in its order instead.
    pub(super) fn go_on(&mut self, place: QpRef, sink: &mut impl Sink) {
        let mut borrowed = self.core.known(place, sink);
        if borrowed.qp.transport == TransportKind::Tcp {
            return borrowed.stream().stream_has_room();
        }
        borrowed.try_at_once();
        if borrowed.conn.send_again(borrowed.qp) {
            borrowed.make_turn_due();
            borrowed.make_answer_due();
        }
        borrowed.make_ready();
        let (device, qp) = self.core.devices.known(place);
        let queue = device.srqs.peek(qp).filter(|_| qp.responder.sender_waits).map(|srq| srq.this.id());
        let peer = self.core.devices.find_peer(qp).map(|(peer, ..)| peer);
        if let Some(srq) = queue {
            self.attend_to_waiters(place.device, srq);
        }
        let Ok(peer) = peer else { return };
        let mut borrowed = self.core.known(peer, sink);
        if queue.is_none() || borrowed.qp.requester.wait == Wait::Answer {
            borrowed.wake();
        }
    }

    /// Schedules the wake-up of senders that wait for receives of a shared queue.
    ///
    /// The next call of [`Engine::poll`] wakes them, if there are receives.
    pub(super) fn attend_to_waiters(&mut self, device: u32, srq: SrqId) {
        let known = self.core.devices.known_device(device);
        known.srqs.used(srq).list(device, &mut self.core.schedule.wakes);
    }

    /// Wakes some of the waiting senders.
    #[inline]
    pub(super) fn wake_some(&mut self, sink: &mut impl Sink) {
        if self.core.schedule.wakes.any() {
            self.wake_slice(sink);
        }
    }

    #[cold]
    fn wake_slice(&mut self, sink: &mut impl Sink) {
        let mut left = WOKEN;
        // Each queue has at most one turn. Woken senders that will try do so after this.
        for _ in 0..self.core.schedule.wakes.len() {
            if left == 0 {
                break;
            }
            let Some((device, srq)) = self.core.schedule.wakes.pop() else { break };
            left = left.saturating_sub(self.wake_waiters(device, srq, left.min(TURN), sink).max(1));
        }
    }

    /// Handles up to `most` senders that wait for receives of a shared queue. Returns how many.
    fn wake_waiters(&mut self, device: u32, id: SrqId, most: usize, sink: &mut impl Sink) -> usize {
        self.begin_step();
        let known = self.core.devices.known_device(device);
        // The queue may have been destroyed.
        let Some(srq) = known.srqs.get_mut(id.0) else { return 0 };
        srq.listed = false;
        if known.suspended {
            // The queue is listed again when the device goes on.
            return 0;
        }
        let mut left = most;
        while left > 0
            && let Some(qpn) = self.core.devices.known_device(device).srqs.used(id).wake_first()
        {
            left -= 1;
            let place = QpRef { device, qpn };
            if !self.wake_peer(place, sink) {
                self.core.devices.known_device(device).waits_no_longer(qpn);
            }
        }
        // There are no more receives than woken senders. Those that will not try leave their
        // receives to others.
        let mut last = 0;
        while left > 0
            && let Some((number, qpn)) =
                self.core.devices.known_device(device).srqs.used(id).waiters.woken_after(last)
        {
            left -= 1;
            last = number;
            if !self.peer_will_try(QpRef { device, qpn }) {
                self.core.devices.known_device(device).waits_no_longer(qpn);
            }
        }
        self.attend_to_waiters(device, id);
        most - left
    }

    /// Whether the peer of a QP has work, and waits for its turn.
    fn peer_will_try(&self, place: QpRef) -> bool {
        let (_, qp) = self.core.devices.known(place);
        self.core.devices.find_peer(qp).is_ok_and(|(_, _, peer)| peer.requester.ready)
    }
}
