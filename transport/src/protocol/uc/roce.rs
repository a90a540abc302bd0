//! Unreliable connections on RoCEv2 packets.

use crate::agenda::drains::{Fate, PostedReceives};
use crate::agenda::rates::Flow;
use crate::agenda::schedule::{OPERATION, TURN_PACKETS};
use crate::base::inter_worker::InterWorkerPart;
use crate::base::marks::Marks;
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::transport_kind::TransportKind;
use crate::message::accept::SegmentData;
use crate::message::ctx::QpCtx;
use crate::message::outlet::{DiscardOutlet, PacketOutlet, Pieces};
use crate::message::segmentation::next_segment;
use crate::message::step::Step;
use crate::message::transfer::{Elements, Span};
use crate::objects::mr::Mrs;
use crate::objects::outstanding::Scratch;
use crate::objects::qp::Qp;
use crate::objects::receiver::Receiver;
use crate::objects::roce::packet::base_header;
use crate::protocol::uc::UcQp;
use crate::protocol::uc::responder::{UcRejection, accept, drop_message, placement_failed, resync};
use crate::verbs::attr::QpType;
use crate::verbs::completion::{Sink, WcStatus};
use crate::verbs::op::{Remote, SendOp};
use crate::verbs::reason::Reason;
use crate::verbs::request::Payload;
use crate::verbs::segment::{Segment, Segmentation};
use crate::verbs::work::Work;
use core::mem;
use vrdma_wire::num::{Imm, Mac};
use vrdma_wire::roce::{Body, Bth, Packet, Part, Path, Reth, Uc, UcTail, WriteTail};

/// Handles a packet of an unreliable connection that came for a QP.
#[inline]
pub(crate) fn receive<R: Region, S: Sink>(
    ctx: QpCtx<'_, R, S>,
    packet: &Packet,
    payload: &[u8],
    body: &Uc,
    posted: PostedReceives,
) -> Fate {
    if !ctx.qp.is_path_of_peer(&packet.path) {
        ctx.counters.drop_source += 1;
        return Fate::Done;
    }
    if ctx.qp.transport != TransportKind::Roce {
        ctx.counters.drop_not_connected += 1;
        return Fate::Done;
    }
    if !ctx.qp.is_receiving() {
        ctx.counters.drop_state += 1;
        return Fate::Done;
    }
    // One that has found no receive was asked for before.
    if ctx.limited && posted == PostedReceives::MayComeYet && !ctx.schedule.rates.admits(ctx.place.device) {
        return Fate::Done;
    }
    ctx.uc_roce().receive_request(packet, payload, body, posted)
}

impl<R: Region, S: Sink> UcQp<'_, R, S> {
    fn receive_request(
        &mut self,
        packet: &Packet,
        payload: &[u8],
        body: &Uc,
        posted: PostedReceives,
    ) -> Fate {
        let UcRequest { op, first, last, length } = decode(body, &mut self.conn.write);
        let received = payload.len() as u32;
        let offset = if first { 0 } else { self.qp.responder.received };
        let segment = Segment {
            op: &op,
            row: op.row(),
            solicited: packet.bth.solicited,
            first,
            last,
            psn: packet.bth.psn,
            packets: 1,
            offset,
            length: received,
            message: length.unwrap_or(offset.saturating_add(received)),
            segmentation: Segmentation::Packet,
        };
        resync(self, &segment);
        let QpCtx { qp, mrs, requests, srqs, recv_scratch, .. } = self;
        let receiver = Receiver { mrs, requests, srqs, qp };
        match accept(&receiver, &segment, SegmentData::packet(payload), recv_scratch) {
            Ok(()) => {
                if self.limited {
                    let (device, messages) = (self.place.device, first.into());
                    self.schedule.rates.charge(device, Flow::Rx, received.into(), messages);
                }
                self.arrived(self.qp.dest_qpn, &segment);
            }
            Err(UcRejection::Memory(refusal)) => placement_failed(self, refusal),
            Err(UcRejection::Source) => unreachable!("its data are in the packet"),
            Err(UcRejection::Dropped(reason)) => {
                if reason == Reason::NoReceive && posted == PostedReceives::MayComeYet {
                    return Fate::NeedsDrain;
                }
                drop_message(self, reason, segment.psn.add(1));
            }
        }
        Fate::Done
    }

    /// Sends packets while `outlet` has room, and executes requests that need none.
    ///
    /// Together they count as at most `budget` packets. Returns the number of packets, and what the
    /// other requests counted as.
    pub(crate) fn transmit(&mut self, budget: usize, outlet: &mut impl PacketOutlet<R>) -> (usize, usize) {
        if self.qp.sgid.is_zero() {
            // Without a source address nothing can be sent, so the packets are lost.
            return self.take_turn(budget, &mut DiscardOutlet);
        }
        self.take_turn(budget, outlet)
    }

    fn take_turn(&mut self, budget: usize, outlet: &mut impl PacketOutlet<R>) -> (usize, usize) {
        let before = self.counters.packets_out;
        let most = budget.min(TURN_PACKETS);
        let mut left = most;
        let mut scratch = mem::take(self.send_scratch);
        let way = outlet.way_to(self.qp.attr().dmac);
        while way.has_room && self.qp.can_send() {
            if self.transmit_request(&mut left, &mut scratch, way.is_near, outlet) == Step::Waits {
                break;
            }
        }
        *self.send_scratch = scratch;
        self.make_ready();
        let packets = (self.counters.packets_out - before) as usize;
        (packets, most - left - packets)
    }

    /// Sends the packets of the first request. Returns `Waits` if there is none, or if it has not
    /// ended.
    fn transmit_request(
        &mut self,
        left: &mut usize,
        scratch: &mut Scratch,
        is_near: bool,
        outlet: &mut impl PacketOutlet<R>,
    ) -> Step {
        let Some((send, payload)) = self.requests.front_send(&self.qp.requester.queue, scratch) else {
            return Step::Waits;
        };
        let work = send.work();
        if work.row.alone {
            if *left == 0 {
                return Step::Waits;
            }
            *left = left.saturating_sub(1 + work.op.extra_cost() as usize / OPERATION as usize);
            self.change_key(&work);
            return Step::Ended;
        }
        loop {
            if *left == 0 || !outlet.has_room() {
                return Step::Waits;
            }
            *left -= 1;
            match send_segment(
                (self.mrs, self.qp),
                (self.place, self.mac, self.marks),
                &work,
                payload,
                is_near,
                outlet,
            ) {
                Ok(segment) => {
                    self.counters.packets_out += 1;
                    if self.departed(&work, &segment) {
                        return Step::Ended;
                    }
                }
                Err(status) => {
                    self.fail(&work, status);
                    return Step::Ended;
                }
            }
        }
    }
}

