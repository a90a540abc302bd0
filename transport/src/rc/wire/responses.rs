//! Responses come: what they say of the requests that they are for (IBTA 9.7.5.1, 9.7.5.2).

use crate::completion::{Sink, WcStatus};
use crate::device::{Device, Held};
use crate::engine::Engine;
use crate::memory::{Access, Region};
use crate::message::transfer::{Elements, Span, scatter};
use crate::qp::attr::QpState;
use crate::qp::requester::Wait;
use crate::rc::wire::sending::Acked;
use crate::rc::wire::timers::Cause;
use crate::rc::wire::{HALF, ahead};
use crate::request::Kept;
use crate::schedule::Place;
use crate::time::{Instant, rnr_delay};
use crate::work::{Payload, SendOp};
use core::mem;
use vrdma_wire::num::{Msn, Psn};
use vrdma_wire::roce::{Aeth, Bth, Credits, NakCode, Rc, ReadPart, RnrTimer, Syndrome};

/// What a response brings for the first request.
#[derive(Copy, Clone)]
enum Brought<'a> {
    /// A part of what a READ asked for. `last`: the packet says that there is no more.
    Read { last: bool, data: &'a [u8] },
    /// The value that an atomic found.
    Atomic(u64),
}

impl<R: Region> Engine<R> {
    /// A response came for the QP at `place`, from its peer.
    pub(super) fn receive_response(
        &mut self,
        now: Instant,
        place: Place,
        bth: &Bth,
        body: &Rc,
        payload: &[u8],
        sink: &mut impl Sink,
    ) {
        let Some(Held { qp, counters, .. }) = self.devices.hold(place) else { return };
        let Some(wire) = qp.wire.as_deref_mut() else { return };
        if !matches!(qp.state, QpState::Rts | QpState::Sqd) {
            counters.drop_state += 1;
            return;
        }
        let psn = bth.psn;
        let outstanding = ahead(qp.requester.psn, wire.sending.una);
        let distance = ahead(psn, wire.sending.una);
        let gap = Syndrome::Nak(NakCode::PsnSequenceError);
        // A peer that misses a packet names the one that it expects, and that may be yet to be sent.
        let names_next = matches!(body, Rc::Ack(aeth) if aeth.syndrome == gap);
        if distance > outstanding || distance == outstanding && !names_next {
            let old = distance >= HALF;
            *(if old { &mut counters.drop_response_old } else { &mut counters.drop_response_future }) += 1;
            // The last acknowledge, again: it may tell of more receives (IBTA 9.7.7.2.5).
            if let Rc::Ack(Aeth { syndrome: Syndrome::Ack(credits), msn }) = body
                && psn.add(1) == wire.sending.una
            {
                wire.sending.credited(*msn, *credits);
                self.go_on_sending(place);
            }
            return;
        }
        match *body {
            Rc::Ack(Aeth { syndrome: Syndrome::Ack(credits), msn }) => {
                self.credited(place, msn, credits);
                if self.acknowledge(now, place, psn.add(1), sink) {
                    self.go_on_sending(place);
                }
            }
            Rc::Ack(Aeth { syndrome: Syndrome::Rnr(timer), .. }) => {
                self.found_no_receive(now, place, psn, timer, sink);
            }
            Rc::Ack(Aeth { syndrome: Syndrome::Nak(code), .. }) => self.refused(now, place, psn, code, sink),
            Rc::ReadResponse(part) => {
                let (aeth, last) = match part {
                    ReadPart::First(aeth) => (Some(aeth), false),
                    ReadPart::Middle => (None, false),
                    ReadPart::Last(aeth) | ReadPart::Only(aeth) => (Some(aeth), true),
                };
                self.brought(now, place, psn, aeth, Brought::Read { last, data: payload }, sink);
            }
            Rc::AtomicAck(aeth, before) => {
                self.brought(now, place, psn, Some(aeth), Brought::Atomic(before), sink);
            }
            _ => {}
        }
    }

