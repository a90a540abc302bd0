//! Conversion between operations of reliable connections and packets. No other module knows both.
//!
//! Packets of messages within the engine, which a mirror shows, are made here too.

use crate::base::inter_worker::InterWorkerPayload;
use crate::objects::qp::Qp;
use crate::verbs::attr::QpType;
use crate::verbs::op::{Atomic, FlushScope, Placement, Remote, SendOp};
use crate::verbs::work::Work;
use vrdma_wire::num::{AethMsn, Imm, Pkey, Psn};
use vrdma_wire::roce::{
    Aeth, AtomicEth, Body, Bth, Credits, Feth, Packet, Part, Path, Rc, ReadPart, Reth, SendTail, Syndrome,
    Uc, WriteTail, Xrc,
};

/// The part of a request that its next packet carries. For a READ, the part that it asks for.
pub(crate) struct RequestSlice {
    pub(crate) first: bool,
    pub(crate) last: bool,
    /// Offset of the first byte.
    pub(crate) offset: u32,
    /// Number of bytes in the packet. For a READ, the number that it asks for.
    pub(crate) length: u32,
    /// PSNs that the packet stands for.
    pub(crate) psns: u32,
}

/// Bytes of a frame beside its payload, as they count for a rate.
///
/// They are those of a packet in the middle of a message over IPv4: its headers, its ICRC, and what
/// Ethernet adds. Other packets have up to 60 more.
pub(crate) const OVERHEAD: u64 = 14 + 20 + 8 + 12 + 4 + 24;

/// Bits of a FETH: the placement type, and the shift of the selectivity level.
const PLACEMENT: u8 = 0xf;
const SELECTIVITY: u32 = 4;

fn reth(remote: Remote, offset: u32, length: u32) -> Reth {
    // An address that wraps is for the responder to refuse.
    Reth { va: remote.addr.wrapping_add(offset.into()), rkey: remote.rkey, length }
}

/// Returns the headers of a packet of `work`.
pub(crate) fn body(work: &Work<'_>, slice: &RequestSlice) -> Rc {
    fn part<F, L>(slice: &RequestSlice, head: F, tail: L) -> Part<F, L> {
        match (slice.first, slice.last) {
            (true, true) => Part::Only(head, tail),
            (true, false) => Part::First(head),
            (false, false) => Part::Middle,
            (false, true) => Part::Last(tail),
        }
    }
    match *work.op {
        SendOp::Send { imm } => Rc::Send(part(slice, (), imm.map_or(SendTail::Plain, SendTail::Imm))),
        SendOp::SendInvalidate { key } => Rc::Send(part(slice, (), SendTail::Invalidate(key))),
        SendOp::Write { remote, imm } => {
            let tail = imm.map_or(WriteTail::Plain, WriteTail::Imm);
            Rc::Write(part(slice, reth(remote, 0, work.length), tail))
        }
        SendOp::Read { remote } => Rc::ReadRequest(reth(remote, slice.offset, slice.length)),
        SendOp::Atomic { addr: va, rkey, op } => {
            let (kind, swap_or_add, compare) = op.in_packet();
            Rc::Atomic(kind, AtomicEth { va, rkey, swap_or_add, compare })
        }
        SendOp::AtomicWrite { remote } => Rc::AtomicWrite(reth(remote, 0, work.length)),
        SendOp::Flush { remote, scope: FlushScope { placement, whole, length } } => {
            let (global, persistent) = (placement != Placement::Persistent, placement != Placement::Global);
            Rc::Flush(Feth::new(global, persistent, whole), reth(remote, 0, length))
        }
        SendOp::BindMw(_) | SendOp::LocalInvalidate { .. } | SendOp::RegMr { .. } => {
            unreachable!("no packet is sent of it")
        }
    }
}

/// Whether the last packet of a request asks for an acknowledge. Other requests have a response.
pub(crate) fn asks_for_ack(work: &Work<'_>) -> bool {
    !work.row.has_response()
}

/// Returns the base transport header of a packet to the peer of a connected QP (IBTA 9.2).
///
/// It neither asks for an acknowledge nor is solicited.
pub(crate) fn base_header(qp: &Qp, psn: Psn) -> Bth {
    Bth {
        solicited: false,
        mig: true,
        pkey: Pkey::DEFAULT,
        fecn: false,
        becn: false,
        dest: qp.dest_qpn,
        ack_req: false,
        psn,
    }
}