/// Sends the next packet of `work`. Returns its segment, or the status with which the request ends.
fn send_segment<'a, R: Region>(
    (mrs, qp): (&Mrs<R>, &Qp),
    (place, mac, marks): (QpRef, Mac, Marks),
    work: &Work<'a>,
    payload: Payload<'_>,
    is_near: bool,
    outlet: &mut impl PacketOutlet<R>,
) -> Result<Segment<'a>, WcStatus> {
    let row = work.row;
    if !row.is_of(QpType::Uc) {
        return Err(work.error.unwrap_or(WcStatus::LocQpOp));
    }
    let segment = next_segment(mrs, qp, work, payload, qp.path_mtu.bytes())?;
    let (from, length) = (segment.offset as usize, segment.length as usize);
    let pieces = match payload {
        Payload::Inline(data) => data.get(from..from + length).map(Pieces::bytes),
        Payload::Sges(sges) => {
            let elements = Elements { mrs, pd: qp.pd, rights: row.local };
            Pieces::memory(Span::list(elements, sges, segment.offset), segment.length)
        }
    };
    let packet = packet(&qp.path(mac, marks), qp, &segment);
    // The payload is copied. The request ends as soon as everything is sent, and its memory may
    // then be used again.
    let part = is_near.then_some(InterWorkerPart { psns: 1, path_mtu: qp.path_mtu, may_pin: false });
    match pieces {
        Some(pieces) if outlet.pass(place.id(), &packet, part, &pieces).is_ok() => Ok(segment),
        _ => Err(WcStatus::LocProt),
    }
}

/// Returns the packet of a segment. It has several PSNs if the segment is not cut by the path MTU.
pub(super) fn packet(path: &Path, qp: &Qp, segment: &Segment<'_>) -> Packet {
    let solicited = segment.solicited && segment.last && segment.op.takes_receive();
    let bth = Bth { solicited, ..base_header(qp, segment.psn) };
    Packet { path: *path, bth, body: body(segment) }
}

/// Returns the headers of a segment of a SEND or WRITE.
fn body(segment: &Segment<'_>) -> Body {
    fn part<F>(segment: &Segment<'_>, head: F, imm: Option<Imm>) -> Part<F, UcTail> {
        let tail = imm.map_or(WriteTail::Plain, WriteTail::Imm);
        match (segment.first, segment.last) {
            (true, true) => Part::Only(head, tail),
            (true, false) => Part::First(head),
            (false, false) => Part::Middle,
            (false, true) => Part::Last(tail),
        }
    }
    Body::Uc(match *segment.op {
        SendOp::Write { remote: Remote { addr: va, rkey }, imm } => {
            Uc::Write(part(segment, Reth { va, rkey, length: segment.message }, imm))
        }
        SendOp::Send { imm } => Uc::Send(part(segment, (), imm)),
        _ => unreachable!("refused before: its row says that it is not for unreliable connections"),
    })
}

/// The meaning of a request packet, in the terms of a segment.
struct UcRequest {
    op: SendOp,
    first: bool,
    last: bool,
    /// Length of the whole message, if it is a WRITE.
    length: Option<u32>,
}

/// Converts a request packet. A packet of a WRITE that is not its first continues `write`.
fn decode(body: &Uc, write: &mut Reth) -> UcRequest {
    fn split<F: Copy>(part: &Part<F, UcTail>) -> (Option<F>, bool, Option<Imm>) {
        let imm = |tail: &UcTail| match *tail {
            WriteTail::Plain => None,
            WriteTail::Imm(imm) => Some(imm),
        };
        match part {
            Part::First(head) => (Some(*head), false, None),
            Part::Middle => (None, false, None),
            Part::Last(tail) => (None, true, imm(tail)),
            Part::Only(head, tail) => (Some(*head), true, imm(tail)),
        }
    }
    match body {
        Uc::Send(part) => {
            let (head, last, imm) = split(part);
            UcRequest { op: SendOp::Send { imm }, first: head.is_some(), last, length: None }
        }
        Uc::Write(part) => {
            let (head, last, imm) = split(part);
            *write = head.unwrap_or(*write);
            let remote = Remote { addr: write.va, rkey: write.rkey };
            let op = SendOp::Write { remote, imm };
            UcRequest { op, first: head.is_some(), last, length: Some(write.length) }
        }
    }
}