    /// There is no receive for the request at `psn`; all before it was carried out.
    fn found_no_receive(
        &mut self,
        now: Instant,
        place: Place,
        psn: Psn,
        timer: RnrTimer,
        sink: &mut impl Sink,
    ) {
        if self.acknowledge(now, place, psn, sink) {
            self.wait_for_receive(now, place, rnr_delay(timer.code()), sink);
        }
    }

    /// A NAK for `psn`; all before it was carried out.
    fn refused(&mut self, now: Instant, place: Place, psn: Psn, code: NakCode, sink: &mut impl Sink) {
        let there = self.acknowledge(now, place, psn, sink);
        let Some(Held { counters, .. }) = self.devices.hold(place) else { return };
        let status = match code {
            NakCode::PsnSequenceError => {
                counters.naks_sequence_in += 1;
                if there {
                    self.try_again(place, Cause::Nak, sink);
                }
                return;
            }
            NakCode::InvalidRequest | NakCode::InvalidRdRequest => WcStatus::RemInvReq,
            NakCode::RemoteAccessError => WcStatus::RemAccess,
            NakCode::RemoteOperationalError => WcStatus::RemOp,
        };
        counters.naks_in += 1;
        if there {
            self.fail_first(place, status, sink);
        }
    }

    /// All before `end` was carried out: those requests end that have no responses of their own. If there is one among them that does, its
    /// response got lost, and it is asked for again: then false.
    fn acknowledge(&mut self, now: Instant, place: Place, end: Psn, sink: &mut impl Sink) -> bool {
        let mut progress = false;
        loop {
            let Some(Held { qp, requests, .. }) = self.devices.hold(place) else { return false };
            let Some(wire) = qp.wire.as_deref_mut() else { return false };
            let Some(kept) = requests.first_send(&qp.requester.queue) else { break };
            let before = wire.sending.una;
            let acked = wire.sending.acknowledged(end, &kept.work(), qp.path_mtu);
            progress |= wire.sending.una != before;
            match acked {
                Acked::First => self.end_first(place, sink),
                Acked::NoMore => break,
                Acked::Lost => {
                    if progress {
                        self.progressed(now, place);
                    }
                    self.try_again(place, Cause::Lost, sink);
                    return false;
                }
            }
        }
        if progress {
            self.progressed(now, place);
        }
        true
    }

    /// Something was answered that had not been before.
    fn progressed(&mut self, now: Instant, place: Place) {
        let Some(Held { qp, .. }) = self.devices.hold(place) else { return };
        let Some(wire) = qp.wire.as_deref_mut() else { return };
        wire.sending.went_back = false;
        wire.sending.widen();
        qp.requester.refresh_retries();
        qp.requester.wait = Wait::No;
        if wire.sending.una == qp.requester.psn {
            self.set_deadline(place, None);
        } else {
            self.restart_deadline(place, now);
        }
    }

    fn credited(&mut self, place: Place, msn: Msn, credits: Credits) {
        let qp = self.devices.qp_mut(place);
        if let Some(wire) = qp.and_then(|qp| qp.wire.as_deref_mut()) {
            wire.sending.credited(msn, credits);
        }
    }

    /// What waited for an answer may go on.
    pub(super) fn go_on_sending(&mut self, place: Place) {
        let Some(qp) = self.devices.qp_mut(place) else { return };
        if qp.requester.wait == Wait::No && qp.wire.as_deref().is_some_and(|wire| wire.has_unsent()) {
            self.make_turn_due(place);
        }
    }

    /// The first request ended well.
    fn end_first(&mut self, place: Place, sink: &mut impl Sink) {
        let Some(Held { qp, requests, counters, .. }) = self.devices.hold(place) else { return };
        let Some(wire) = qp.wire.as_deref_mut() else { return };
        let after = qp.requester.queue.head().and_then(|at| requests.send_after(at));
        let Some(kept) = requests.pop_send(&mut qp.requester.queue) else { return };
        let work = kept.work();
        wire.sending.first_ended(&work, qp.path_mtu, after);
        qp.requester.started = wire.sending.una != qp.requester.psn;
        *counters.moved(work.op, work.length.into()) += 1;
        if work.signaled {
            sink.complete(place.id(), qp.send_cq, &work.completion(place.qpn, WcStatus::Success));
        }
        if qp.state == QpState::Sqd {
            self.tell_if_drained(place, sink);
        }
    }

