//! Shows messages within the engine as the packets that they would have been.
//!
//! The headers are made by the functions that make those of real packets.

use crate::base::inter_worker::InterWorkerPart;
use crate::base::memory::{Fault, Region};
use crate::message::effect::LocalBuffer;
use crate::message::outlet::{Piece, Pieces};
use crate::message::pair::Ends;
use crate::message::transfer::Span;
use crate::objects::roce::packet::{
    RequestSlice, acknowledge, asks_for_ack, cut_body, read_part, request_packet, response_packet,
};
use crate::verbs::mirror::{Mirror, MirrorEnds, PacketPayload};
use crate::verbs::op::{Answer, DataDirection};
use crate::verbs::segment::Segment;
use crate::verbs::work::Work;
use vrdma_wire::num::{AethMsn, Mtu};
use vrdma_wire::roce::{Packet, Rc, ReadPart};

impl<R: Region> PacketPayload for Pieces<'_, R> {
    fn length(&self) -> usize {
        self.len()
    }

    fn read_first(&self, mut buf: &mut [u8]) -> Result<(), Fault> {
        assert!(buf.len() <= self.len(), "it is no longer than the payload");
        for piece in self.iter() {
            match piece {
                Piece::Bytes(bytes) => {
                    let (now, later) = buf.split_at_mut(bytes.len().min(buf.len()));
                    now.copy_from_slice(&bytes[..now.len()]);
                    buf = later;
                }
                Piece::Memory { region, offset, length } => {
                    let (now, later) = buf.split_at_mut((length as usize).min(buf.len()));
                    if !now.is_empty() {
                        region.read(offset, now)?;
                    }
                    buf = later;
                }
            }
        }
        Ok(())
    }
}

/// Calls `f` with each packet of a part of a message, which may be longer than the path MTU.
///
/// `packet` and `payload` are those of the whole part, as
/// [`send_inter_worker`](crate::PacketOutlet::send_inter_worker) gets them.
pub fn each_packet<R: Region>(
    packet: &Packet,
    part: InterWorkerPart,
    payload: &Pieces<'_, R>,
    f: &mut dyn FnMut(&Packet, &Pieces<'_, R>),
) {
    let (count, mtu) = (part.psns.max(1), part.path_mtu.bytes());
    if count == 1 {
        return f(packet, payload);
    }
    for index in 0..count {
        let is_last = index + 1 == count;
        let offset = index.saturating_mul(mtu).min(payload.len() as u32);
        let length = (payload.len() as u32 - offset).min(mtu);
        let mut one = *packet;
        one.bth.psn = packet.bth.psn.add(index);
        one.bth.ack_req &= is_last;
        one.bth.solicited &= is_last;
        one.body = cut_body(&packet.body, index == 0, is_last);
        f(&one, &payload.part(offset, length));
    }
}

/// Shows a segment of a reliable connection within the engine, which was executed, and what its
/// responder answers.
///
/// `found` is the value that an atomic found.
#[cold]
#[inline(never)]
pub(crate) fn show_segment<R: Region>(
    mirror: &mut dyn Mirror,
    ends: &Ends<'_, R>,
    work: &Work<'_>,
    segment: &Segment<'_>,
    (local, found): (LocalBuffer<'_, R>, Option<u64>),
) {
    let between = ends.mirrored();
    let (wants, wants_answer) = (mirror.wants(between), mirror.wants(between.back()));
    let Some(payload) = payload_of(local, segment).filter(|_| wants || wants_answer) else { return };
    let (mtu, is_out) = (ends.qp().path_mtu, segment.row.data == DataDirection::Out);
    // A READ is one request, whatever its segments are.
    if wants && (is_out || segment.first) {
        let (offset, length) = if is_out { (segment.offset, segment.length) } else { (0, work.length) };
        let psns = if is_out { segment.packets } else { 1 };
        let last = segment.last || !is_out;
        let slice = RequestSlice { first: segment.first, last, offset, length, psns };
        let asks = asks_for_ack(work) && last;
        let packet = request_packet(&ends.path(), ends.qp(), segment.psn, work, &slice, asks);
        let nothing = Pieces::bytes(&[]);
        show(mirror, between, &packet, psns, mtu, if is_out { &payload } else { &nothing });
    }
    if wants_answer {
        show_answer(mirror, ends, segment, (&payload, found));
    }
}

/// Shows what the responder of an executed segment answers.
fn show_answer<R: Region>(
    mirror: &mut dyn Mirror,
    ends: &Ends<'_, R>,
    segment: &Segment<'_>,
    (payload, found): (&Pieces<'_, R>, Option<u64>),
) {
    let (peer, aeth) = (ends.receiver().qp, acknowledge(AethMsn::default()));
    let nothing = Pieces::bytes(&[]);
    let is_read = segment.row.answer == Answer::Data;
    let (body, psns, psn) = match (segment.row.answer, found) {
        (Answer::Data, _) => {
            let body = Rc::ReadResponse(read_part(segment.first, segment.last, aeth));
            let mtu = ends.qp().path_mtu;
            // The first segment has consumed the PSNs of the whole response.
            let begin = if segment.first {
                segment.psn
            } else {
                segment.psn.add(mtu.packets(segment.message).wrapping_neg())
            };
            (body, mtu.packets(segment.length), begin.add(segment.offset / mtu.bytes()))
        }
        _ if !segment.last => return,
        (Answer::Once, Some(before)) => (Rc::AtomicAck(aeth, before), 1, segment.psn),
        (Answer::Once, None) => (Rc::ReadResponse(ReadPart::Only(aeth)), 1, segment.psn),
        _ => (Rc::Ack(aeth), 1, segment.psn.add(segment.packets.max(1) - 1)),
    };
    let packet = response_packet(&ends.path_back(), peer, psn, body);
    let payload = if is_read { payload } else { &nothing };
    show(mirror, ends.mirrored().back(), &packet, psns, ends.qp().path_mtu, payload);
}

/// Shows a part of a message, packet by packet.
pub(crate) fn show<R: Region>(
    mirror: &mut dyn Mirror,
    ends: MirrorEnds,
    packet: &Packet,
    psns: u32,
    path_mtu: Mtu,
    payload: &Pieces<'_, R>,
) {
    let part = InterWorkerPart { psns, path_mtu, may_pin: false };
    each_packet(packet, part, payload, &mut |packet, payload| mirror.packet(ends, packet, payload));
}

/// Returns the requester's data of a segment: what went, or what came back.
///
/// Returns `None` if the memory may not be used any more.
pub(crate) fn payload_of<'a, R: Region>(
    local: LocalBuffer<'a, R>,
    segment: &Segment<'_>,
) -> Option<Pieces<'a, R>> {
    let (offset, length) = (segment.offset, segment.length);
    match local {
        LocalBuffer::Bytes(data) => data.get(offset as usize..(offset + length) as usize).map(Pieces::bytes),
        LocalBuffer::Region(region, at) => Pieces::memory(Span::Flat(region, at + u64::from(offset)), length),
        LocalBuffer::Memory(elements, sges) => Pieces::memory(Span::list(elements, sges, offset), length),
    }
}
