//! The responder sends responses in the order of the requests.
//!
//! Responses to READs and atomics come first. Then comes a NAK, or an acknowledge of everything.

use crate::base::id::PdId;
use crate::base::inter_worker::{InterWorkerPart, most_psns};
use crate::base::memory::Region;
use crate::message::ctx::QpCtx;
use crate::message::outlet::{PacketOutlet, Pieces};
use crate::message::transfer::Span;
use crate::message::verdict::{Nak, Refusal};
use crate::objects::mr::{Holder, Mrs};
use crate::objects::qp::Qp;
use crate::objects::roce::packet::{acknowledge, read_part, response_packet};
use crate::objects::roce::responder_state::{Resource, ResponseKind};
use crate::objects::roce::state::RcRoce;
use crate::protocol::allowance::Allowance;
use crate::protocol::roce::congestion::{answer_path, data_path};
use crate::protocol::roce::qp::RoceQp;
use crate::verbs::attr::QpState;
use crate::verbs::completion::Sink;
use crate::verbs::op::READ;
use vrdma_wire::num::Psn;
use vrdma_wire::roce::{Aeth, Rc, ReadPart, Reth};

/// Why a QP sends no more responses for now.
enum ResponsePause {
    /// The QP's turn is over.
    More,
    /// Nothing is left.
    Idle,
    /// A response cannot be sent. The peer gets this NAK for this PSN.
    Failed(Nak, Psn),
}

impl<R: Region, S: Sink> RoceQp<'_, R, S> {
    /// Sends the responses that are due. Returns whether there are more.
    pub(super) fn send_responses(
        &mut self,
        allowance: &mut Allowance,
        outlet: &mut impl PacketOutlet<R>,
    ) -> bool {
        loop {
            match self.send_response_packets(allowance, outlet) {
                ResponsePause::Idle => return false,
                ResponsePause::More => return true,
                ResponsePause::Failed(nak, psn) => {
                    self.conn.responder.drop_pending();
                    self.nak_for_good(psn, Refusal { nak, receive: None });
                }
            }
        }
    }

    fn send_response_packets(
        &mut self,
        allowance: &mut Allowance,
        outlet: &mut impl PacketOutlet<R>,
    ) -> ResponsePause {
        let device = self.place.id();
        let QpCtx { qp, mrs, counters, .. } = self;
        let RcRoce { responder: state, is_near, .. } = self.conn;
        let is_near = *is_near;
        let silent = match qp.state {
            QpState::Reset | QpState::Init => true,
            // In ERR, only the NAK that tells the peer why is sent.
            QpState::Err => !state.nak.is_some_and(|nak| nak.fatal),
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => false,
        };
        if silent {
            return ResponsePause::Idle;
        }
        let path = qp.path(self.mac, self.marks);
        let (data_path, path) = (data_path(self.schedule, path), answer_path(self.schedule, path));
        loop {
            let pending = state.first_pending();
            if pending.is_none() && state.nak.is_none() && !state.ack_is_due() {
                return ResponsePause::Idle;
            }
            if !allowance.may_send(outlet) {
                return ResponsePause::More;
            }
            let mut part = InterWorkerPart { psns: 1, path_mtu: qp.path_mtu, may_pin: false };
            let (psn, body, pieces) = if let Some((index, resource)) = pending {
                let psn = resource.psn.add(resource.next);
                let near = is_near.then_some(&mut part);
                let Some((body, pieces)) = next_response(mrs, qp, &resource, near, outlet) else {
                    if !resource.is_repeated() && qp.state != QpState::Err {
                        return ResponsePause::Failed(Nak::Access, psn);
                    }
                    state.settle(index);
                    counters.drop_duplicate += 1;
                    continue;
                };
                state.response_sent(index, part.psns);
                (psn, body, pieces)
            } else if let Some(nak) = state.nak.take() {
                let aeth = Aeth { syndrome: nak.syndrome, msn: state.msn };
                (nak.psn, Rc::Ack(aeth), Pieces::bytes(&[]))
            } else {
                state.take_ack();
                let last = qp.responder.psn.add(u32::MAX);
                (last, Rc::Ack(acknowledge(state.msn)), Pieces::bytes(&[]))
            };
            let path = if pending.is_some() { &data_path } else { &path };
            let packet = response_packet(path, qp, psn, body);
            let sent = outlet.pass(device, &packet, is_near.then_some(part), &pieces);
            if sent.is_err() {
                if qp.state == QpState::Err {
                    state.drop_pending();
                    continue;
                }
                return ResponsePause::Failed(Nak::Operational, psn);
            }
            allowance.sent(pieces.len() as u32);
            counters.packets_out += 1;
            counters.bytes_served += pieces.len() as u64;
        }
    }
}