/// Returns a packet of `work`.
pub(crate) fn request_packet(
    path: &Path,
    qp: &Qp,
    psn: Psn,
    work: &Work<'_>,
    slice: &RequestSlice,
    ack_req: bool,
) -> Packet {
    let solicited = work.flags.solicited() && slice.last && work.op.takes_receive();
    let bth = Bth { solicited, ack_req, ..base_header(qp, psn) };
    let body = body(work, slice);
    let body = match work.srqn {
        Some(_) => Body::Xrc(Xrc::new(body, work.srqn).expect("a request names a queue")),
        None => Body::Rc(body),
    };
    Packet { path: *path, bth, body }
}

/// Returns a packet that answers a request.
pub(crate) fn response_packet(path: &Path, qp: &Qp, psn: Psn, body: Rc) -> Packet {
    let body = match qp.service() {
        QpType::XrcRecv => Body::Xrc(Xrc::new(body, None).expect("an answer names no queue")),
        _ => Body::Rc(body),
    };
    Packet { path: *path, bth: base_header(qp, psn), body }
}

/// Returns an acknowledge without end-to-end credits.
///
/// RNR NAKs say all that is needed, and rdma_rxe does the same. Real credits would make senders
/// that honour them wait for unsolicited acknowledges whenever a receive is posted.
pub(crate) fn acknowledge(msn: AethMsn) -> Aeth {
    Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn }
}

/// Returns the position of a packet in the response to a READ.
pub(crate) fn read_part(first: bool, last: bool, aeth: Aeth) -> ReadPart {
    match (first, last) {
        (true, true) => ReadPart::Only(aeth),
        (true, false) => ReadPart::First(aeth),
        (false, false) => ReadPart::Middle,
        (false, true) => ReadPart::Last(aeth),
    }
}

/// Returns the body of one packet of several that stand for a packet of this body.
///
/// It is the first or the last of them, both, or none.
pub(crate) fn cut_body(whole: &Body, first: bool, last: bool) -> Body {
    match whole {
        Body::Rc(rc) => Body::Rc(cut_rc(rc, first, last)),
        Body::Xrc(xrc) => {
            let rc = cut_rc(xrc.rc(), first, last);
            Body::Xrc(Xrc::new(rc, xrc.srqn()).expect("it is a request as the whole is, or an answer"))
        }
        Body::Uc(Uc::Send(part)) => Body::Uc(Uc::Send(cut(part, first, last))),
        Body::Uc(Uc::Write(part)) => Body::Uc(Uc::Write(cut(part, first, last))),
        Body::Ud { .. } | Body::Cnp => *whole,
    }
}

fn cut_rc(whole: &Rc, first: bool, last: bool) -> Rc {
    match whole {
        Rc::Send(part) => Rc::Send(cut(part, first, last)),
        Rc::Write(part) => Rc::Write(cut(part, first, last)),
        Rc::ReadResponse(part) => {
            let (begins, ends, aeth) = match *part {
                ReadPart::Only(aeth) => (true, true, aeth),
                ReadPart::First(aeth) => (true, false, aeth),
                ReadPart::Last(aeth) => (false, true, aeth),
                ReadPart::Middle => return *whole,
            };
            Rc::ReadResponse(read_part(begins && first, ends && last, aeth))
        }
        _ => *whole,
    }
}

fn cut<F: Copy, L: Copy>(whole: &Part<F, L>, first: bool, last: bool) -> Part<F, L> {
    match (whole.head().filter(|_| first), whole.tail().filter(|_| last)) {
        (Some(head), Some(tail)) => Part::Only(*head, *tail),
        (Some(head), None) => Part::First(*head),
        (None, None) => Part::Middle,
        (None, Some(tail)) => Part::Last(*tail),
    }
}

/// The meaning of a response packet.
pub(crate) enum Response<'a, R> {
    /// An acknowledge of requests, or a NAK.
    Ack(Aeth),
    /// Data of one request. All packets except the middle ones have an AETH.
    Data(Option<Aeth>, ResponseData<'a, R>),
}

/// Data of a response.
pub(crate) enum ResponseData<'a, R> {
    /// A part of the data of a READ, with its number of PSNs.
    ///
    /// `last` is set if the packet says that there is no more.
    Read { last: bool, psns: u32, data: InterWorkerPayload<'a, R> },
    /// The value that an atomic found.
    Atomic(u64),
}

