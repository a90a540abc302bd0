//! Creation, changes, failure and destruction of QPs.

use crate::agenda::schedule::{Schedule, Turns};
use crate::base::error::Error;
use crate::base::gid::GidEntry;
use crate::base::id::{DeviceId, OwnerId};
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::time::{Instant, NEVER};
use crate::base::transport_kind::TransportKind;
use crate::engine::Engine;
use crate::objects::qp::Direction;
use crate::objects::qp::entry::QpEntry;
use crate::objects::qp::{Qp, state};
use crate::verbs::attr::{AttrMask, QpAttr, QpInit, QpState, QpType};
use crate::verbs::completion::{NoSink, Sink};
use vrdma_wire::num::Qpn;

impl<R: Region> Engine<R> {
    /// Creates a QP in state RESET.
    ///
    /// Returns `Denied` if the PD is not its owner's, or for a QP1 that is not the kernel's.
    /// Returns `Busy` if there is a QP1 already. Returns `Invalid` if the QP would hold more than
    /// the limits allow. Returns `NoResources` if there are too many QPs, or if their requests
    /// could take too much memory.
    pub fn create_qp(&mut self, device: DeviceId, init: QpInit) -> Result<Qpn, Error> {
        let room = self.request_memory.saturating_sub(self.core.devices.promised());
        self.core.devices.find_mut(device)?.create_qp(init, room)
    }

    /// Returns the attributes of a QP, with its state and the next PSNs.
    pub fn query_qp(&self, device: DeviceId, qpn: Qpn) -> Result<QpAttr, Error> {
        self.core.devices.find(device)?.qp(qpn).map(Qp::query).ok_or(Error::NotFound)
    }

    /// Returns the owner of a QP.
    pub fn qp_owner(&self, device: DeviceId, qpn: Qpn) -> Result<OwnerId, Error> {
        self.core.devices.find(device)?.qp(qpn).map(|qp| qp.owner).ok_or(Error::NotFound)
    }

    /// Whether a QP is of RC or UC. Its sends name nothing of the peer except memory.
    #[inline]
    pub fn is_connection(&self, device: DeviceId, qpn: Qpn) -> bool {
        let qp = self.core.devices.get(device.0).and_then(|device| device.qp(qpn));
        qp.is_some_and(|qp| matches!(qp.service(), QpType::Rc | QpType::Uc))
    }

    /// Returns the parameters with which a QP was created.
    pub fn qp_init(&self, device: DeviceId, qpn: Qpn) -> Result<QpInit, Error> {
        self.core.devices.find(device)?.qp(qpn).map(Qp::init).ok_or(Error::NotFound)
    }

    /// Destroys a QP. Its pending requests end without a completion, and it leaves its multicast
    /// groups.
    ///
    /// Peers cannot use the memory windows any more that it bound (see [`Engine::is_unbinding`]).
    pub fn destroy_qp(&mut self, device: DeviceId, qpn: Qpn) -> Result<QpInit, Error> {
        self.core.devices.find(device)?.qp(qpn).ok_or(Error::NotFound)?;
        self.core.devices.detach_from_all(device, qpn)?;
        let place = QpRef { device: device.0, qpn };
        self.core.known(place, &mut NoSink).drop_early();
        let (qp, _) = self.core.devices.known_mut(place);
        let (ready, answer_due, turn_due) = (qp.requester.ready, qp.answer_due, qp.turn_due);
        if qp.timer != NEVER {
            if qp.timer_is_idle {
                self.core.schedule.deadlines.note_idle(device.0, false);
            }
            self.core.schedule.deadlines.disarm(qp.timer, place);
        }
        self.drop_requests(place);
        self.give_windows_up(place);
        let init = self.core.devices.find_mut(device)?.remove_qp(qpn)?;
        let Schedule { local, wire, rates, .. } = &mut self.core.schedule;
        let any_rate = rates.any();
        if any_rate {
            rates.forget_qp(place);
        }
        let known = self.core.devices.find(device)?;
        let leave = |turns: &mut Turns, direction, waits: fn(&Qp) -> bool| {
            if turns.forget_later(place, direction) {
                return;
            }
            if turns.removed(device.0, direction) {
                turns.sweep(device.0, direction, |qpn| known.qp(qpn).is_some_and(waits));
            }
        };
        if ready {
            leave(local, Direction::Requests, |qp| qp.requester.ready);
        }
        if answer_due {
            leave(wire, Direction::Answers, |qp| qp.answer_due);
        }
        if turn_due {
            leave(wire, Direction::Requests, |qp| qp.turn_due);
        }
        if any_rate {
            self.follow_rates(device.0);
        }
        Ok(init)
    }