/// Returns the next packet of a response. `part` is set for an inter-worker packet, and is updated.
///
/// An inter-worker packet of a READ response has as many PSNs as possible, and as a rate leaves.
/// Memory of a window is not pinned, because the window may be unbound at any time.
fn next_response<'a, R: Region>(
    mrs: &'a Mrs<R>,
    qp: &Qp,
    resource: &Resource,
    part: Option<&mut InterWorkerPart>,
    outlet: &mut impl PacketOutlet<R>,
) -> Option<(Rc, Pieces<'a, R>)> {
    let Some(part) = part.filter(|_| resource.rkey().is_some_and(|key| mrs.is_region(key))) else {
        return response(mrs, qp, resource, 1);
    };
    part.may_pin = true;
    part.psns = most_psns(qp.path_mtu, resource.next).min(resource.to - resource.next);
    if outlet.has_rate() {
        // Answers wait no longer than peers have patience, so the rate limits what goes at a time.
        let left = outlet.rate_leaves() / u64::from(qp.path_mtu.bytes());
        part.psns = part.psns.min(left.clamp(1, u32::MAX.into()) as u32);
    }
    let made = response(mrs, qp, resource, part.psns)?;
    if part.psns == 1 || outlet.carries(&made.1) {
        return Some(made);
    }
    part.psns = 1;
    response(mrs, qp, resource, 1)
}

/// Returns the next packet of a response, with `psns` PSNs.
///
/// Returns `None` if the memory that it reads may not be read any more.
fn response<'a, R: Region>(
    mrs: &'a Mrs<R>,
    qp: &Qp,
    resource: &Resource,
    psns: u32,
) -> Option<(Rc, Pieces<'a, R>)> {
    let aeth = acknowledge(resource.msn);
    let (reth, pd) = match resource.kind {
        ResponseKind::Data(reth, pd) => (reth, pd),
        ResponseKind::Once(Some(before)) => return Some((Rc::AtomicAck(aeth, before), Pieces::bytes(&[]))),
        ResponseKind::Once(None) => {
            return Some((Rc::ReadResponse(ReadPart::Only(aeth)), Pieces::bytes(&[])));
        }
        ResponseKind::None => return None,
    };
    let mtu = qp.path_mtu.bytes();
    // Less than the length, which is within 2^31.
    let offset = resource.next * mtu;
    let rest = reth.length - offset;
    let length = rest.min(psns * mtu);
    let part = read_part(resource.next == resource.from, resource.next + psns >= resource.to, aeth);
    let pieces = if rest == 0 { Pieces::bytes(&[]) } else { stretch(mrs, (qp, pd), &reth, offset, length)? };
    Some((Rc::ReadResponse(part), pieces))
}

/// Returns the payload of a packet of a READ response.
///
/// Key, PD, range and rights are looked up for each packet, for the whole rest of the response.
fn stretch<'a, R: Region>(
    mrs: &'a Mrs<R>,
    (qp, pd): (&Qp, PdId),
    reth: &Reth,
    offset: u32,
    length: u32,
) -> Option<Pieces<'a, R>> {
    let addr = reth.va.checked_add(offset.into())?;
    let rest = u64::from(reth.length - offset);
    if !qp.access().contains(READ.remote) {
        return None;
    }
    let (region, at) = mrs.remote(reth.rkey, Holder { pd, ..qp.holder() }, READ.remote, addr, rest)?;
    Pieces::memory(Span::Flat(region, at), length)
}
