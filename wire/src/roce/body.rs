//! What a packet is, and the headers that go with it (IBTA 9.2.1).

use super::part::{Part, ReadPart, SendTail, UcTail, WriteTail};
use crate::Drop;
use crate::ext::{self, Aeth, AtomicEth, Deth, Feth, Reth, len};
use crate::num::{Imm, Rkey, Srqn};
use crate::opcode::Opcode;
use crate::rw::{Reader, Writer};
use zerocopy::big_endian::U32;

/// Longest extended headers: those of an atomic request of XRC.
pub(super) const MAX_LEN: usize = len::XRCETH + len::ATOMIC_ETH;

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Of a reliable connection.
    Rc(Rc),
    /// Of an extended reliable connection.
    Xrc(Xrc),
    /// Of an unreliable connection.
    Uc(Uc),
    /// An unreliable datagram.
    Ud {
        /// Its header.
        deth: Deth,
        /// Its immediate data.
        imm: Option<Imm>,
    },
    /// Congestion notification: slow down.
    Cnp,
}

/// A packet of a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rc {
    /// SEND
    Send(Part<(), SendTail>),
    /// RDMA WRITE
    Write(Part<Reth, WriteTail>),
    /// RDMA READ
    ReadRequest(Reth),
    /// What a READ asked for. As an Only without payload also the answer to FLUSH and ATOMIC WRITE.
    ReadResponse(ReadPart),
    /// Acknowledge
    Ack(Aeth),
    /// Acknowledge of an atomic, with the value before it
    AtomicAck(Aeth, u64),
    /// Compare and swap
    CompareSwap(AtomicEth),
    /// Fetch and add
    FetchAdd(AtomicEth),
    /// ATOMIC WRITE: its payload, 8 bytes, at once
    AtomicWrite(Reth),
    /// FLUSH
    Flush(Feth, Reth),
}

/// A packet of an extended reliable connection (annex A14): one of a reliable connection, which names a shared receive queue if it is a
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xrc {
    rc: Rc,
    /// Of requests, and of no others.
    srqn: Option<Srqn>,
}

/// A packet of an unreliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uc {
    /// SEND
    Send(Part<(), UcTail>),
    /// RDMA WRITE
    Write(Part<Reth, WriteTail>),
}

/// A notification is BTH and 16 reserved bytes (annex A17).
const CNP_RESERVED: [u8; 16] = [0; 16];

fn parse_imm(reader: &mut Reader<'_>) -> Result<Imm, Drop> {
    Ok(Imm::from_bytes(*reader.take::<[u8; 4]>()?))
}

fn parse_ieth(reader: &mut Reader<'_>) -> Result<Rkey, Drop> {
    Ok(Rkey(reader.take::<U32>()?.get()))
}

impl Body {
    /// Takes the extended headers of the opcode with that number.
    #[inline]
    pub(super) fn parse(number: u8, r: &mut Reader<'_>) -> Result<Body, Drop> {
        if let Some(opcode) = Opcode::of_xrc(number) {
            return Xrc::parse(opcode, r).map(Body::Xrc);
        }
        Body::parse_headers(Opcode::from_number(number).ok_or(Drop::UnknownOpcode)?, r)
    }

    /// The number of its opcode.
    #[inline]
    pub(super) fn number(&self) -> u8 {
        match self {
            Body::Xrc(Xrc { rc, .. }) => Body::Rc(*rc).opcode().xrc_number(),
            body => body.opcode() as u8,
        }
    }

