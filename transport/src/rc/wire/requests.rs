//! Requests leave: each packet is cut from the request at the cursor.

use crate::completion::{Sink, WcStatus};
use crate::device::Device;
use crate::engine::Engine;
use crate::memory::{Access, Region};
use crate::message::stretch::check_request;
use crate::message::transfer::{Elements, Span};
use crate::mr::Mrs;
use crate::op::Data;
use crate::outlet::{Outlet, Pieces};
use crate::qp::attr::QpState;
use crate::qp::requester::Wait;
use crate::qp::{NEVER, Qp};
use crate::rc::wire::sending::{Sending, psns};
use crate::rc::wire::{HALF, Turn, ahead};
use crate::request::{Scratch, Work};
use crate::schedule::Place;
use crate::time::{Instant, ack_timeout};
use crate::work::{Payload, Remote, SendOp};
use core::mem;
use vrdma_wire::num::Pkey;
use vrdma_wire::roce::{AtomicEth, Body, Bth, Packet, Part, Path, Rc, Reth, SendTail, WriteTail};

/// Why a QP sends no more requests for now.
enum Pause {
    /// Its turn is over.
    More,
    /// Nothing is left, or what is left waits for something.
    Idle,
    /// The request at the cursor cannot be sent.
    Broken(WcStatus),
}

/// How the next packet of a request is cut.
struct Cut {
    first: bool,
    last: bool,
    /// First byte,
    offset: u32,
    /// and how many, in the packet or, for a READ, asked for by it.
    length: u32,
    /// PSNs that it stands for.
    psns: u32,
}

impl<R: Region> Engine<R> {
    /// Sends what the send queue has and may send; true if there is more.
    pub(super) fn send_requests(
        &mut self,
        place: Place,
        turn: &mut Turn,
        outlet: &mut impl Outlet<R>,
        sink: &mut impl Sink,
    ) -> bool {
        let before = turn.sent;
        let mut scratch = mem::take(&mut self.own);
        let device = self.devices.get_mut(place.device);
        let pause = device.and_then(|device| send_burst(device, place, turn, &mut scratch, outlet));
        self.own = scratch;
        // The clock runs for the oldest packet without an answer: those sent after it don't stop it.
        let qp = self.devices.qp_mut(place).and_then(|qp| qp.wire.as_deref());
        if turn.sent > before && qp.is_some_and(|wire| wire.deadline == NEVER) {
            self.restart_deadline(place, turn.now);
        }
        match pause {
            None | Some(Pause::Idle) => false,
            Some(Pause::More) => true,
            Some(Pause::Broken(status)) => {
                // Not before those that are ahead of it ended.
                let ready = self.devices.qp_mut(place).and_then(|qp| qp.wire.as_deref());
                if ready.is_some_and(|wire| wire.sending.cursor_is_first()) {
                    self.fail_first(place, status, sink);
                }
                false
            }
        }
    }

    /// The local ACK timeout begins anew.
    pub(super) fn restart_deadline(&mut self, place: Place, now: Instant) {
        let timeout = self.devices.qp_mut(place).and_then(|qp| ack_timeout(qp.attr().timeout));
        self.set_deadline(place, timeout.map(|timeout| now + timeout));
    }
}

/// Sends packets of one request after the other. `None` if there is nobody to do so.
fn send_burst<R: Region>(
    device: &mut Device<R>,
    place: Place,
    turn: &mut Turn,
    scratch: &mut Scratch,
    outlet: &mut impl Outlet<R>,
) -> Option<Pause> {
    let Device { qps, mrs, requests, counters, mac, .. } = device;
    let qp = qps.get_mut(place.qpn.number())?;
    if !matches!(qp.state, QpState::Rts | QpState::Sqd) || qp.requester.wait == Wait::Receive {
        return None;
    }
    let path = qp.path(*mac);
    let mtu = qp.path_mtu;
    let mut wire = qp.wire.take()?;
    let sending = &mut wire.sending;
    let mut burst = || {
        while let Some(at) = sending.cursor.at {
            let (kept, payload) = requests.send_at(at, scratch);
            let work = kept.work();
            let psns = psns(&work, mtu);
            if let Some(pause) = why_not_begin(mrs, qp, sending, &work, payload, psns) {
                return pause;
            }
            while sending.cursor.at == Some(at) {
                if !turn.may_send(outlet) {
                    return Pause::More;
                }
                let limited = sending.lacks_credit(work.op);
                let outstanding = ahead(sending.next(), sending.una);
                if sending.window_is_full() || outstanding >= HALF || limited && outstanding > 0 {
                    return Pause::Idle;
                }
                let cut = cut(&work, sending.cursor.sent, psns, mtu.bytes());
                let body = body(&work, &cut);
                let Some(pieces) = carried(mrs, qp, &work, payload, &cut) else {
                    return Pause::Broken(WcStatus::LocProt);
                };
                let ask = !work.op.row().has_response() && (cut.last || sending.must_ask() || limited);
                let packet = packet(&path, qp, sending, work.solicited, ask, body, cut.last);
                if outlet.send(&packet, &pieces).is_err() {
                    return Pause::Broken(WcStatus::LocProt);
                }
                turn.sent(pieces.len() as u32);
                counters.packets_out += 1;
                sending.unasked = if ask { 0 } else { sending.unasked.saturating_add(1) };
                sending.packet_sent(&work, cut.psns, psns, requests.send_after(at));
                let next = sending.next();
                if ahead(next, sending.una) > ahead(qp.requester.psn, sending.una) {
                    qp.requester.psn = next;
                }
                qp.requester.started = true;
            }
        }
        Pause::Idle
    };
    let pause = burst();
    qp.wire = Some(wire);
    Some(pause)
}