impl<R> Clone for Response<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Response<'_, R> {}

impl<R> Clone for ResponseData<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for ResponseData<'_, R> {}

impl<'a, R> Response<'a, R> {
    /// Converts a response packet. Returns `None` for a request.
    pub(crate) fn of(body: &Rc, psns: u32, data: InterWorkerPayload<'a, R>) -> Option<Response<'a, R>> {
        Some(match *body {
            Rc::Ack(aeth) => Response::Ack(aeth),
            Rc::ReadResponse(part) => {
                let (aeth, last) = match part {
                    ReadPart::First(aeth) => (Some(aeth), false),
                    ReadPart::Middle => (None, false),
                    ReadPart::Last(aeth) | ReadPart::Only(aeth) => (Some(aeth), true),
                };
                Response::Data(aeth, ResponseData::Read { last, psns, data })
            }
            Rc::AtomicAck(aeth, before) => Response::Data(Some(aeth), ResponseData::Atomic(before)),
            _ => return None,
        })
    }
}

/// The meaning of a request packet, in the terms of a segment.
pub(crate) struct RcRequest {
    pub(crate) op: SendOp,
    pub(crate) first: bool,
    pub(crate) last: bool,
    /// Memory of its WRITE, READ or atomic, with the length of the whole message.
    pub(crate) reth: Option<Reth>,
}

/// Converts a request packet.
///
/// A packet of a WRITE that is not its first continues `write`. Returns `None` for an operation
/// that the engine does not support.
pub(crate) fn decode(body: &Rc, write: &Reth) -> Option<RcRequest> {
    fn place<F, L>(part: &Part<F, L>) -> (bool, bool) {
        (matches!(part, Part::First(_) | Part::Only(..)), matches!(part, Part::Last(_) | Part::Only(..)))
    }
    let at = |reth: &Reth| Remote { addr: reth.va, rkey: reth.rkey };
    let only = |op, reth| RcRequest { op, first: true, last: true, reth: Some(reth) };
    Some(match body {
        Rc::Send(part) => {
            let (first, last) = place(part);
            let op = match part {
                Part::Last(SendTail::Imm(imm)) | Part::Only((), SendTail::Imm(imm)) => {
                    SendOp::Send { imm: Some(*imm) }
                }
                Part::Last(SendTail::Invalidate(key)) | Part::Only((), SendTail::Invalidate(key)) => {
                    SendOp::SendInvalidate { key: *key }
                }
                _ => SendOp::Send { imm: None },
            };
            RcRequest { op, first, last, reth: None }
        }
        Rc::Write(part) => {
            let (first, last) = place(part);
            let imm_of = |tail: &WriteTail| -> Option<Imm> {
                match tail {
                    WriteTail::Plain => None,
                    WriteTail::Imm(imm) => Some(*imm),
                }
            };
            let (reth, imm) = match part {
                Part::First(reth) => (*reth, None),
                Part::Middle => (*write, None),
                Part::Last(tail) => (*write, imm_of(tail)),
                Part::Only(reth, tail) => (*reth, imm_of(tail)),
            };
            RcRequest { op: SendOp::Write { remote: at(&reth), imm }, first, last, reth: Some(reth) }
        }
        Rc::ReadRequest(reth) => only(SendOp::Read { remote: at(reth) }, *reth),
        Rc::Atomic(kind, AtomicEth { va, rkey, swap_or_add, compare }) => {
            let reth = Reth { va: *va, rkey: *rkey, length: 8 };
            let op = Atomic::of_packet(*kind, *swap_or_add, *compare);
            only(SendOp::atomic(at(&reth), op), reth)
        }
        Rc::AtomicWrite(reth) => only(SendOp::AtomicWrite { remote: at(reth) }, *reth),
        Rc::Flush(feth, reth) => {
            let (placement, whole) = (feth.bits() & PLACEMENT, feth.bits() >> SELECTIVITY);
            let placement = Placement::from_bits(placement.into())?;
            let whole = [false, true].get(usize::from(whole)).copied()?;
            let scope = FlushScope { placement, whole, length: reth.length };
            // The message itself has no payload.
            RcRequest { op: SendOp::Flush { remote: at(reth), scope }, first: true, last: true, reth: None }
        }
        _ => return None,
    })
}
