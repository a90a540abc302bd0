//! Unreliable connections on packets.

use crate::completion::{Sink, WcStatus};
use crate::device::Device;
use crate::engine::wire::Nowhere;
use crate::engine::{Engine, Step, TURN_PACKETS};
use crate::look::Fate;
use crate::memory::{Access, Region};
use crate::message::arrival::{Failure, Receiver, failure, landing};
use crate::message::segment::{Cut, Segment};
use crate::message::stretch::next_segment;
use crate::message::transfer::{Elements, Side, Span, scatter};
use crate::message::verdict::Reason;
use crate::outlet::{Outlet, Pieces};
use crate::qp::{Qp, Way};
use crate::rc::local::Carried;
use crate::request::Work;
use crate::schedule::Place;
use crate::time::Instant;
use crate::uc::responder::accept;
use crate::work::{Payload, Remote, SendOp};
use core::mem;
use vrdma_wire::num::{Imm, Pkey};
use vrdma_wire::roce::{Body, Bth, Packet, Parsed, Part, Reth, Uc, UcTail, WriteTail};

impl<R: Region> Engine<R> {
    /// A packet of this service came for the QP at `place`, which exists.
    pub(crate) fn receive_uc(
        &mut self,
        _now: Instant,
        place: Place,
        parsed: &Parsed<'_>,
        looked: bool,
        sink: &mut impl Sink,
    ) -> Fate {
        let (packet, payload) = (&parsed.packet, parsed.payload);
        let Body::Uc(body) = &packet.body else { return Fate::Done };
        let Some(Device { qps, counters, .. }) = self.devices.get_mut(place.device) else {
            return Fate::Done;
        };
        let Some(qp) = qps.get_mut(place.qpn.number()) else { return Fate::Done };
        if !qp.is_path_of_peer(&packet.path) {
            counters.drop_source += 1;
            return Fate::Done;
        }
        if qp.way != Way::Wire {
            counters.drop_not_connected += 1;
            return Fate::Done;
        }
        if !qp.is_receiving() {
            counters.drop_state += 1;
            return Fate::Done;
        }
        let Request { op, first, last, length } = understand(body, &mut qp.uc_write);
        let received = payload.len() as u32;
        let offset = if first { 0 } else { qp.responder.received };
        let segment = Segment {
            op: &op,
            solicited: packet.bth.solicited,
            first,
            last,
            psn: packet.bth.psn,
            packets: 1,
            offset,
            length: received,
            message: length.unwrap_or(offset.saturating_add(received)),
            cut: Cut::Packet,
        };
        self.resync(place, &segment);
        match self.land(place, &segment, payload) {
            Ok(Ok(())) => {
                let from = self.devices.qp_mut(place).map(|qp| qp.dest_qpn).unwrap_or_default();
                self.arrived(place, from, &segment, sink);
            }
            Ok(Err(Failure::Remote(refusal))) => self.landing_failed(place, refusal, sink),
            // The bytes of a packet can always be read.
            Ok(Err(Failure::Local)) => {}
            Err(Reason::NoReceive) if !looked => return Fate::Look,
            Err(reason) => self.drop_message(place, reason, segment.psn.add(1)),
        }
        Fate::Done
    }

    /// Puts a segment where it belongs.
    fn land(
        &mut self,
        place: Place,
        segment: &Segment<'_>,
        payload: &[u8],
    ) -> Result<Result<(), Failure>, Reason> {
        let (device, qp) = self.devices.with_qp(place).ok_or(Reason::NoQp)?;
        let target = accept(device, qp, segment)?;
        let receiver = Receiver::new(device, qp);
        let Some(there) = landing(&receiver, target, &mut self.far) else { return Ok(Ok(())) };
        Ok(scatter(payload, there).map_err(|trouble| failure(segment, trouble, Side::Source)))
    }

    /// A QP's turn: sends at most `budget` packets, as long as `outlet` has room; how many it sent.
    pub(crate) fn transmit_uc(
        &mut self,
        _now: Instant,
        place: Place,
        budget: usize,
        outlet: &mut impl Outlet<R>,
        sink: &mut impl Sink,
    ) -> usize {
        let Some(qp) = self.devices.qp_mut(place) else { return 0 };
        if qp.sgid.is_zero() {
            // Nothing can be sent from no address: it is lost.
            return self.take_turn_uc(place, budget, &mut Nowhere, sink);
        }
        self.take_turn_uc(place, budget, outlet, sink)
    }

