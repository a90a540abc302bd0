//! The responder's side of a segment, whichever way it came: its effect on memory and on the QP, and what a refusal means there.

use crate::completion::{Completion, Event, Sink, WcOpcode, WcStatus};
use crate::device::{Device, Held};
use crate::engine::Engine;
use crate::id::DeviceId;
use crate::memory::{Access, Fault, Region};
use crate::message::segment::Segment;
use crate::message::transfer::{Elements, Side, Span, Trouble};
use crate::message::verdict::{Nak, Refusal, Target};
use crate::op::{Data, Receive};
use crate::qp::Qp;
use crate::qp::attr::QpState;
use crate::request::{Scratch, recv_failure};
use crate::schedule::Place;
use vrdma_wire::num::Qpn;

/// Why bytes did not arrive.
pub(crate) enum Failure {
    /// The requester's own doing.
    Local,
    /// The responder's.
    Remote(Refusal),
}

/// The receiving end of a movement.
pub(crate) struct Receiver<'a, R> {
    device: &'a Device<R>,
    qp: &'a Qp,
    /// Bytes of a SEND that are there already.
    received: u32,
}

impl<'a, R> Receiver<'a, R> {
    /// A QP as it is before the segment.
    #[inline]
    pub(crate) fn new(device: &'a Device<R>, qp: &'a Qp) -> Receiver<'a, R> {
        Receiver { device, qp, received: qp.responder.received }
    }
}

/// Where the bytes of an accepted segment go, or come from; `None` if it has none.
#[inline]
pub(crate) fn landing<'a, R>(
    receiver: &Receiver<'a, R>,
    target: Target<'a, R>,
    scratch: &'a mut Scratch,
) -> Option<Span<'a, R>> {
    match target {
        Target::Nothing => None,
        Target::Region(region, offset) => Some(Span::Flat(region, offset)),
        Target::Receive(receive) => {
            let pd = receiver.qp.pd;
            let elements = Elements { mrs: &receiver.device.mrs, pd, rights: Access::LOCAL_WRITE };
            let sges = receiver.device.requests.elements(receive, scratch);
            Some(Span::list(elements, sges, receiver.received))
        }
    }
}

/// Carries an atomic out; the value before.
pub(crate) fn atomic<R>(
    remote: Span<'_, R>,
    operation: impl FnOnce(&R, u64) -> Result<u64, Fault>,
) -> Result<u64, Failure> {
    let operational = Failure::Remote(Refusal { nak: Nak::Operational, receive: None });
    match remote {
        Span::Flat(region, offset) => operation(region, offset).map_err(|Fault| operational),
        Span::List(..) => Err(operational),
    }
}

/// Whose failure it is, when the requester's memory is on side `own`.
#[cold]
pub(crate) fn failure(segment: &Segment<'_>, trouble: Trouble, own: Side) -> Failure {
    if trouble.side == own {
        return Failure::Local;
    }
    let receive = (segment.op.row().receive == Receive::Always).then_some(WcStatus::LocProt);
    Failure::Remote(Refusal { nak: Nak::Operational, receive })
}

impl<R: Region> Engine<R> {
    /// A segment arrived at the QP at `place`: its PSN, receive, completion.
    #[inline]
    pub(crate) fn arrived(&mut self, place: Place, from: Qpn, segment: &Segment<'_>, sink: &mut impl Sink) {
        let id = DeviceId(place.device);
        let Some(Held { qp, requests, counters, .. }) = self.devices.hold(place) else { return };
        if qp.state == QpState::Rtr && !qp.responder.established {
            qp.responder.established = true;
            sink.event(id, Event::CommEstablished(place.qpn));
        }
        let message = qp.responder.received.saturating_add(segment.length);
        qp.responder.accepted(segment);
        let row = segment.op.row();
        if row.data != Data::Out {
            return;
        }
        counters.bytes_in += u64::from(segment.length);
        if !segment.last || !segment.op.takes_receive() {
            return;
        }
        let (opcode, byte_len) = match row.receive {
            Receive::Always => (WcOpcode::Recv, message),
            Receive::WithImm | Receive::Never => (WcOpcode::RecvWriteImm, segment.message),
        };
        let Some(receive) = requests.pop_receive(&mut qp.responder.queue) else { return };
        counters.receives += 1;
        let completion = Completion {
            id: receive,
            qpn: place.qpn,
            opcode,
            status: WcStatus::Success,
            byte_len,
            imm: segment.op.imm(),
            src_qpn: from,
            solicited: segment.solicited,
            arrival: None,
        };
        sink.complete(id, qp.recv_cq, &completion);
    }

    /// The responder takes offence: its receive, if it is that one's fault, ends now. What event goes with it, once its QP is in ERR.
    #[cold]
    pub(crate) fn refuse(&mut self, peer: Place, refusal: Refusal, sink: &mut impl Sink) -> Option<Event> {
        let Held { qp, requests, counters, .. } = self.devices.hold(peer)?;
        let count = match refusal.nak {
            Nak::Invalid => &mut counters.naks_invalid,
            Nak::Access => &mut counters.naks_access,
            Nak::Operational => &mut counters.naks_operational,
        };
        *count += 1;
        if let Some(status) = refusal.receive
            && let Some(id) = requests.pop_receive(&mut qp.responder.queue)
        {
            counters.errors += 1;
            sink.complete(DeviceId(peer.device), qp.recv_cq, &recv_failure(peer.qpn, id, status));
        }
        // A completion with an error says it all; else an event has to.
        match refusal {
            Refusal { receive: Some(_), .. } => None,
            Refusal { nak: Nak::Invalid, .. } => Some(Event::QpRequestError(peer.qpn)),
            Refusal { nak: Nak::Access, .. } => Some(Event::QpAccessError(peer.qpn)),
            Refusal { nak: Nak::Operational, .. } => Some(Event::QpFatal(peer.qpn)),
        }
    }
}
