//! Posts of work requests.

use crate::agenda::schedule::WITHIN_POSTS;
use crate::base::id::{DeviceId, OwnerId};
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use crate::base::transport_kind::TransportKind;
use crate::engine::Engine;
use crate::message::outlet::NoOutlet;
use crate::message::receive::recv_failure;
use crate::message::step::Step;
use crate::objects::device::{Device, DeviceParts, PostTarget};
use crate::protocol::local::step_rc;
use crate::protocol::local::step_rc_of_any;
use crate::protocol::uc::local::step_uc;
use crate::protocol::ud::send::send_datagram;
use crate::verbs::attr::{QpState, QpType};
use crate::verbs::completion::{Sink, WcStatus};
use crate::verbs::op::SendOp;
use crate::verbs::request::{Destination, Payload, PostError, Queue, RecvList, RecvRequest, SendRequest};
use crate::verbs::work::Work;
use vrdma_wire::num::{Qpn, Srqn};

/// Longest message that is copied within the post. [`Engine::poll`] copies longer messages.
const SMALL: u32 = 64 << 10;

impl<R: Region> Engine<R> {
    /// Posts to the send queue of a connection.
    ///
    /// The request is executed at once if it is small and nothing is before it. An invalid request
    /// completes with an error. Only the cases of [`PostError`] end without a completion.
    #[inline]
    pub fn post_send(
        &mut self,
        now: Instant,
        device: DeviceId,
        owner: OwnerId,
        qpn: Qpn,
        request: &SendRequest<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), PostError> {
        self.post_connected(now, QpRef { device: device.0, qpn }, owner, request, None, sink)
    }

    /// Posts to the send queue of an XRC initiator, with the shared receive queue of the peer.
    ///
    /// A request without a queue ends as `LocQpOp`, and so does one with a queue on another QP. A
    /// request that changes only [own keys](crate::SendOp::BindMw) needs no queue.
    #[expect(clippy::too_many_arguments, reason = "the same as of the other posts")]
    pub fn post_xrc(
        &mut self,
        now: Instant,
        device: DeviceId,
        owner: OwnerId,
        qpn: Qpn,
        request: &SendRequest<'_>,
        srqn: Srqn,
        sink: &mut impl Sink,
    ) -> Result<(), PostError> {
        self.post_connected(now, QpRef { device: device.0, qpn }, owner, request, Some(srqn), sink)
    }

    #[inline]
    fn post_connected(
        &mut self,
        now: Instant,
        place: QpRef,
        owner: OwnerId,
        request: &SendRequest<'_>,
        srqn: Option<Srqn>,
        sink: &mut impl Sink,
    ) -> Result<(), PostError> {
        let device = DeviceId(place.device);
        let PostTarget { qp, suspended, .. } = self.posted(place, owner)?;
        let mut work = Work::new(request, &qp.caps);
        work.name_queue(srqn, qp.service());
        let local = qp.transport == TransportKind::Local && work.length <= SMALL;
        let first = qp.state == QpState::Rts && qp.requester.queue.is_empty();
        let (service, depth, peer) = (qp.service(), qp.caps.send_wr, qp.peer_hint());
        let at_once = local && first && !suspended && !self.may_be_limited(place, peer);
        if at_once && self.core.schedule.local.may_carry(device.0, WITHIN_POSTS) {
            if depth == 0 {
                return self.overflow(place, sink);
            }
            let (core, places, payload) = (&mut self.core, (place, peer), request.payload);
            let step = match service {
                // The most frequent operations have code of their own, in which their rows are
                // constants.
                QpType::Rc | QpType::XrcSend | QpType::XrcRecv => match work.op {
                    SendOp::Write { .. } => {
                        step_rc(core, now, places, &work.of_known(), payload, SMALL, sink)
                    }
                    SendOp::Send { .. } => step_rc(core, now, places, &work.of_known(), payload, SMALL, sink),
                    _ => step_rc_of_any(core, now, places, &work.again(), payload, SMALL, sink),
                },
                QpType::Uc => step_uc(core, places, &work.again(), payload, SMALL, sink).0,
                QpType::Ud | QpType::Gsi => {
                    send_datagram(core, place, &work.again(), None, payload, &mut NoOutlet, sink).step
                }
            };
            if step == Step::Ended {
                self.core.schedule.local.carry(device.0, work.length + work.op.extra_cost());
                return Ok(());
            }
            self.enqueue_begun(place, &work.again(), request.payload, sink);
            return Ok(());
        }
        self.enqueue_send(place, &work.again(), None, request.payload, sink)
    }