    /// The response to a READ or an atomic; all before it was carried out.
    fn brought(
        &mut self,
        now: Instant,
        place: Place,
        psn: Psn,
        aeth: Option<Aeth>,
        brought: Brought<'_>,
        sink: &mut impl Sink,
    ) {
        if !self.acknowledge(now, place, psn, sink) {
            return;
        }
        match self.take_response(place, aeth, brought) {
            Ok(Some(last)) => {
                if last {
                    self.end_first(place, sink);
                }
                self.progressed(now, place);
                self.go_on_sending(place);
            }
            Ok(None) => {}
            Err(status) => self.fail_first(place, status, sink),
        }
    }

    /// Puts what came where the first request wants it; whether that was all. `None`: it is not for that request. An error is how the
    /// request ends.
    fn take_response(
        &mut self,
        place: Place,
        aeth: Option<Aeth>,
        brought: Brought<'_>,
    ) -> Result<Option<bool>, WcStatus> {
        let mut scratch = mem::take(&mut self.own);
        let taken = self.devices.get_mut(place.device).map(|device| {
            let Device { qps, mrs, requests, counters, .. } = device;
            let Some(qp) = qps.get_mut(place.qpn.number()) else { return Ok(None) };
            let Some(wire) = qp.wire.as_deref_mut() else { return Ok(None) };
            let Some((kept, payload)) = requests.front_send(&qp.requester.queue, &mut scratch) else {
                counters.drop_response_odd += 1;
                return Ok(None);
            };
            let Payload::Sges(sges) = payload else {
                counters.drop_response_odd += 1;
                return Ok(None);
            };
            let offset = match what_it_is(&kept, brought, wire.sending.answered(), qp.path_mtu.bytes()) {
                Fit::Not => {
                    counters.drop_response_odd += 1;
                    return Ok(None);
                }
                Fit::Offset(offset) => offset,
                Fit::Wrong => {
                    counters.bad_responses += 1;
                    return Err(WcStatus::BadResp);
                }
            };
            match aeth {
                Some(Aeth { syndrome: Syndrome::Ack(credits), msn }) => wire.sending.credited(msn, credits),
                Some(_) => {
                    counters.bad_responses += 1;
                    return Err(WcStatus::BadResp);
                }
                None => {}
            }
            let elements = Elements { mrs, pd: qp.pd, rights: Access::LOCAL_WRITE };
            let own = Span::list(elements, sges, offset);
            match brought {
                Brought::Read { data, .. } => scatter(data, own),
                // In the byte order of guests, which is the host's.
                Brought::Atomic(before) => scatter(&before.to_ne_bytes(), own),
            }
            .map_err(|_| WcStatus::LocProt)?;
            let last = wire.sending.responded(&kept.work(), qp.path_mtu);
            Ok(Some(last))
        });
        self.own = scratch;
        taken.unwrap_or(Ok(None))
    }
}

/// How a response fits the first request.
enum Fit {
    /// It is for no request like that.
    Not,
    /// Its data belong there.
    Offset(u32),
    /// A response that must not be.
    Wrong,
}

fn what_it_is(kept: &Kept, brought: Brought<'_>, answered: u32, mtu: u32) -> Fit {
    let work = kept.work();
    match (work.op, brought) {
        (SendOp::Read { .. }, Brought::Read { last, data }) => {
            let offset = answered * mtu;
            let rest = work.length.saturating_sub(offset);
            let right = data.len() as u64 == u64::from(rest.min(mtu)) && last == (rest <= mtu);
            if right { Fit::Offset(offset) } else { Fit::Wrong }
        }
        (SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }, Brought::Atomic(_)) => Fit::Offset(0),
        (SendOp::Send { .. } | SendOp::Write { .. }, _) => Fit::Not,
        _ => Fit::Wrong,
    }
}
