//! The receiving half of a datagram QP: whether a datagram is taken, and how it lies in its receive
//! (IBTA 9.8.3).

use crate::base::memory::Region;
use crate::carrier::ud::packet::{GRH, own_qkey};
use crate::message::ctx::QpCtx;
use crate::message::transfer::{Elements, Span, TransferError, copy, scatter};
use crate::objects::device::Device;
use crate::objects::outstanding::{RecvSlot, Scratch};
use crate::objects::qp::Qp;
use crate::verbs::completion::{Arrival, Completion, Sink, WcStatus};
use crate::verbs::op::{OF_RECEIVES, WcOpcode};
use crate::verbs::reason::Reason;
use vrdma_wire::num::{Imm, Qpn, VlanTag};
use vrdma_wire::roce::{Deth, Packet};

/// Where an accepted datagram goes.
pub(crate) struct Acceptance<'a, R> {
    device: &'a Device<R>,
    qp: &'a Qp,
    receive: &'a RecvSlot,
}

/// Whether a QP takes a datagram, if it has a receive that is long enough.
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

/// Whether a datagram of `length` bytes is taken. What is not is dropped, and its sender never
/// learns (IBTA 9.8.3): also one that is longer than the receive, which stays for the next.
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

/// Where a datagram's bytes come from.
pub(crate) enum DatagramPayload<'a, R> {
    /// From here.
    Bytes(&'a [u8]),
    /// From so many bytes of a region or of elements.
    Memory(Span<'a, R>, u32),
}

impl<R: Region> Acceptance<'_, R> {
    /// Puts the global route header and then the data into the receive.
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
        // Most receives have one element, which is looked up once for both.
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
            // Of a packet, or inline.
            DatagramPayload::Bytes(bytes) => scatter(bytes, behind),
            DatagramPayload::Memory(source, length) => copy(source, behind, length),
        }
    }
}

/// A datagram of `length` bytes is in the first receive.
pub(crate) fn datagram_arrived<R: Region, S: Sink>(
    ctx: &mut QpCtx<'_, R, S>,
    packet: &Packet,
    (src, imm): (Qpn, Option<Imm>),
    length: u32,
) {
    ctx.counters.bytes_in += u64::from(length);
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