    /// Posts to a receive queue.
    #[inline]
    pub fn post_recv(
        &mut self,
        now: Instant,
        device: DeviceId,
        owner: OwnerId,
        qpn: Qpn,
        request: RecvRequest<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), PostError> {
        let _ = now;
        let place = QpRef { device: device.0, qpn };
        let PostTarget { qp, requests, counters, .. } = self.posted(place, owner)?;
        match qp.state {
            _ if qp.uses_shared_queue() || qp.service() == QpType::XrcSend => {
                return self.bad_state(place);
            }
            QpState::Reset => return self.bad_state(place),
            QpState::Err => {
                if let Some(flush) = qp.flush.as_mut().filter(|flush| flush.num_receives() > 0) {
                    // The receive ends after those that are still to be flushed.
                    if flush.num_receives() >= u32::from(qp.caps.recv_wr) {
                        return self.overflow(place, sink);
                    }
                    requests.push_receive(&mut flush.receives, request.id, &[]);
                    return Ok(());
                }
                counters.flushes += 1;
                let completion = recv_failure(qp, request.id, WcStatus::Flush);
                sink.complete(device, qp.recv_cq, &completion);
                return Ok(());
            }
            _ => {}
        }
        if request.sges.len() > usize::from(qp.caps.recv_sge) {
            self.invalid_receive(place, request.id, sink);
            return Ok(());
        }
        if qp.responder.queue.len() >= u32::from(qp.caps.recv_wr) {
            return self.overflow(place, sink);
        }
        requests.push_receive(&mut qp.responder.queue, request.id, request.sges);
        if qp.responder.sender_waits {
            qp.responder.sender_waits = false;
            self.wake_peer(place, sink);
        }
        Ok(())
    }

    /// Posts receives of one element each, as if [`Engine::post_recv`] posted each. Returns the
    /// first error.
    #[inline]
    pub fn post_recvs(
        &mut self,
        now: Instant,
        device: DeviceId,
        owner: OwnerId,
        qpn: Qpn,
        list: RecvList<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), PostError> {
        let place = QpRef { device: device.0, qpn };
        let known = self.core.devices.get_mut(device.0);
        if let Some((qp, requests)) = known
            .and_then(|device| Some((&mut device.qps.get_mut(qpn.number())?.qp, &mut device.parts.requests)))
            && (owner == OwnerId::KERNEL || owner == qp.owner)
            && qp.takes_receives(list.len())
        {
            requests.push_receives(&mut qp.responder.queue, list);
            if qp.responder.sender_waits {
                qp.responder.sender_waits = false;
                self.wake_peer(place, sink);
            }
            return Ok(());
        }
        let mut result = Ok(());
        for request in list.requests() {
            result = result.and(self.post_recv(now, device, owner, qpn, request, sink));
        }
        result
    }

    /// Posts a request that could not be parsed. It completes as `LocQpOp`.
    ///
    /// A send completes when its turn comes. The QP then goes to ERR, or to SQE if its service is
    /// unreliable. A receive takes the QP to ERR at once, and completes after the receives before
    /// it are flushed.
    #[expect(clippy::too_many_arguments, reason = "the same as of the other posts")]
    pub fn post_invalid(
        &mut self,
        now: Instant,
        device: DeviceId,
        owner: OwnerId,
        qpn: Qpn,
        id: u32,
        queue: Queue,
        sink: &mut impl Sink,
    ) -> Result<(), PostError> {
        let _ = now;
        let place = QpRef { device: device.0, qpn };
        let PostTarget { qp, .. } = self.posted(place, owner)?;
        match queue {
            Queue::Send => self.enqueue_send(place, &Work::invalid(id), None, Payload::Sges(&[]), sink),
            Queue::Recv => match qp.state {
                _ if qp.uses_shared_queue() => self.bad_state(place),
                QpState::Reset => self.bad_state(place),
                QpState::Err => self.post_recv(now, device, owner, qpn, RecvRequest { id, sges: &[] }, sink),
                _ => {
                    self.invalid_receive(place, id, sink);
                    Ok(())
                }
            },
        }
    }

