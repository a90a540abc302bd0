//! The lives of QPs: made, changed, failed, destroyed.

use crate::completion::{Event, Sink, WcStatus};
use crate::device::Held;
use crate::engine::Engine;
use crate::error::Error;
use crate::gid::GidEntry;
use crate::id::{DeviceId, OwnerId};
use crate::memory::Region;
use crate::pool::List;
use crate::qp::attr::{AttrMask, QpAttr, QpInit, QpState};
use crate::qp::{Qp, state};
use crate::request::recv_failure;
use crate::schedule::Place;
use crate::time::Instant;
use vrdma_wire::num::Qpn;

impl<R: Region> Engine<R> {
    /// Creates a QP in state RESET. `Denied` if the PD is not its owner's or for a QP1
    /// that is not the kernel's, `Busy` if there is a QP1 already, `Invalid` if it is
    /// to hold more than the limits allow, `NoResources` if there are too many
    /// or their requests could take too much memory.
    pub fn create_qp(&mut self, device: DeviceId, init: QpInit) -> Result<Qpn, Error> {
        let room = self.request_memory.saturating_sub(self.devices.promised());
        self.devices.find_mut(device)?.create_qp(init, room)
    }

    /// The attributes of a QP, with its state and the PSNs that are next.
    pub fn query_qp(&self, device: DeviceId, qpn: Qpn) -> Result<QpAttr, Error> {
        self.devices.find(device)?.qp(qpn).map(Qp::query).ok_or(Error::NotFound)
    }

    /// Who owns a QP.
    pub fn qp_owner(&self, device: DeviceId, qpn: Qpn) -> Result<OwnerId, Error> {
        self.devices.find(device)?.qp(qpn).map(|qp| qp.owner).ok_or(Error::NotFound)
    }

    /// What a QP was made with.
    pub fn qp_init(&self, device: DeviceId, qpn: Qpn) -> Result<QpInit, Error> {
        self.devices.find(device)?.qp(qpn).map(|qp| qp.init).ok_or(Error::NotFound)
    }

    /// Destroys a QP; its pending requests end without a completion.
    pub fn destroy_qp(&mut self, device: DeviceId, qpn: Qpn) -> Result<QpInit, Error> {
        self.devices.find(device)?.qp(qpn).ok_or(Error::NotFound)?;
        let place = Place { device: device.0, qpn };
        self.disarm(place);
        let ready = self.devices.qp_mut(place).map(|qp| (qp.requester.ready, qp.turn_due));
        let known = self.devices.find_mut(device)?;
        known.drop_requests(qpn);
        let init = known.remove_qp(qpn)?;
        let (local, wire) = ready.unwrap_or_default();
        let devices = &self.devices;
        if local && self.schedule.local.went() {
            let is_there = |&place: &Place| devices.with_qp(place).is_some_and(|(_, qp)| qp.requester.ready);
            self.schedule.local.sweep(is_there);
        }
        if wire && self.schedule.wire.went() {
            let is_there = |&place: &Place| devices.with_qp(place).is_some_and(|(_, qp)| qp.turn_due);
            self.schedule.wire.sweep(is_there);
        }
        Ok(init)
    }

    /// Changes attributes or the state of a QP: IBTA 11.2.5.2, ibv_modify_qp(3). `Invalid` for a change that is not possible,
    /// attributes that are missing or do not belong to it, and values out of range; `Unsupported` for an alternate path
    /// and for capabilities. To RESET everything pending is dropped; to ERR it is flushed.
    pub fn modify_qp(
        &mut self,
        now: Instant,
        device: DeviceId,
        qpn: Qpn,
        mask: AttrMask,
        attr: &QpAttr,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        let _ = now; // No change starts a clock so far.
        let place = Place { device: device.0, qpn };
        let known = self.devices.find_mut(device)?;
        let qp = known.qps.get_mut(qpn.number()).ok_or(Error::NotFound)?;
        let from = qp.state;
        let to = state::check(qp.service(), from, mask, attr)?;
        state::check_values(mask, attr, &known.limits)?;
        if mask.contains(AttrMask::AV) {
            let source = known.gids.get(usize::from(attr.sgid_index)).copied().unwrap_or(GidEntry::EMPTY);
            if source == GidEntry::EMPTY || !source.is_in(attr.vlan) {
                return Err(Error::Invalid);
            }
            qp.set_source(source);
        }
        match to {
            QpState::Reset => self.reset_qp(place),
            QpState::Err => self.enter_error(place, sink),
            _ => {
                let mut all = *qp.attr();
                state::apply(&mut all, mask, attr);
                qp.set(all);
                qp.state = to;
                self.entered(place, from, mask, attr, sink);
            }
        }
        Ok(())
    }

