//! The sending half of a datagram QP.

use crate::agenda::schedule::{Cost, OPERATION};
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::message::core::Core;
use crate::message::ctx::QpCtx;
use crate::message::outlet::Pieces;
use crate::message::step::Step;
use crate::message::transfer::{Elements, Span, TransferError};
use crate::objects::device::Device;
use crate::objects::qp::Qp;
use crate::protocol::ud::packet::{Datagram, grh_of};
use crate::protocol::ud::responder::{DatagramPayload, accept};
use crate::verbs::completion::{Sink, WcStatus};
use crate::verbs::mirror::{Mirror, MirrorEnds};
use crate::verbs::reason::Reason;
use crate::verbs::request::Payload;
use crate::verbs::work::Work;

/// What became of the first request, and what that cost.
pub(crate) struct Sent {
    pub(crate) step: Step,
    /// How many packets and copies were made of the request.
    pub(crate) datagrams: u32,
}

impl Sent {
    pub(crate) const WAITS: Sent = Sent { step: Step::Waits, datagrams: 0 };
    /// The request ended, as one datagram.
    pub(crate) const ENDED: Sent = Sent { step: Step::Ended, datagrams: 1 };

    /// Returns the cost, for a request of `length` bytes.
    pub(crate) fn cost(&self, length: u32) -> Cost {
        Cost::from(self.datagrams) * (Cost::from(length) + OPERATION)
    }
}

/// Copies a datagram into a receive of the QP at `peer`, if that QP takes it.
pub(crate) fn copy_datagram<R: Region>(
    core: &mut Core<R>,
    place: QpRef,
    peer: QpRef,
    work: &Work<'_>,
    datagram: &Datagram,
    payload: Payload<'_>,
) -> Result<Result<(), TransferError>, Reason> {
    let (device, qp) = core.devices.known(place);
    let target = core.devices.get(peer.device).expect("only a device has a GID");
    accept(target, peer.qpn, datagram.deth, work.length).map(|acceptance| {
        let data = match payload {
            Payload::Inline(data) => DatagramPayload::Bytes(data),
            Payload::Sges(sges) => {
                let elements = local_elements(device, qp, work);
                DatagramPayload::Memory(Span::of(elements, sges, 0, work.length), work.length)
            }
        };
        let grh = grh_of(&datagram.packet, work.length as usize);
        acceptance.fill(&grh, data, &mut core.recv_scratch)
    })
}

/// Shows a datagram that goes to a QP of this engine, or to a group within it, as a packet.
#[cold]
#[inline(never)]
pub(crate) fn show_datagram<R: Region>(
    core: &Core<R>,
    (from, to): (QpRef, Option<QpRef>),
    work: &Work<'_>,
    datagram: &Datagram,
    payload: Payload<'_>,
    mirror: &mut dyn Mirror,
) {
    let end = |place: QpRef| (place.id(), place.qpn);
    let ends = MirrorEnds { from: end(from), to: to.map(end) };
    let (device, qp) = core.devices.known(from);
    if mirror.wants(ends)
        && let Some(payload) = pieces(device, qp, work, payload)
    {
        mirror.packet(ends, &datagram.packet, &payload);
    }
}

#[cold]
pub(crate) fn datagram_failed<R: Region>(
    core: &mut Core<R>,
    place: QpRef,
    work: &Work<'_>,
    status: WcStatus,
    sink: &mut impl Sink,
) -> Sent {
    core.known(place, sink).fail(work, status);
    Sent::ENDED
}

/// Ends the request of a datagram that was sent.
pub(crate) fn datagram_sent<R: Region, S: Sink>(ctx: &mut QpCtx<'_, R, S>, work: &Work<'_>) {
    let requester = &mut ctx.qp.requester;
    requester.psn = requester.psn.add(1);
    requester.ended();
    ctx.counters.sends += 1;
    ctx.counters.bytes_out += u64::from(work.length);
    ctx.end_send(work, WcStatus::Success);
    ctx.tell_if_drained();
}

/// Returns the payload of a request, or `None` if a part of it may not be used.
pub(super) fn pieces<'a, R>(
    device: &'a Device<R>,
    qp: &Qp,
    work: &Work<'_>,
    payload: Payload<'a>,
) -> Option<Pieces<'a, R>> {
    match payload {
        Payload::Inline(data) => Some(Pieces::bytes(data)),
        Payload::Sges(sges) => {
            Pieces::memory(Span::list(local_elements(device, qp, work), sges, 0), work.length)
        }
    }
}

/// Returns what the sender's elements may use.
pub(super) fn local_elements<'a, R>(device: &'a Device<R>, qp: &Qp, work: &Work<'_>) -> Elements<'a, R> {
    Elements { mrs: &device.mrs, pd: qp.pd, rights: work.row.local }
}