/// Why the next packet of a request, its first or that after a pause, cannot be sent now.
fn why_not_begin<R: Region>(
    mrs: &Mrs<R>,
    qp: &Qp,
    sending: &Sending,
    work: &Work<'_>,
    payload: Payload<'_>,
    psns: u32,
) -> Option<Pause> {
    let begins = sending.cursor.sent == 0;
    if begins && qp.state == QpState::Sqd && sending.next() == qp.requester.psn {
        return Some(Pause::Idle);
    }
    if begins && let Err(status) = check_request(mrs, qp, work, payload) {
        return Some(Pause::Broken(status));
    }
    if begins && work.fence && sending.reads > 0 {
        return Some(Pause::Idle);
    }
    if work.op.row().has_response() {
        let outstanding = ahead(sending.next(), sending.una);
        // One that was begun may go on even if by now none were allowed.
        let too_many = sending.reads >= u32::from(qp.max_rd_atomic.max(1));
        if too_many || outstanding + (psns - sending.cursor.sent) > HALF {
            return Some(Pause::Idle);
        }
    }
    None
}

fn cut(work: &Work<'_>, sent: u32, psns: u32, mtu: u32) -> Cut {
    // Less than the message's length, which is within 2^31.
    let offset = sent * mtu;
    let rest = work.length.saturating_sub(offset);
    match work.op.row().data {
        Data::Out => Cut { first: sent == 0, last: sent + 1 == psns, offset, length: rest.min(mtu), psns: 1 },
        // It asks for all that has not come.
        Data::Back => Cut { first: true, last: true, offset, length: rest, psns: psns - sent },
    }
}

fn reth(remote: Remote, offset: u32, length: u32) -> Reth {
    // What wraps is for the responder to refuse.
    Reth { va: remote.addr.wrapping_add(offset.into()), rkey: remote.rkey, length }
}

fn body(work: &Work<'_>, cut: &Cut) -> Body {
    fn part<F, L>(cut: &Cut, head: F, tail: L) -> Part<F, L> {
        match (cut.first, cut.last) {
            (true, true) => Part::Only(head, tail),
            (true, false) => Part::First(head),
            (false, false) => Part::Middle,
            (false, true) => Part::Last(tail),
        }
    }
    Body::Rc(match *work.op {
        SendOp::Send { imm } => Rc::Send(part(cut, (), imm.map_or(SendTail::Plain, SendTail::Imm))),
        SendOp::Write { remote, imm } => {
            let tail = imm.map_or(WriteTail::Plain, WriteTail::Imm);
            Rc::Write(part(cut, reth(remote, 0, work.length), tail))
        }
        SendOp::Read { remote } => Rc::ReadRequest(reth(remote, cut.offset, cut.length)),
        SendOp::CompareSwap { remote: Remote { addr: va, rkey }, compare, swap } => {
            Rc::CompareSwap(AtomicEth { va, rkey, swap_or_add: swap, compare })
        }
        SendOp::FetchAdd { remote: Remote { addr: va, rkey }, add } => {
            Rc::FetchAdd(AtomicEth { va, rkey, swap_or_add: add, compare: 0 })
        }
    })
}

/// The payload of a packet; `None` if it may not be used.
fn carried<'a, R: Region>(
    mrs: &'a Mrs<R>,
    qp: &Qp,
    work: &Work<'_>,
    payload: Payload<'a>,
    cut: &Cut,
) -> Option<Pieces<'a, R>> {
    if work.op.row().data == Data::Back {
        return Some(Pieces::bytes(&[]));
    }
    match payload {
        Payload::Inline(data) => {
            let from = cut.offset as usize;
            data.get(from..from + cut.length as usize).map(Pieces::bytes)
        }
        Payload::Sges(sges) => {
            let elements = Elements { mrs, pd: qp.pd, rights: Access::NONE };
            Pieces::memory(Span::list(elements, sges, cut.offset), cut.length)
        }
    }
}

fn packet(
    path: &Path,
    qp: &Qp,
    sending: &Sending,
    solicited: bool,
    ack_req: bool,
    body: Body,
    last: bool,
) -> Packet {
    let raises = matches!(
        body,
        Body::Rc(Rc::Send(_) | Rc::Write(Part::Last(WriteTail::Imm(_)) | Part::Only(_, WriteTail::Imm(_))))
    );
    let bth = Bth {
        solicited: solicited && last && raises,
        mig: true,
        pkey: Pkey::DEFAULT,
        fecn: false,
        becn: false,
        dest: qp.dest_qpn,
        ack_req,
        psn: sending.next(),
    };
    Packet { path: *path, bth, body }
}