    /// A CQ of the QP overran or its memory is gone: unless it is in RESET it goes to ERR, with [`Event::QpFatal`]. What is
    /// flushed goes to `sink`, that CQ's completions too.
    pub fn cq_failed(&mut self, device: DeviceId, qpn: Qpn, sink: &mut impl Sink) {
        let place = Place { device: device.0, qpn };
        let state = self.devices.qp_mut(place).map(|qp| qp.state);
        if !matches!(state, None | Some(QpState::Reset | QpState::Err)) {
            self.enter_fatal(place, sink);
        }
    }

    /// What a QP does on its way from `from` to the state that it is in now.
    fn entered(&mut self, place: Place, from: QpState, mask: AttrMask, attr: &QpAttr, sink: &mut impl Sink) {
        let Some(qp) = self.devices.qp_mut(place) else { return };
        match (from, qp.state) {
            (QpState::Init, QpState::Rtr) => {
                qp.responder.psn = qp.attr().rq_psn;
                self.decide_way(place);
                self.wake_peer(place);
            }
            (QpState::Rtr, QpState::Rts) => {
                qp.requester.psn = qp.attr().sq_psn;
                if let Some(wire) = qp.wire.as_deref_mut() {
                    wire.begin(qp.requester.psn, &qp.requester.queue);
                }
                qp.requester.refresh_retries();
            }
            (QpState::Rts, QpState::Sqd) => {
                qp.requester.notify_drained =
                    mask.contains(AttrMask::EN_SQD_ASYNC_NOTIFY) && attr.en_sqd_async_notify;
                self.tell_if_drained(place, sink);
            }
            (QpState::Sqd, QpState::Sqd) => {
                if let Some(wire) =
                    qp.wire.as_deref_mut().filter(|_| mask.contains(AttrMask::MAX_DEST_RD_ATOMIC))
                {
                    wire.resize(qp.max_dest_rd_atomic);
                }
                if mask.contains(AttrMask::AV) {
                    self.decide_way(place);
                }
            }
            (QpState::Sqd | QpState::Sqe, QpState::Rts) => {
                qp.requester.notify_drained = false;
                self.make_ready(place);
            }
            _ => {}
        }
    }

    /// Tells once, if asked to, that what had been started in SQD has ended.
    pub(crate) fn tell_if_drained(&mut self, place: Place, sink: &mut impl Sink) {
        let Some(qp) = self.devices.qp_mut(place) else { return };
        if qp.state == QpState::Sqd && qp.requester.notify_drained && !qp.requester.started {
            qp.requester.notify_drained = false;
            sink.event(place.id(), Event::SqDrained(place.qpn));
        }
    }

    /// Everything pending is dropped, and all is as at first.
    fn reset_qp(&mut self, place: Place) {
        self.disarm(place);
        let Some(device) = self.devices.get_mut(place.device) else { return };
        device.drop_requests(place.qpn);
        if let Some(qp) = device.qp_mut(place.qpn) {
            qp.reset();
        }
    }

    /// To SQE: what was posted after the send that failed is flushed, and receiving goes on (IBTA 10.3.1).
    #[cold]
    pub(super) fn enter_sqe(&mut self, place: Place, sink: &mut impl Sink) {
        self.disarm(place);
        let Some(Held { qp, requests, counters, .. }) = self.devices.hold(place) else { return };
        qp.state = QpState::Sqe;
        qp.requester.ended();
        qp.requester.notify_drained = false;
        while let Some(kept) = requests.pop_send(&mut qp.requester.queue) {
            counters.flushes += 1;
            sink.complete(place.id(), qp.send_cq, &kept.work().completion(place.qpn, WcStatus::Flush));
        }
    }

    /// To ERR: sends are flushed in order, then receives.
    #[cold]
    pub(crate) fn enter_error(&mut self, place: Place, sink: &mut impl Sink) {
        self.disarm(place);
        let Some(Held { qp, requests, counters, .. }) = self.devices.hold(place) else { return };
        qp.state = QpState::Err;
        qp.requester.ended();
        qp.requester.notify_drained = false;
        if let Some(wire) = qp.wire.as_deref_mut() {
            wire.begin(qp.requester.psn, &List::EMPTY);
        }
        while let Some(kept) = requests.pop_send(&mut qp.requester.queue) {
            let work = kept.work();
            counters.flushes += 1;
            sink.complete(place.id(), qp.send_cq, &work.completion(place.qpn, WcStatus::Flush));
        }
        while let Some(id) = requests.pop_receive(&mut qp.responder.queue) {
            counters.flushes += 1;
            sink.complete(place.id(), qp.recv_cq, &recv_failure(place.qpn, id, WcStatus::Flush));
        }
    }

    /// To ERR for a reason that no completion tells.
    #[cold]
    pub(crate) fn enter_fatal(&mut self, place: Place, sink: &mut impl Sink) {
        self.enter_error(place, sink);
        sink.event(place.id(), Event::QpFatal(place.qpn));
    }
}
