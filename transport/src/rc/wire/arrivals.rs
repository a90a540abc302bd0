//! Peers' requests come: what is carried out, what was so before, and what is refused (IBTA 9.7.4).

use crate::completion::Sink;
use crate::device::Held;
use crate::engine::Engine;
use crate::look::Fate;
use crate::memory::Region;
use crate::message::arrival::{Failure, Receiver, atomic, failure, landing};
use crate::message::segment::{Cut, Segment};
use crate::message::transfer::{Side, scatter};
use crate::message::verdict::{Nak, Objection, Refusal, verdict};
use crate::rc::wire::answering::Kind;
use crate::rc::wire::answers::nak_code;
use crate::rc::wire::{HALF, ahead};
use crate::request::Scratch;
use crate::schedule::Place;
use crate::work::{Remote, SendOp};
use vrdma_wire::num::{Imm, Psn};
use vrdma_wire::roce::{AtomicEth, Bth, NakCode, Part, Rc, Reth, RnrTimer, SendTail, Syndrome, WriteTail};

const INVALID: Refusal = Refusal { nak: Nak::Invalid, receive: None };

/// What a request packet says, in terms of a segment.
struct Request {
    op: SendOp,
    first: bool,
    last: bool,
    /// Of its WRITE, READ or atomic: where, and how much in all.
    reth: Option<Reth>,
}

impl<R: Region> Engine<R> {
    /// A request came for the QP at `place`, from its peer.
    pub(super) fn receive_request(
        &mut self,
        place: Place,
        bth: &Bth,
        body: &Rc,
        payload: &[u8],
        looked: bool,
        sink: &mut impl Sink,
    ) -> Fate {
        let Some(Held { qp, counters, .. }) = self.devices.hold(place) else { return Fate::Done };
        if !qp.is_receiving() {
            counters.drop_state += 1;
            return Fate::Done;
        }
        let Some(wire) = qp.wire.as_deref_mut() else { return Fate::Done };
        let expected = qp.responder.psn;
        match ahead(bth.psn, expected) {
            0 => return self.receive_expected(place, bth, body, payload, looked, sink),
            distance if distance < HALF => {
                counters.out_of_order += 1;
                if wire.answering.refuse(expected, Syndrome::Nak(NakCode::PsnSequenceError)) {
                    counters.naks_sequence += 1;
                    self.make_turn_due(place);
                }
            }
            _ => {
                counters.duplicates += 1;
                let mtu = qp.path_mtu;
                let known = match body {
                    Rc::ReadRequest(reth) => wire.answering.read_again(bth.psn, reth, mtu),
                    Rc::CompareSwap(_) | Rc::FetchAdd(_) => wire.answering.atomic_again(bth.psn),
                    _ => {
                        wire.answering.acknowledge();
                        true
                    }
                };
                if known {
                    self.make_turn_due(place);
                } else {
                    counters.drop_duplicate += 1;
                }
            }
        }
        Fate::Done
    }

    /// The request packet that is expected.
    fn receive_expected(
        &mut self,
        place: Place,
        bth: &Bth,
        body: &Rc,
        payload: &[u8],
        looked: bool,
        sink: &mut impl Sink,
    ) -> Fate {
        let Some((device, qp)) = self.devices.with_qp(place) else { return Fate::Done };
        let Some(wire) = qp.wire.as_deref() else { return Fate::Done };
        let Some(Request { op, first, last, reth }) = understand(body, &wire.answering.write) else {
            self.refuse_for_good(place, bth.psn, INVALID, sink);
            return Fate::Done;
        };
        let length = payload.len() as u32;
        let offset = if first { 0 } else { qp.responder.received };
        let message = reth.map_or(offset.saturating_add(length), |reth| reth.length);
        let row = op.row();
        let segment = Segment {
            op: &op,
            solicited: bth.solicited,
            first,
            last,
            psn: bth.psn,
            packets: row.psns_of_packet(qp.path_mtu, message),
            offset,
            length,
            message,
            cut: Cut::Packet,
        };
        let done = match verdict(device, qp, &segment) {
            Ok(_) if row.has_response() && !wire.answering.has_room() => Err(Failure::Remote(INVALID)),
            Ok(target) => {
                let receiver = Receiver::new(device, qp);
                carry_out(&segment, &receiver, target, payload, &mut self.far)
            }
            Err(Objection::Nak(refusal)) => Err(Failure::Remote(refusal)),
            Err(Objection::Rnr) if !looked => return Fate::Look,
            Err(Objection::Rnr) => {
                self.no_receive(place, bth.psn);
                return Fate::Done;
            }
            // State and PSN were looked at before.
            Err(Objection::Drop(_)) => return Fate::Done,
        };
        match done {
            Err(Failure::Local) => self.refuse_for_good(place, bth.psn, INVALID, sink),
            Err(Failure::Remote(refusal)) => self.refuse_for_good(place, bth.psn, refusal, sink),
            Ok(found) => {
                let from = qp.dest_qpn;
                self.arrived(place, from, &segment, sink);
                let Some(Held { qp, .. }) = self.devices.hold(place) else { return Fate::Done };
                let Some(wire) = qp.wire.as_deref_mut() else { return Fate::Done };
                let answering = &mut wire.answering;
                match (op, reth) {
                    (SendOp::Read { .. }, Some(reth)) => {
                        answering.respond(bth.psn, segment.packets, Kind::Read(reth));
                    }
                    (SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }, _) => {
                        answering.respond(bth.psn, 1, Kind::Atomic(found));
                    }
                    _ => {
                        if let Some(reth) = reth {
                            answering.write = reth;
                        }
                        answering.accepted(last, bth.ack_req);
                        if !answering.ack_is_due() {
                            return Fate::Done;
                        }
                    }
                }
                self.make_turn_due(place);
            }
        }
        Fate::Done
    }

    /// The peer is told to wait for a receive.
    fn no_receive(&mut self, place: Place, psn: Psn) {
        let Some(Held { qp, counters, .. }) = self.devices.hold(place) else { return };
        let timer = RnrTimer::new(qp.attr().min_rnr_timer);
        let (Some(timer), Some(wire)) = (timer, qp.wire.as_deref_mut()) else { return };
        counters.rnr_naks_sent += 1;
        wire.answering.not_ready(psn, Syndrome::Rnr(timer));
        self.make_turn_due(place);
    }

    /// The QP takes offence at its peer's request: it says so, and goes to ERR.
    #[cold]
    pub(super) fn refuse_for_good(&mut self, place: Place, psn: Psn, refusal: Refusal, sink: &mut impl Sink) {
        let event = self.refuse(place, refusal, sink);
        self.offended(place, event, sink);
        let qp = self.devices.qp_mut(place);
        if let Some(wire) = qp.and_then(|qp| qp.wire.as_deref_mut()) {
            wire.answering.refuse_for_good(psn, Syndrome::Nak(nak_code(refusal.nak)));
            self.make_turn_due(place);
        }
    }
}

