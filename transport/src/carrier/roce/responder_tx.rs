//! Responses are sent, in the order of the requests: those to READs and atomics, then a NAK or an
//! acknowledge of all.

use crate::base::id::PdId;
use crate::base::memory::Region;
use crate::base::near::{NearPart, most_psns};
use crate::carrier::allowance::Allowance;
use crate::carrier::roce::qp::RoceQp;
use crate::message::ctx::QpCtx;
use crate::message::outlet::{PacketOutlet, Pieces};
use crate::message::transfer::Span;
use crate::message::verdict::{Nak, Refusal};
use crate::objects::mr::{Holder, Mrs};
use crate::objects::qp::Qp;
use crate::objects::roce::responder_state::{Kind, Resource};
use crate::objects::roce::state::RcRoce;
use crate::verbs::attr::{QpState, QpType};
use crate::verbs::completion::Sink;
use crate::verbs::op::READ;
use vrdma_wire::num::{Msn, Pkey, Psn};
use vrdma_wire::roce::{Aeth, Body, Bth, Credits, Packet, Path, Rc, ReadPart, Reth, Syndrome, Xrc};

/// Why a QP sends no more responses for now.
enum ResponsePause {
    /// Its turn is over.
    More,
    /// Nothing is left.
    Idle,
    /// A response cannot be given.
    Failed(Nak, Psn),
}

impl<R: Region, S: Sink> RoceQp<'_, R, S> {
    /// Sends the responses that are due; true if there is more.
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
        let path = qp.path(self.mac);
        loop {
            let pending = state.first_pending();
            if pending.is_none() && state.nak.is_none() && !state.ack_is_due() {
                return ResponsePause::Idle;
            }
            if !allowance.may_send(outlet) {
                return ResponsePause::More;
            }
            let mut part = NearPart { psns: 1, path_mtu: qp.path_mtu, may_loan: false };
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
                (last, Rc::Ack(ack(state.msn)), Pieces::bytes(&[]))
            };
            let packet = packet(&path, qp, psn, body);
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

/// Without end-to-end credits: RNR NAKs say all, and rdma_rxe does the same. Real credits would
/// make senders that honour them wait for unsolicited acknowledges whenever a receive is posted.
fn ack(msn: Msn) -> Aeth {
    Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn }
}

/// The next packet of a response; a near one, of which `part` is told, to a READ is of as many PSNs
/// as can be. What a window shows is not loaned: it may be unbound any time.
fn next_response<'a, R: Region>(
    mrs: &'a Mrs<R>,
    qp: &Qp,
    resource: &Resource,
    part: Option<&mut NearPart>,
    outlet: &mut impl PacketOutlet<R>,
) -> Option<(Rc, Pieces<'a, R>)> {
    let Some(part) = part.filter(|_| resource.rkey().is_some_and(|key| mrs.is_region(key))) else {
        return response(mrs, qp, resource, 1);
    };
    part.may_loan = true;
    part.psns = most_psns(qp.path_mtu, resource.next).min(resource.psns - resource.next);
    let made = response(mrs, qp, resource, part.psns)?;
    if part.psns == 1 || outlet.carries(&made.1) {
        return Some(made);
    }
    part.psns = 1;
    response(mrs, qp, resource, 1)
}

/// The next packet of a response, of so many PSNs; `None` if what it is of may not be read any
/// more.
fn response<'a, R: Region>(
    mrs: &'a Mrs<R>,
    qp: &Qp,
    resource: &Resource,
    psns: u32,
) -> Option<(Rc, Pieces<'a, R>)> {
    let aeth = ack(resource.msn);
    let (reth, pd) = match resource.kind {
        Kind::Data(reth, pd) => (reth, pd),
        Kind::Once(Some(before)) => return Some((Rc::AtomicAck(aeth, before), Pieces::bytes(&[]))),
        Kind::Once(None) => return Some((Rc::ReadResponse(ReadPart::Only(aeth)), Pieces::bytes(&[]))),
        Kind::None => return None,
    };
    let mtu = qp.path_mtu.bytes();
    // Less than the length, which is within 2^31.
    let offset = resource.next * mtu;
    let rest = reth.length - offset;
    let length = rest.min(psns * mtu);
    let part = match (resource.next == resource.from, rest == length) {
        (true, true) => ReadPart::Only(aeth),
        (true, false) => ReadPart::First(aeth),
        (false, false) => ReadPart::Middle,
        (false, true) => ReadPart::Last(aeth),
    };
    let pieces = if rest == 0 { Pieces::bytes(&[]) } else { stretch(mrs, (qp, pd), &reth, offset, length)? };
    Some((Rc::ReadResponse(part), pieces))
}

/// Key, PD, range and rights are looked up for each packet, for all of the rest.
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

fn packet(path: &Path, qp: &Qp, psn: Psn, body: Rc) -> Packet {
    let body = match qp.service() {
        QpType::XrcRecv => Body::Xrc(Xrc::new(body, None).expect("an answer names no queue")),
        _ => Body::Rc(body),
    };
    let bth = Bth {
        solicited: false,
        mig: true,
        pkey: Pkey::DEFAULT,
        fecn: false,
        becn: false,
        dest: qp.dest_qpn,
        ack_req: false,
        psn,
    };
    Packet { path: *path, bth, body }
}
