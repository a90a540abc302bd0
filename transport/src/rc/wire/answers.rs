//! Answers go back, in the order of the requests: responses, then a refusal or an acknowledge of all.

use crate::completion::Sink;
use crate::device::Device;
use crate::engine::Engine;
use crate::memory::{Access, Region};
use crate::message::transfer::Span;
use crate::message::verdict::{Nak, Refusal};
use crate::mr::Mrs;
use crate::outlet::{Outlet, Pieces};
use crate::qp::Qp;
use crate::qp::attr::QpState;
use crate::rc::wire::Turn;
use crate::rc::wire::answering::{Kind, Resource};
use crate::schedule::Place;
use vrdma_wire::num::{Msn, Pkey, Psn};
use vrdma_wire::roce::{Aeth, Body, Bth, Credits, NakCode, Packet, Path, Rc, ReadPart, Reth, Syndrome};

/// Why a QP sends no more answers for now.
enum Pause {
    /// Its turn is over.
    More,
    /// Nothing is left.
    Idle,
    /// A response cannot be given.
    Failed(Nak, Psn),
}

impl<R: Region> Engine<R> {
    /// Sends what the QP owes its peer; true if there is more.
    pub(super) fn send_answers(
        &mut self,
        place: Place,
        turn: &mut Turn,
        outlet: &mut impl Outlet<R>,
        sink: &mut impl Sink,
    ) -> bool {
        loop {
            let Some(device) = self.devices.get_mut(place.device) else { return false };
            match send_burst(device, place, turn, outlet) {
                None | Some(Pause::Idle) => return false,
                Some(Pause::More) => return true,
                Some(Pause::Failed(nak, psn)) => {
                    let qp = self.devices.qp_mut(place);
                    if let Some(wire) = qp.and_then(|qp| qp.wire.as_deref_mut()) {
                        wire.answering.forget_owed();
                    }
                    self.refuse_for_good(place, psn, Refusal { nak, receive: None }, sink);
                }
            }
        }
    }
}

fn send_burst<R: Region>(
    device: &mut Device<R>,
    place: Place,
    turn: &mut Turn,
    outlet: &mut impl Outlet<R>,
) -> Option<Pause> {
    let Device { qps, mrs, counters, mac, .. } = device;
    let qp = qps.get_mut(place.qpn.number())?;
    let mut wire = qp.wire.take()?;
    let answering = &mut wire.answering;
    let last_word = answering.refused.is_some_and(|refused| refused.fatal);
    let silent = match qp.state {
        QpState::Reset | QpState::Init => true,
        QpState::Err => !last_word,
        QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => false,
    };
    let path = qp.path(*mac);
    let mut burst = || {
        if silent {
            return Pause::Idle;
        }
        loop {
            let owed = answering.first_owed();
            if owed.is_none() && answering.refused.is_none() && !answering.ack_is_due() {
                return Pause::Idle;
            }
            if !turn.may_send(outlet) {
                return Pause::More;
            }
            let (psn, body, pieces) = if let Some((index, resource)) = owed {
                let psn = resource.psn.add(resource.next);
                let Some((body, pieces)) = response(mrs, qp, &resource) else {
                    if !resource.is_repeated() && qp.state != QpState::Err {
                        return Pause::Failed(Nak::Access, psn);
                    }
                    answering.settle(index);
                    counters.drop_duplicate += 1;
                    continue;
                };
                answering.response_sent(index);
                (psn, body, pieces)
            } else if let Some(refused) = answering.refused.take() {
                let aeth = Aeth { syndrome: refused.syndrome, msn: answering.msn };
                (refused.psn, Rc::Ack(aeth), Pieces::bytes(&[]))
            } else {
                answering.take_ack();
                let last = qp.responder.psn.add(u32::MAX);
                (last, Rc::Ack(ack(answering.msn)), Pieces::bytes(&[]))
            };
            let length = pieces.len() as u32;
            if outlet.send(&packet(&path, qp, psn, body), &pieces).is_err() {
                if qp.state == QpState::Err {
                    answering.forget_owed();
                    continue;
                }
                return Pause::Failed(Nak::Operational, psn);
            }
            turn.sent(length);
            counters.packets_out += 1;
        }
    };
    let pause = burst();
    qp.wire = Some(wire);
    Some(pause)
}

/// Without end-to-end credits: RNR NAKs say all, and rdma_rxe does the same. Real credits would make senders that honour them wait for
/// unsolicited acknowledges whenever a receive is posted.
fn ack(msn: Msn) -> Aeth {
    Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn }
}

/// The next packet of a response; `None` if what it is of may not be read any more.
fn response<'a, R: Region>(mrs: &'a Mrs<R>, qp: &Qp, resource: &Resource) -> Option<(Rc, Pieces<'a, R>)> {
    let aeth = ack(resource.msn);
    let reth = match resource.kind {
        Kind::Read(reth) => reth,
        Kind::Atomic(before) => return Some((Rc::AtomicAck(aeth, before), Pieces::bytes(&[]))),
        Kind::None => return None,
    };
    let mtu = qp.path_mtu.bytes();
    // Less than the length, which is within 2^31.
    let offset = resource.next * mtu;
    let rest = reth.length - offset;
    let length = rest.min(mtu);
    let part = match (resource.next == resource.from, rest <= mtu) {
        (true, true) => ReadPart::Only(aeth),
        (true, false) => ReadPart::First(aeth),
        (false, false) => ReadPart::Middle,
        (false, true) => ReadPart::Last(aeth),
    };
    let pieces = if rest == 0 { Pieces::bytes(&[]) } else { stretch(mrs, qp, &reth, offset, length)? };
    Some((Rc::ReadResponse(part), pieces))
}

/// Key, PD, range and rights are looked up for each packet, for all of the rest.
fn stretch<'a, R: Region>(
    mrs: &'a Mrs<R>,
    qp: &Qp,
    reth: &Reth,
    offset: u32,
    length: u32,
) -> Option<Pieces<'a, R>> {
    let addr = reth.va.checked_add(offset.into())?;
    let rest = u64::from(reth.length - offset);
    if !qp.access().contains(Access::REMOTE_READ) {
        return None;
    }
    let (region, at) = mrs.check(reth.rkey.0, qp.pd, Access::REMOTE_READ, addr, rest)?;
    Pieces::memory(Span::Flat(region, at), length)
}

fn packet(path: &Path, qp: &Qp, psn: Psn, body: Rc) -> Packet {
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
    Packet { path: *path, bth, body: Body::Rc(body) }
}

/// The code of a refusal on the wire.
pub(super) fn nak_code(nak: Nak) -> NakCode {
    match nak {
        Nak::Invalid => NakCode::InvalidRequest,
        Nak::Access => NakCode::RemoteAccessError,
        Nak::Operational => NakCode::RemoteOperationalError,
    }
}