/// What a request packet says, if it is of a WRITE in the midst of `write`; `None` for what this device does not do.
fn understand(body: &Rc, write: &Reth) -> Option<Request> {
    fn place<F, L>(part: &Part<F, L>) -> (bool, bool) {
        (matches!(part, Part::First(_) | Part::Only(..)), matches!(part, Part::Last(_) | Part::Only(..)))
    }
    let at = |reth: &Reth| Remote { addr: reth.va, rkey: reth.rkey };
    let atomic = |eth: &AtomicEth| Reth { va: eth.va, rkey: eth.rkey, length: 8 };
    let only = |op, reth| Request { op, first: true, last: true, reth: Some(reth) };
    Some(match body {
        Rc::Send(part) => {
            let (first, last) = place(part);
            let imm = match part {
                Part::Last(tail) | Part::Only((), tail) => match tail {
                    SendTail::Plain => None,
                    SendTail::Imm(imm) => Some(*imm),
                    SendTail::Invalidate(_) => return None,
                },
                Part::First(()) | Part::Middle => None,
            };
            Request { op: SendOp::Send { imm }, first, last, reth: None }
        }
        Rc::Write(part) => {
            let (first, last) = place(part);
            let imm_of = |tail: &WriteTail| -> Option<Imm> {
                match tail {
                    WriteTail::Plain => None,
                    WriteTail::Imm(imm) => Some(*imm),
                }
            };
            let (reth, imm) = match part {
                Part::First(reth) => (*reth, None),
                Part::Middle => (*write, None),
                Part::Last(tail) => (*write, imm_of(tail)),
                Part::Only(reth, tail) => (*reth, imm_of(tail)),
            };
            Request { op: SendOp::Write { remote: at(&reth), imm }, first, last, reth: Some(reth) }
        }
        Rc::ReadRequest(reth) => only(SendOp::Read { remote: at(reth) }, *reth),
        Rc::CompareSwap(eth) => {
            let reth = atomic(eth);
            only(SendOp::CompareSwap { remote: at(&reth), compare: eth.compare, swap: eth.swap_or_add }, reth)
        }
        Rc::FetchAdd(eth) => {
            let reth = atomic(eth);
            only(SendOp::FetchAdd { remote: at(&reth), add: eth.swap_or_add }, reth)
        }
        _ => return None,
    })
}

/// Carries an accepted segment out; what an atomic found. A READ is carried out when it is answered.
fn carry_out<R: Region>(
    segment: &Segment<'_>,
    receiver: &Receiver<'_, R>,
    target: crate::message::verdict::Target<'_, R>,
    payload: &[u8],
    scratch: &mut Scratch,
) -> Result<u64, Failure> {
    let Some(there) = landing(receiver, target, scratch) else { return Ok(0) };
    match *segment.op {
        SendOp::Send { .. } | SendOp::Write { .. } => {
            scatter(payload, there).map(|()| 0).map_err(|trouble| failure(segment, trouble, Side::Source))
        }
        SendOp::Read { .. } => Ok(0),
        SendOp::CompareSwap { compare, swap, .. } => {
            atomic(there, |region, offset| region.compare_swap(offset, compare, swap))
        }
        SendOp::FetchAdd { add, .. } => atomic(there, |region, offset| region.fetch_add(offset, add)),
    }
}
