//! Requests leave: each packet is cut from the request at the cursor.

use crate::completion::{Sink, WcStatus};
use crate::engine::turn::Turn;
use crate::memory::{Access, Region};
use crate::message::stretch::check_request;
use crate::message::transfer::{Elements, Span};
use crate::mr::Mrs;
use crate::op::Data;
use crate::outlet::{Outlet, Pieces};
use crate::qp::attr::QpState;
use crate::qp::requester::Wait;
use crate::qp::{NEVER, Qp};
use crate::rc::roce::packet::{Cut, body};
use crate::rc::roce::requester_state::{RequesterState, psns};
use crate::rc::roce::{HALF, Quantum, ahead};
use crate::request::Work;
use crate::time::{Instant, ack_timeout};
use crate::work::Payload;
use vrdma_wire::num::{Pkey, Psn};
use vrdma_wire::roce::{Body, Bth, Packet, Path};

/// Why a QP sends no more requests for now.
enum Pause {
    /// Its turn is over.
    More,
    /// Nothing is left, or what is left waits for something.
    Idle,
    /// The request at the cursor cannot be sent.
    Broken(WcStatus),
}

impl<R: Region, S: Sink> Turn<'_, R, S> {
    /// Sends what the send queue has and may send; true if there is more.
    pub(super) fn send_requests(&mut self, quantum: &mut Quantum, outlet: &mut impl Outlet<R>) -> bool {
        let before = quantum.sent;
        let pause = self.send_request_packets(quantum, outlet);
        // The clock runs for the oldest packet without an answer: those sent after it don't stop it.
        if quantum.sent > before && self.service.rc_roce().deadline == NEVER {
            self.restart_deadline(quantum.now);
        }
        match pause {
            Pause::Idle => false,
            Pause::More => true,
            Pause::Broken(status) => {
                // Not before those that are ahead of it ended.
                if self.service.rc_roce().requester.cursor_is_first() {
                    self.fail_first(status);
                }
                false
            }
        }
    }

    /// The local ACK timeout begins anew.
    pub(super) fn restart_deadline(&mut self, now: Instant) {
        let timeout = ack_timeout(self.qp.attr().timeout);
        self.set_deadline(timeout.map(|timeout| now + timeout));
    }

    /// Sends packets of one request after the other.
    fn send_request_packets(&mut self, quantum: &mut Quantum, outlet: &mut impl Outlet<R>) -> Pause {
        let Turn { qp, mrs, requests, counters, own, .. } = self;
        if !matches!(qp.state, QpState::Rts | QpState::Sqd) || qp.requester.wait == Wait::Receive {
            return Pause::Idle;
        }
        let path = qp.path(self.mac);
        let mtu = qp.path_mtu;
        let state = &mut self.service.rc_roce().requester;
        while let Some(at) = state.cursor.at {
            let (kept, payload) = requests.send_at(at, own);
            let work = kept.work();
            let psns = psns(&work, mtu);
            if let Some(pause) = why_not_begin(mrs, qp, state, &work, payload, psns) {
                return pause;
            }
            while state.cursor.at == Some(at) {
                if !quantum.may_send(outlet) {
                    return Pause::More;
                }
                let limited = state.lacks_credit(work.op);
                let outstanding = ahead(state.next(), state.una);
                if state.window_is_full() || outstanding >= HALF || limited && outstanding > 0 {
                    return Pause::Idle;
                }
                let cut = cut(&work, state.cursor.sent, psns, mtu.bytes());
                let Some(pieces) = carried(mrs, qp, &work, payload, &cut) else {
                    return Pause::Broken(WcStatus::LocProt);
                };
                let ask = !work.op.row().has_response() && (cut.last || state.must_ask() || limited);
                let packet = packet(&path, qp, state.next(), &work, &cut, ask);
                if outlet.send(&packet, &pieces).is_err() {
                    return Pause::Broken(WcStatus::LocProt);
                }
                quantum.sent(pieces.len() as u32);
                counters.packets_out += 1;
                state.unasked = if ask { 0 } else { state.unasked.saturating_add(1) };
                state.packet_sent(&work, cut.psns, psns, requests.send_after(at));
                let next = state.next();
                if ahead(next, state.una) > ahead(qp.requester.psn, state.una) {
                    qp.requester.psn = next;
                }
                qp.requester.started = true;
            }
        }
        Pause::Idle
    }
}

/// Why the next packet of a request, its first or that after a pause, cannot be sent now.
fn why_not_begin<R: Region>(
    mrs: &Mrs<R>,
    qp: &Qp,
    state: &RequesterState,
    work: &Work<'_>,
    payload: Payload<'_>,
    psns: u32,
) -> Option<Pause> {
    let begins = state.cursor.sent == 0;
    if begins && qp.state == QpState::Sqd && state.next() == qp.requester.psn {
        return Some(Pause::Idle);
    }
    if begins && let Err(status) = check_request(mrs, qp, work, payload) {
        return Some(Pause::Broken(status));
    }
    if begins && work.fence && state.reads > 0 {
        return Some(Pause::Idle);
    }
    if work.op.row().has_response() {
        let outstanding = ahead(state.next(), state.una);
        // One that was begun may go on even if by now none were allowed.
        let too_many = state.reads >= u32::from(qp.max_rd_atomic.max(1));
        if too_many || outstanding + (psns - state.cursor.sent) > HALF {
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

fn packet(path: &Path, qp: &Qp, psn: Psn, work: &Work<'_>, cut: &Cut, ack_req: bool) -> Packet {
    let bth = Bth {
        solicited: work.solicited && cut.last && work.op.takes_receive(),
        mig: true,
        pkey: Pkey::DEFAULT,
        fecn: false,
        becn: false,
        dest: qp.dest_qpn,
        ack_req,
        psn,
    };
    Packet { path: *path, bth, body: Body::Rc(body(work, cut)) }
}