    /// Changes attributes or the state of a QP (IBTA 11.2.5.2, ibv_modify_qp(3)).
    ///
    /// Returns `Invalid` for a change that is not possible, and for values out of range. Also
    /// returns `Invalid` for attributes that are missing, or do not belong to the change. The
    /// address and the depths of a QP that is connected by a stream cannot be set (`Invalid`).
    /// Returns `Unsupported` for an alternate path and for capabilities.
    ///
    /// On the way to RESET, everything pending is dropped, and memory windows that the QP bound are
    /// unbound (see [`Engine::is_unbinding`]). On the way to ERR, everything pending is flushed. If
    /// that is much, the next calls of [`Engine::poll`] do so (see [`Engine::is_flushing`]). On the
    /// way from SQE to RTS, requests that are still to be flushed end at once.
    pub fn modify_qp(
        &mut self,
        now: Instant,
        device: DeviceId,
        qpn: Qpn,
        mask: AttrMask,
        attr: &QpAttr,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        let _ = now; // No change starts a clock.
        let place = QpRef { device: device.0, qpn };
        let known = self.core.devices.find_mut(device)?;
        let QpEntry { qp, .. } = known.qps.get_mut(qpn.number()).ok_or(Error::NotFound)?;
        let from = qp.state;
        let to = state::check(qp.service(), from, mask, attr)?;
        state::check_values(mask, attr, &known.limits)?;
        // A stream has no address, and its depths were negotiated.
        let of_set_up = [AttrMask::AV, AttrMask::MAX_RD_ATOMIC, AttrMask::MAX_DEST_RD_ATOMIC];
        if qp.transport == TransportKind::Tcp
            && of_set_up.into_iter().any(|attribute| mask.contains(attribute))
        {
            return Err(Error::Invalid);
        }
        if mask.contains(AttrMask::AV) {
            let source = known.gids.get(usize::from(attr.sgid_index)).copied().unwrap_or(GidEntry::EMPTY);
            if source == GidEntry::EMPTY || !source.is_in(attr.vlan) {
                return Err(Error::Invalid);
            }
            qp.set_source(source);
        }
        match to {
            QpState::Reset => self.reset_qp(place, sink),
            QpState::Err => self.core.known(place, sink).enter_error(),
            _ => {
                let mut all = qp.all_attrs();
                state::apply(&mut all, mask, attr);
                qp.set(&all);
                qp.state = to;
                self.entered(place, from, mask, attr, sink);
            }
        }
        Ok(())
    }

    /// Reports that a CQ of the QP overran or lost its memory.
    ///
    /// Unless the QP is in RESET or ERR, it goes to ERR, with
    /// [`Event::QpFatal`](crate::Event::QpFatal). Flushed requests complete in `sink`, including
    /// those of that CQ.
    pub fn cq_failed(&mut self, device: DeviceId, qpn: Qpn, sink: &mut impl Sink) {
        let place = QpRef { device: device.0, qpn };
        let state = self.core.devices.qp_mut(place).map(|qp| qp.state);
        if !matches!(state, None | Some(QpState::Reset | QpState::Err)) {
            self.core.known(place, sink).enter_fatal();
        }
    }

    /// Executes the effects of a transition from `from` to the present state.
    fn entered(&mut self, place: QpRef, from: QpState, mask: AttrMask, attr: &QpAttr, sink: &mut impl Sink) {
        let mut borrowed = self.core.known(place, sink);
        match (from, borrowed.qp.state) {
            (QpState::Init, QpState::Rtr) => {
                borrowed.qp.responder.psn = borrowed.qp.attr().rq_psn;
                self.choose_transport(place);
                self.wake_peer(place, sink);
            }
            (QpState::Rtr, QpState::Rts) => {
                borrowed.qp.requester.psn = borrowed.qp.attr().sq_psn;
                borrowed.conn.start(borrowed.qp.requester.psn, &borrowed.qp.requester.queue);
                borrowed.qp.requester.refresh_retries();
            }
            (QpState::Rts, QpState::Sqd) => {
                borrowed.qp.requester.notify_drained =
                    mask.contains(AttrMask::EN_SQD_ASYNC_NOTIFY) && attr.en_sqd_async_notify;
                borrowed.tell_if_drained();
            }
            (QpState::Sqd, QpState::Sqd) => {
                if mask.contains(AttrMask::MAX_DEST_RD_ATOMIC) {
                    borrowed.conn.resize(borrowed.qp.max_dest_rd_atomic);
                }
                if mask.contains(AttrMask::AV) {
                    // What is held came from the old address.
                    borrowed.drop_early();
                    // So are the rate and the marks, and what the peer does with losses.
                    borrowed.conn.forget_peer();
                    self.choose_transport(place);
                    self.waits_for_no_pace(place);
                }
                if mask.contains(AttrMask::TIMEOUT) {
                    // What was sent without a local ACK timeout has one now.
                    self.core.known(place, sink).look_at_deadline();
                }
            }
            (QpState::Sqd | QpState::Sqe, QpState::Rts) => {
                // Requests that are still to be flushed end before those that are posted later.
                borrowed.flush_more(&mut { usize::MAX });
                borrowed.qp.requester.notify_drained = false;
                borrowed.make_ready();
            }
            _ => {}
        }
    }

    /// Drops everything pending, and resets the QP.
    fn reset_qp(&mut self, place: QpRef, sink: &mut impl Sink) {
        let mut borrowed = self.core.known(place, sink);
        borrowed.disarm();
        borrowed.drop_early();
        self.drop_requests(place);
        self.give_windows_up(place);
        self.core.devices.known_device(place.device).qps.known(place.qpn).reset();
        if self.core.schedule.rates.any() {
            // Another connection has not waited for this one's time. The QP goes on waiting until
            // then: otherwise a guest that resets one QP in a loop would reserve all of the peer's
            // time.
            self.core.schedule.rates.drop_grant(place);
            self.waits_for_no_pace(place);
        }
    }

    /// Has a QP that waits for a rate which congestion gave its connection wait no longer.
    ///
    /// On a device with rates it may wait for these as well, and goes on waiting.
    fn waits_for_no_pace(&mut self, place: QpRef) {
        if self.core.schedule.rates.any() && !self.core.is_limited(place.device) {
            self.core.schedule.wire.hurry(place);
        }
    }

    /// Revokes the windows that a QP bound, so that they name nothing. If they are many, some are
    /// unbound later.
    fn give_windows_up(&mut self, place: QpRef) {
        let device = self.core.devices.known_device(place.device);
        device.give_windows_up(place.qpn);
        if device.mrs.is_unbinding() {
            self.core.schedule.flushes.list(place.device);
        }
    }
}