    /// Adds a send to its queue, which is empty, and schedules its turn.
    ///
    /// A part of the send was executed, or it waits.
    #[cold]
    fn enqueue_begun(&mut self, place: QpRef, work: &Work<'_>, payload: Payload<'_>, sink: &mut impl Sink) {
        let mut borrowed = self.core.known(place, sink);
        borrowed.schedule.local.carry(place.device, borrowed.qp.requester.offset);
        borrowed.requests.push_send(&mut borrowed.qp.requester.queue, work, payload);
        borrowed.make_ready();
    }

    /// Adds a send behind those that are pending.
    pub(crate) fn enqueue_send(
        &mut self,
        place: QpRef,
        work: &Work<'_>,
        to: Option<&Destination>,
        payload: Payload<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), PostError> {
        let mut borrowed = self.core.known(place, sink);
        match borrowed.qp.state {
            QpState::Reset | QpState::Init | QpState::Rtr => return self.bad_state(place),
            QpState::Err | QpState::Sqe => {
                let flush = borrowed.qp.flush.as_mut().filter(|flush| !flush.sends.is_empty());
                if let Some(flush) = flush {
                    // The send ends after those that are still to be flushed.
                    if flush.sends.len() >= u32::from(borrowed.qp.caps.send_wr) {
                        return self.overflow(place, sink);
                    }
                    borrowed.requests.push_to(&mut flush.sends, work, to, payload);
                    return Ok(());
                }
                borrowed.counters.flushes += 1;
                borrowed.complete_send(&work.completion(place.qpn, WcStatus::Flush));
                return Ok(());
            }
            QpState::Rts | QpState::Sqd => {}
        }
        if borrowed.qp.requester.queue.len() >= u32::from(borrowed.qp.caps.send_wr) {
            return self.overflow(place, sink);
        }
        borrowed.requests.push_to(&mut borrowed.qp.requester.queue, work, to, payload);
        borrowed.conn.posted(borrowed.qp);
        borrowed.make_ready();
        Ok(())
    }

    /// Returns the QP that was posted to, if `owner` may post to it. A refusal is counted.
    #[inline]
    pub(crate) fn posted(&mut self, place: QpRef, owner: OwnerId) -> Result<PostTarget<'_>, PostError> {
        let device = self.core.devices.get_mut(place.device).ok_or(PostError::NoSuchQp)?;
        let Device { qps, parts: DeviceParts { requests, counters, suspended, .. }, .. } = device;
        match qps.get_mut(place.qpn.number()).map(|entry| &mut entry.qp) {
            Some(qp) if owner == OwnerId::KERNEL || owner == qp.owner => {
                Ok(PostTarget { qp, requests, counters, suspended: *suspended })
            }
            Some(_) => {
                counters.post_not_owner += 1;
                Err(PostError::NotOwner)
            }
            None => {
                counters.post_no_qp += 1;
                Err(PostError::NoSuchQp)
            }
        }
    }

    /// Takes the QP to ERR because of an invalid receive, which ends last.
    #[cold]
    fn invalid_receive(&mut self, place: QpRef, id: u32, sink: &mut impl Sink) {
        let mut borrowed = self.core.known(place, sink);
        borrowed.enter_error();
        borrowed.counters.errors += 1;
        borrowed.end_broken_receive(id);
    }

    #[cold]
    fn bad_state(&mut self, place: QpRef) -> Result<(), PostError> {
        self.core.devices.known_device(place.device).counters.post_bad_state += 1;
        Err(PostError::BadState)
    }

    #[cold]
    fn overflow(&mut self, place: QpRef, sink: &mut impl Sink) -> Result<(), PostError> {
        let mut borrowed = self.core.known(place, sink);
        borrowed.counters.post_overflow += 1;
        borrowed.enter_fatal();
        Err(PostError::Overflow)
    }
}