    fn take_turn_uc(
        &mut self,
        place: Place,
        budget: usize,
        outlet: &mut impl Outlet<R>,
        sink: &mut impl Sink,
    ) -> usize {
        let mut scratch = mem::take(&mut self.own);
        let before = self.packets_out(place.device);
        let mut left = budget.min(TURN_PACKETS);
        'turn: while let Some((device, qp)) = self.devices.with_qp(place) {
            if device.suspended || !qp.can_send() || qp.way != Way::Wire {
                break;
            }
            let Some((kept, payload)) = device.requests.front_send(&qp.requester.queue, &mut scratch) else {
                break;
            };
            let work = kept.work();
            loop {
                if left == 0 || !outlet.has_room() {
                    break 'turn;
                }
                left -= 1;
                if self.transmit_segment(place, &work, payload, outlet, sink) == Step::Ended {
                    break;
                }
            }
        }
        self.own = scratch;
        self.make_ready(place);
        (self.packets_out(place.device) - before) as usize
    }

    /// Sends the next packet of the first request, or fails it.
    fn transmit_segment(
        &mut self,
        place: Place,
        work: &Work<'_>,
        payload: Payload<'_>,
        outlet: &mut impl Outlet<R>,
        sink: &mut impl Sink,
    ) -> Step {
        let Some((device, qp)) = self.devices.with_qp(place) else { return Step::Ended };
        let segment = match send_segment(device, qp, work, payload, outlet) {
            Ok(segment) => segment,
            Err(status) => {
                self.fail(place, work, status, sink);
                return Step::Ended;
            }
        };
        let route = Place { device: qp.route(), qpn: qp.dest_qpn };
        if let Some(device) = self.devices.get_mut(place.device) {
            device.counters.packets_out += 1;
        }
        match self.departed(place, route, work, &segment, sink) {
            Carried::Part => Step::More,
            _ => Step::Ended,
        }
    }
}

/// Sends the next packet of `work`: what it was, or how the request ends here.
fn send_segment<'a, R: Region>(
    device: &Device<R>,
    qp: &Qp,
    work: &Work<'a>,
    payload: Payload<'_>,
    outlet: &mut impl Outlet<R>,
) -> Result<Segment<'a>, WcStatus> {
    if !work.op.row().unreliable {
        return Err(work.error.unwrap_or(WcStatus::LocQpOp));
    }
    let segment = next_segment(device, qp, work, payload, qp.path_mtu.bytes())?;
    let (from, length) = (segment.offset as usize, segment.length as usize);
    let pieces = match payload {
        Payload::Inline(data) => data.get(from..from + length).map(Pieces::bytes),
        Payload::Sges(sges) => {
            let elements = Elements { mrs: &device.mrs, pd: qp.pd, rights: Access::NONE };
            Pieces::memory(Span::list(elements, sges, segment.offset), segment.length)
        }
    };
    let raises = work.op.takes_receive();
    let packet = Packet {
        path: qp.path(device.mac),
        bth: Bth {
            solicited: segment.solicited && segment.last && raises,
            mig: true,
            pkey: Pkey::DEFAULT,
            fecn: false,
            becn: false,
            dest: qp.dest_qpn,
            ack_req: false,
            psn: segment.psn,
        },
        body: body(&segment),
    };
    match pieces {
        Some(pieces) if outlet.send(&packet, &pieces).is_ok() => Ok(segment),
        _ => Err(WcStatus::LocProt),
    }
}

/// The headers of a segment of a SEND or WRITE.
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
        // Refused before.
        SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
            Uc::Send(part(segment, (), None))
        }
    })
}

/// What a packet says.
struct Request {
    op: SendOp,
    first: bool,
    last: bool,
    /// Bytes of the whole message, if it is a WRITE.
    length: Option<u32>,
}

/// What a packet says, if it is of a WRITE that did not begin in it, then in the midst of `write`.
fn understand(body: &Uc, write: &mut Reth) -> Request {
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
            Request { op: SendOp::Send { imm }, first: head.is_some(), last, length: None }
        }
        Uc::Write(part) => {
            let (head, last, imm) = split(part);
            *write = head.unwrap_or(*write);
            let remote = Remote { addr: write.va, rkey: write.rkey };
            let op = SendOp::Write { remote, imm };
            Request { op, first: head.is_some(), last, length: Some(write.length) }
        }
    }
}
