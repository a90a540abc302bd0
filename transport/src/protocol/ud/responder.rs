//! The responder of a datagram QP: whether it takes a datagram, and the layout of the receive (IBTA
//! 9.8.3).

use crate::agenda::rates::{Flow, Rates};
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::message::ctx::QpCtx;
use crate::message::transfer::{Elements, Span, TransferError, copy, scatter};
use crate::objects::device::Device;
use crate::objects::outstanding::{RecvSlot, Scratch};
use crate::objects::qp::Qp;
use crate::protocol::ud::packet::{GRH, own_qkey};
use crate::verbs::completion::{Arrival, Completion, Sink, WcStatus};
use crate::verbs::op::{OF_RECEIVES, WcOpcode};
use crate::verbs::reason::Reason;
use vrdma_wire::num::{Imm, Qpn, VlanTag};
use vrdma_wire::roce::{Deth, Packet};

/// The destination of an accepted datagram.
pub(crate) struct Acceptance<'a, R> {
    device: &'a Device<R>,
    qp: &'a Qp,
    receive: &'a RecvSlot,
}

/// Checks whether a QP takes a datagram, except for its receive.
pub(super) fn admit<R>(device: &Device<R>, qpn: Qpn, deth: Deth) -> Result<&Qp, Reason> {
    let qp = device.qp(qpn).ok_or(Reason::NoQp)?;
    if !qp.service().is_datagram() {
        return Err(Reason::Service);
    }
    if device.suspended || !qp.is_receiving() {
        return Err(Reason::State);
    }
    if deth.qkey != own_qkey(qp) {
        return Err(Reason::Qkey);
    }
    Ok(qp)
}

/// Whether the rates of a device allow another datagram, which its QP takes.
///
/// Datagrams to QP1 set connections up, and are never too many.
#[cold]
pub(super) fn admits_datagram(rates: &mut Rates, place: QpRef) -> bool {
    place.qpn == Qpn::GSI || rates.admits(place.device)
}

/// Checks whether a QP takes a datagram of `length` bytes.
///
/// Other datagrams are dropped, and their senders do not learn of it (IBTA 9.8.3). That includes a
/// datagram that is longer than the receive, which stays for the next one.
pub(crate) fn accept<'a, R>(
    device: &'a Device<R>,
    qpn: Qpn,
    deth: Deth,
    length: u32,
) -> Result<Acceptance<'a, R>, Reason> {
    let qp = admit(device, qpn, deth)?;
    let fits = |receive: &RecvSlot| u64::from(length) + GRH as u64 <= u64::from(receive.length);
    match device.receiver(qp).receive() {
        Some(receive) if fits(receive) => Ok(Acceptance { device, qp, receive }),
        Some(_) => Err(Reason::Length),
        None => Err(Reason::NoReceive),
    }
}

/// The source of a datagram's payload.
pub(crate) enum DatagramPayload<'a, R> {
    /// Bytes of a packet, or inline data.
    Bytes(&'a [u8]),
    /// This many bytes of a region or of elements.
    Memory(Span<'a, R>, u32),
}

impl<R: Region> Acceptance<'_, R> {
    /// Writes the global route header, and then the data, into the receive.
    pub(crate) fn fill(
        &self,
        grh: &[u8; GRH],
        data: DatagramPayload<'_, R>,
        scratch: &mut Scratch,
    ) -> Result<(), TransferError> {
        let elements = Elements { mrs: &self.device.mrs, pd: self.qp.pd_of_receives(), rights: OF_RECEIVES };
        let sges = self.device.requests.elements(self.receive, scratch);
        let length = match data {
            DatagramPayload::Bytes(bytes) => bytes.len() as u32,
            DatagramPayload::Memory(_, length) => length,
        };
        // Most receives have one element. It is looked up once, for header and data.
        let (grh_place, behind) = match Span::of(elements, sges, 0, (GRH as u32).saturating_add(length)) {
            Span::Flat(region, offset) => {
                (Span::Flat(region, offset), Span::Flat(region, offset + GRH as u64))
            }
            Span::List(..) => {
                (Span::of(elements, sges, 0, GRH as u32), Span::of(elements, sges, GRH as u32, length))
            }
        };
        scatter(grh, grh_place)?;
        match data {
            DatagramPayload::Bytes(bytes) => scatter(bytes, behind),
            DatagramPayload::Memory(source, length) => copy(source, behind, length),
        }
    }
}

/// Completes the first receive, which holds a datagram of `length` bytes.
pub(crate) fn datagram_arrived<R: Region, S: Sink>(
    ctx: &mut QpCtx<'_, R, S>,
    packet: &Packet,
    (src, imm): (Qpn, Option<Imm>),
    length: u32,
) {
    ctx.counters.bytes_in += u64::from(length);
    if ctx.limited && ctx.place.qpn != Qpn::GSI {
        ctx.schedule.rates.charge(ctx.place.device, Flow::Rx, length.into(), 1);
    }
    let (qpn, path) = (ctx.place.qpn, &packet.path);
    ctx.complete_claimed(|id| Completion {
        id,
        qpn,
        opcode: WcOpcode::Recv,
        status: WcStatus::Success,
        byte_len: GRH as u32 + length,
        imm,
        invalidated: None,
        src_qpn: src,
        solicited: packet.bth.solicited,
        srq: None,
        arrival: Some(Arrival { smac: path.src_mac, vlan: path.vlan.and_then(VlanTag::named) }),
    });
}