    #[inline]
    fn parse_headers(opcode: Opcode, r: &mut Reader<'_>) -> Result<Body, Drop> {
        use Opcode as O;
        use Part::{First, Last, Middle, Only};
        Ok(match opcode {
            O::RcSendFirst => Body::Rc(Rc::Send(First(()))),
            O::RcSendMiddle => Body::Rc(Rc::Send(Middle)),
            O::RcSendLast => Body::Rc(Rc::Send(Last(SendTail::Plain))),
            O::RcSendLastImm => Body::Rc(Rc::Send(Last(SendTail::Imm(parse_imm(r)?)))),
            O::RcSendLastInvalidate => Body::Rc(Rc::Send(Last(SendTail::Invalidate(parse_ieth(r)?)))),
            O::RcSendOnly => Body::Rc(Rc::Send(Only((), SendTail::Plain))),
            O::RcSendOnlyImm => Body::Rc(Rc::Send(Only((), SendTail::Imm(parse_imm(r)?)))),
            O::RcSendOnlyInvalidate => Body::Rc(Rc::Send(Only((), SendTail::Invalidate(parse_ieth(r)?)))),
            O::RcWriteFirst => Body::Rc(Rc::Write(First(Reth::parse(r)?))),
            O::RcWriteMiddle => Body::Rc(Rc::Write(Middle)),
            O::RcWriteLast => Body::Rc(Rc::Write(Last(WriteTail::Plain))),
            O::RcWriteLastImm => Body::Rc(Rc::Write(Last(WriteTail::Imm(parse_imm(r)?)))),
            O::RcWriteOnly => Body::Rc(Rc::Write(Only(Reth::parse(r)?, WriteTail::Plain))),
            O::RcWriteOnlyImm => Body::Rc(Rc::Write(Only(Reth::parse(r)?, WriteTail::Imm(parse_imm(r)?)))),
            O::RcReadRequest => Body::Rc(Rc::ReadRequest(Reth::parse(r)?)),
            O::RcReadResponseFirst => Body::Rc(Rc::ReadResponse(ReadPart::First(Aeth::parse(r)?))),
            O::RcReadResponseMiddle => Body::Rc(Rc::ReadResponse(ReadPart::Middle)),
            O::RcReadResponseLast => Body::Rc(Rc::ReadResponse(ReadPart::Last(Aeth::parse(r)?))),
            O::RcReadResponseOnly => Body::Rc(Rc::ReadResponse(ReadPart::Only(Aeth::parse(r)?))),
            O::RcAck => Body::Rc(Rc::Ack(Aeth::parse(r)?)),
            O::RcAtomicAck => Body::Rc(Rc::AtomicAck(Aeth::parse(r)?, ext::parse_atomic_ack(r)?)),
            O::RcCompareSwap => Body::Rc(Rc::CompareSwap(AtomicEth::parse(r)?)),
            O::RcFetchAdd => Body::Rc(Rc::FetchAdd(AtomicEth::parse(r)?)),
            O::RcFlush => Body::Rc(Rc::Flush(Feth::parse(r)?, Reth::parse(r)?)),
            O::RcAtomicWrite => Body::Rc(Rc::AtomicWrite(Reth::parse(r)?)),
            O::UcSendFirst => Body::Uc(Uc::Send(First(()))),
            O::UcSendMiddle => Body::Uc(Uc::Send(Middle)),
            O::UcSendLast => Body::Uc(Uc::Send(Last(UcTail::Plain))),
            O::UcSendLastImm => Body::Uc(Uc::Send(Last(UcTail::Imm(parse_imm(r)?)))),
            O::UcSendOnly => Body::Uc(Uc::Send(Only((), UcTail::Plain))),
            O::UcSendOnlyImm => Body::Uc(Uc::Send(Only((), UcTail::Imm(parse_imm(r)?)))),
            O::UcWriteFirst => Body::Uc(Uc::Write(First(Reth::parse(r)?))),
            O::UcWriteMiddle => Body::Uc(Uc::Write(Middle)),
            O::UcWriteLast => Body::Uc(Uc::Write(Last(WriteTail::Plain))),
            O::UcWriteLastImm => Body::Uc(Uc::Write(Last(WriteTail::Imm(parse_imm(r)?)))),
            O::UcWriteOnly => Body::Uc(Uc::Write(Only(Reth::parse(r)?, WriteTail::Plain))),
            O::UcWriteOnlyImm => Body::Uc(Uc::Write(Only(Reth::parse(r)?, WriteTail::Imm(parse_imm(r)?)))),
            O::UdSendOnly => Body::Ud { deth: Deth::parse(r)?, imm: None },
            O::UdSendOnlyImm => Body::Ud { deth: Deth::parse(r)?, imm: Some(parse_imm(r)?) },
            O::Cnp => {
                r.take::<[u8; CNP_RESERVED.len()]>()?;
                Body::Cnp
            }
        })
    }

    /// Its opcode; of XRC, that of RC with the same operation.
    #[inline]
    fn opcode(&self) -> Opcode {
        use Opcode as O;
        use Part::{First, Last, Middle, Only};
        match self {
            Body::Rc(Rc::Send(First(()))) => O::RcSendFirst,
            Body::Rc(Rc::Send(Middle)) => O::RcSendMiddle,
            Body::Rc(Rc::Send(Last(SendTail::Plain))) => O::RcSendLast,
            Body::Rc(Rc::Send(Last(SendTail::Imm(_)))) => O::RcSendLastImm,
            Body::Rc(Rc::Send(Last(SendTail::Invalidate(_)))) => O::RcSendLastInvalidate,
            Body::Rc(Rc::Send(Only((), SendTail::Plain))) => O::RcSendOnly,
            Body::Rc(Rc::Send(Only((), SendTail::Imm(_)))) => O::RcSendOnlyImm,
            Body::Rc(Rc::Send(Only((), SendTail::Invalidate(_)))) => O::RcSendOnlyInvalidate,
            Body::Rc(Rc::Write(First(_))) => O::RcWriteFirst,
            Body::Rc(Rc::Write(Middle)) => O::RcWriteMiddle,
            Body::Rc(Rc::Write(Last(WriteTail::Plain))) => O::RcWriteLast,
            Body::Rc(Rc::Write(Last(WriteTail::Imm(_)))) => O::RcWriteLastImm,
            Body::Rc(Rc::Write(Only(_, WriteTail::Plain))) => O::RcWriteOnly,
            Body::Rc(Rc::Write(Only(_, WriteTail::Imm(_)))) => O::RcWriteOnlyImm,
            Body::Rc(Rc::ReadRequest(_)) => O::RcReadRequest,
            Body::Rc(Rc::ReadResponse(ReadPart::First(_))) => O::RcReadResponseFirst,
            Body::Rc(Rc::ReadResponse(ReadPart::Middle)) => O::RcReadResponseMiddle,
            Body::Rc(Rc::ReadResponse(ReadPart::Last(_))) => O::RcReadResponseLast,
            Body::Rc(Rc::ReadResponse(ReadPart::Only(_))) => O::RcReadResponseOnly,
            Body::Rc(Rc::Ack(_)) => O::RcAck,
            Body::Rc(Rc::AtomicAck(..)) => O::RcAtomicAck,
            Body::Rc(Rc::CompareSwap(_)) => O::RcCompareSwap,
            Body::Rc(Rc::FetchAdd(_)) => O::RcFetchAdd,
            Body::Rc(Rc::AtomicWrite(_)) => O::RcAtomicWrite,
            Body::Rc(Rc::Flush(..)) => O::RcFlush,
            Body::Uc(Uc::Send(First(()))) => O::UcSendFirst,
            Body::Uc(Uc::Send(Middle)) => O::UcSendMiddle,
            Body::Uc(Uc::Send(Last(UcTail::Plain))) => O::UcSendLast,
            Body::Uc(Uc::Send(Last(UcTail::Imm(_)))) => O::UcSendLastImm,
            Body::Uc(Uc::Send(Only((), UcTail::Plain))) => O::UcSendOnly,
            Body::Uc(Uc::Send(Only((), UcTail::Imm(_)))) => O::UcSendOnlyImm,
            Body::Uc(Uc::Write(First(_))) => O::UcWriteFirst,
            Body::Uc(Uc::Write(Middle)) => O::UcWriteMiddle,
            Body::Uc(Uc::Write(Last(WriteTail::Plain))) => O::UcWriteLast,
            Body::Uc(Uc::Write(Last(WriteTail::Imm(_)))) => O::UcWriteLastImm,
            Body::Uc(Uc::Write(Only(_, WriteTail::Plain))) => O::UcWriteOnly,
            Body::Uc(Uc::Write(Only(_, WriteTail::Imm(_)))) => O::UcWriteOnlyImm,
            Body::Ud { imm: None, .. } => O::UdSendOnly,
            Body::Ud { imm: Some(_), .. } => O::UdSendOnlyImm,
            Body::Cnp => O::Cnp,
            Body::Xrc(Xrc { rc, .. }) => Body::Rc(*rc).opcode(),
        }
    }

    /// Writes its extended headers.
    #[inline]
    pub(super) fn put(&self, w: &mut Writer<'_>) {
        match self {
            Body::Rc(Rc::Send(part)) => {
                if let Some(tail) = part.tail() {
                    tail.put(w);
                }
            }
            Body::Rc(Rc::Write(part)) | Body::Uc(Uc::Write(part)) => {
                if let Some(reth) = part.head() {
                    reth.put(w);
                }
                if let Some(tail) = part.tail() {
                    tail.put(w);
                }
            }
            Body::Uc(Uc::Send(part)) => {
                if let Some(tail) = part.tail() {
                    tail.put(w);
                }
            }
            Body::Rc(Rc::ReadRequest(reth) | Rc::AtomicWrite(reth)) => reth.put(w),
            Body::Rc(Rc::ReadResponse(part)) => {
                if let ReadPart::First(aeth) | ReadPart::Last(aeth) | ReadPart::Only(aeth) = part {
                    aeth.put(w);
                }
            }
            Body::Rc(Rc::Ack(aeth)) => aeth.put(w),
            Body::Rc(Rc::AtomicAck(aeth, original)) => {
                aeth.put(w);
                ext::put_atomic_ack(*original, w);
            }
            Body::Rc(Rc::CompareSwap(atomic) | Rc::FetchAdd(atomic)) => atomic.put(w),
            Body::Rc(Rc::Flush(feth, reth)) => {
                feth.put(w);
                reth.put(w);
            }
            Body::Ud { deth, imm } => {
                deth.put(w);
                if let Some(imm) = imm {
                    w.put(&imm.to_bytes());
                }
            }
            Body::Cnp => w.put(&CNP_RESERVED),
            Body::Xrc(Xrc { rc, srqn }) => {
                if let Some(srqn) = srqn {
                    ext::put_xrceth(*srqn, w);
                }
                Body::Rc(*rc).put(w);
            }
        }
    }

    /// Length of its extended headers.
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Body::Rc(Rc::Send(part)) => part.tail().map_or(0, SendTail::len),
            Body::Uc(Uc::Send(part)) => part.tail().map_or(0, WriteTail::len),
            Body::Rc(Rc::Write(part)) | Body::Uc(Uc::Write(part)) => {
                part.head().map_or(0, |_| len::RETH) + part.tail().map_or(0, WriteTail::len)
            }
            Body::Rc(Rc::ReadRequest(_) | Rc::AtomicWrite(_)) => len::RETH,
            Body::Rc(Rc::ReadResponse(ReadPart::Middle)) => 0,
            Body::Rc(Rc::ReadResponse(_) | Rc::Ack(_)) => len::AETH,
            Body::Rc(Rc::AtomicAck(..)) => len::AETH + len::ATOMIC_ACK,
            Body::Rc(Rc::CompareSwap(_) | Rc::FetchAdd(_)) => len::ATOMIC_ETH,
            Body::Rc(Rc::Flush(..)) => len::FETH + len::RETH,
            Body::Ud { imm, .. } => len::DETH + imm.map_or(0, |_| len::IMM),
            Body::Cnp => CNP_RESERVED.len(),
            Body::Xrc(Xrc { rc, srqn }) => srqn.map_or(0, |_| len::XRCETH) + Body::Rc(*rc).len(),
        }
    }

    /// Whether a packet of this kind may have a payload of that length, whatever the path MTU (IBTA 9.2.1, annex A19 for ATOMIC WRITE).
    #[inline]
    pub(super) fn may_carry(&self, payload: usize) -> bool {
        match self {
            Body::Rc(Rc::Send(_) | Rc::Write(_) | Rc::ReadResponse(_)) | Body::Uc(_) | Body::Ud { .. } => {
                true
            }
            Body::Rc(Rc::AtomicWrite(_)) => payload == 8,
            Body::Rc(
                Rc::ReadRequest(_)
                | Rc::Ack(_)
                | Rc::AtomicAck(..)
                | Rc::CompareSwap(_)
                | Rc::FetchAdd(_)
                | Rc::Flush(..),
            )
            | Body::Cnp => payload == 0,
            Body::Xrc(Xrc { rc, .. }) => Body::Rc(*rc).may_carry(payload),
        }
    }
}

impl Rc {
    /// Whether it goes from the requester to the responder.
    pub fn is_request(&self) -> bool {
        !matches!(self, Rc::Ack(_) | Rc::AtomicAck(..) | Rc::ReadResponse(_))
    }
}

impl Xrc {
    /// A packet of XRC; `None` if a request names no shared receive queue, or something else names one.
    #[inline]
    pub fn new(rc: Rc, srqn: Option<Srqn>) -> Option<Xrc> {
        (rc.is_request() == srqn.is_some()).then_some(Xrc { rc, srqn })
    }

    /// What it is.
    #[inline]
    pub fn rc(&self) -> &Rc {
        &self.rc
    }

    /// The shared receive queue that it names, if it is a request.
    #[inline]
    pub fn srqn(&self) -> Option<Srqn> {
        self.srqn
    }

    /// Takes the headers of a packet with the operation of that opcode of RC. The XRCETH of a request is the first of them.
    fn parse(opcode: Opcode, r: &mut Reader<'_>) -> Result<Xrc, Drop> {
        let srqn = if opcode.is_response() { None } else { Some(ext::parse_xrceth(r)?) };
        match Body::parse_headers(opcode, r)? {
            Body::Rc(rc) => Ok(Xrc { rc, srqn }),
            _ => unreachable!("an operation of RC"),
        }
    }
}
