//! Kinds of packets, with their extended headers (IBTA 9.2.1).

use super::part::Part::{self, First, Last, Middle, Only};
use super::part::{ReadPart, SendTail, UcTail, WriteTail};
use crate::DropReason;
use crate::ext::{self, Aeth, AtomicEth, Deth, Feth, Reth, len};
use crate::num::{Imm, Rkey, Srqn};
use crate::opcode::Opcode;
use crate::rw::{Reader, Writer};
use zerocopy::big_endian::U32;

/// Length of the longest extended headers: those of an atomic request of XRC.
pub(super) const MAX_LEN: usize = len::XRCETH + len::ATOMIC_ETH;

/// A packet's kind, with its extended headers.
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
    /// Congestion notification: the receiver should send more slowly.
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
    /// Answer to a READ. Without payload and as an Only, it also answers FLUSH and ATOMIC WRITE.
    ReadResponse(ReadPart),
    /// Acknowledge
    Ack(Aeth),
    /// Acknowledge of an atomic, with the value before the operation
    AtomicAck(Aeth, u64),
    /// Compare and swap
    CompareSwap(AtomicEth),
    /// Fetch and add
    FetchAdd(AtomicEth),
    /// ATOMIC WRITE: stores its payload, 8 bytes, at once
    AtomicWrite(Reth),
    /// FLUSH
    Flush(Feth, Reth),
}

/// A packet of an extended reliable connection (annex A14).
///
/// It is a packet of a reliable connection. If it is a request, it names a shared receive queue
/// too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xrc {
    rc: Rc,
    /// Set for requests, and only for them.
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

/// The bytes of a congestion notification behind the BTH: 16 reserved ones (annex A17).
const CNP_RESERVED: [u8; 16] = [0; 16];

fn parse_imm(reader: &mut Reader<'_>) -> Result<Imm, DropReason> {
    Ok(Imm::from_bytes(*reader.take::<[u8; 4]>()?))
}

fn parse_ieth(reader: &mut Reader<'_>) -> Result<Rkey, DropReason> {
    Ok(Rkey(reader.take::<U32>()?.get()))
}

/// Reads the reserved bytes of a notification.
fn parse_cnp(reader: &mut Reader<'_>) -> Result<(), DropReason> {
    reader.take::<[u8; CNP_RESERVED.len()]>().map(|_| ())
}

/// Generates parser and opcode lookup from one list.
///
/// Each row has an opcode, the extended headers behind the BTH in their order, and the resulting
/// packet.
macro_rules! packets {
    ($($opcode:ident [$($header:ident: $parse:expr),*] => { $($packet:tt)* },)*) => {
        /// Reads the extended headers of an opcode.
        #[inline]
        fn parse_headers(opcode: Opcode, reader: &mut Reader<'_>) -> Result<Body, DropReason> {
            Ok(match opcode {
                $(Opcode::$opcode => {
                    $(let $header = $parse(reader)?;)*
                    Body::$($packet)*
                })*
            })
        }

        /// Returns the opcode of a packet. For XRC, returns RC's opcode with the same operation.
        #[inline]
        #[allow(unused_variables, reason = "a row names headers that its opcode does not depend on")]
        fn opcode_of(body: &Body) -> Opcode {
            match body {
                $(Body::$($packet)* => Opcode::$opcode,)*
                Body::Xrc(xrc) => opcode_of(&Body::Rc(xrc.rc)),
            }
        }
    };
}

packets! {
    RcSendFirst [] => { Rc(Rc::Send(First(()))) },
    RcSendMiddle [] => { Rc(Rc::Send(Middle)) },
    RcSendLast [] => { Rc(Rc::Send(Last(SendTail::Plain))) },
    RcSendLastImm [imm: parse_imm] => { Rc(Rc::Send(Last(SendTail::Imm(imm)))) },
    RcSendLastInvalidate [rkey: parse_ieth] => { Rc(Rc::Send(Last(SendTail::Invalidate(rkey)))) },
    RcSendOnly [] => { Rc(Rc::Send(Only((), SendTail::Plain))) },
    RcSendOnlyImm [imm: parse_imm] => { Rc(Rc::Send(Only((), SendTail::Imm(imm)))) },
    RcSendOnlyInvalidate [rkey: parse_ieth] => {
        Rc(Rc::Send(Only((), SendTail::Invalidate(rkey))))
    },
    RcWriteFirst [reth: Reth::parse] => { Rc(Rc::Write(First(reth))) },
    RcWriteMiddle [] => { Rc(Rc::Write(Middle)) },
    RcWriteLast [] => { Rc(Rc::Write(Last(WriteTail::Plain))) },
    RcWriteLastImm [imm: parse_imm] => { Rc(Rc::Write(Last(WriteTail::Imm(imm)))) },
    RcWriteOnly [reth: Reth::parse] => { Rc(Rc::Write(Only(reth, WriteTail::Plain))) },
    RcWriteOnlyImm [reth: Reth::parse, imm: parse_imm] => {
        Rc(Rc::Write(Only(reth, WriteTail::Imm(imm))))
    },
    RcReadRequest [reth: Reth::parse] => { Rc(Rc::ReadRequest(reth)) },
    RcReadResponseFirst [aeth: Aeth::parse] => { Rc(Rc::ReadResponse(ReadPart::First(aeth))) },
    RcReadResponseMiddle [] => { Rc(Rc::ReadResponse(ReadPart::Middle)) },
    RcReadResponseLast [aeth: Aeth::parse] => { Rc(Rc::ReadResponse(ReadPart::Last(aeth))) },
    RcReadResponseOnly [aeth: Aeth::parse] => { Rc(Rc::ReadResponse(ReadPart::Only(aeth))) },
    RcAck [aeth: Aeth::parse] => { Rc(Rc::Ack(aeth)) },
    RcAtomicAck [aeth: Aeth::parse, original: ext::parse_atomic_ack] => {
        Rc(Rc::AtomicAck(aeth, original))
    },
    RcCompareSwap [atomic: AtomicEth::parse] => { Rc(Rc::CompareSwap(atomic)) },
    RcFetchAdd [atomic: AtomicEth::parse] => { Rc(Rc::FetchAdd(atomic)) },
    RcFlush [feth: Feth::parse, reth: Reth::parse] => { Rc(Rc::Flush(feth, reth)) },
    RcAtomicWrite [reth: Reth::parse] => { Rc(Rc::AtomicWrite(reth)) },
    UcSendFirst [] => { Uc(Uc::Send(First(()))) },
    UcSendMiddle [] => { Uc(Uc::Send(Middle)) },
    UcSendLast [] => { Uc(Uc::Send(Last(UcTail::Plain))) },
    UcSendLastImm [imm: parse_imm] => { Uc(Uc::Send(Last(UcTail::Imm(imm)))) },
    UcSendOnly [] => { Uc(Uc::Send(Only((), UcTail::Plain))) },
    UcSendOnlyImm [imm: parse_imm] => { Uc(Uc::Send(Only((), UcTail::Imm(imm)))) },
    UcWriteFirst [reth: Reth::parse] => { Uc(Uc::Write(First(reth))) },
    UcWriteMiddle [] => { Uc(Uc::Write(Middle)) },
    UcWriteLast [] => { Uc(Uc::Write(Last(WriteTail::Plain))) },
    UcWriteLastImm [imm: parse_imm] => { Uc(Uc::Write(Last(WriteTail::Imm(imm)))) },
    UcWriteOnly [reth: Reth::parse] => { Uc(Uc::Write(Only(reth, WriteTail::Plain))) },
    UcWriteOnlyImm [reth: Reth::parse, imm: parse_imm] => {
        Uc(Uc::Write(Only(reth, WriteTail::Imm(imm))))
    },
    UdSendOnly [deth: Deth::parse] => { Ud { deth, imm: None } },
    UdSendOnlyImm [deth: Deth::parse, imm: parse_imm] => { Ud { deth, imm: Some(imm) } },
    Cnp [_reserved: parse_cnp] => { Cnp },
}

impl Body {
    /// Reads the extended headers of the opcode with this number.
    #[inline]
    pub(super) fn parse(number: u8, r: &mut Reader<'_>) -> Result<Body, DropReason> {
        if let Some(opcode) = Opcode::of_xrc(number) {
            return Xrc::parse(opcode, r).map(Body::Xrc);
        }
        parse_headers(Opcode::from_number(number).ok_or(DropReason::UnknownOpcode)?, r)
    }

    /// Returns the number of its opcode.
    #[inline]
    pub(super) fn number(&self) -> u8 {
        match self {
            Body::Xrc(Xrc { rc, .. }) => opcode_of(&Body::Rc(*rc)).xrc_number(),
            body => opcode_of(body) as u8,
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

    /// Returns the length of its extended headers.
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

    /// Returns whether a packet of this kind may have a payload of this length, with any path MTU.
    ///
    /// Sources: IBTA 9.2.1, annex A19 for ATOMIC WRITE.
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
    /// Returns whether it goes from the requester to the responder.
    pub fn is_request(&self) -> bool {
        !matches!(self, Rc::Ack(_) | Rc::AtomicAck(..) | Rc::ReadResponse(_))
    }
}

impl Xrc {
    /// Returns a packet of XRC.
    ///
    /// Returns `None` if a request names no shared receive queue, or any other packet names one.
    #[inline]
    pub fn new(rc: Rc, srqn: Option<Srqn>) -> Option<Xrc> {
        (rc.is_request() == srqn.is_some()).then_some(Xrc { rc, srqn })
    }

    /// Returns the packet of a reliable connection.
    #[inline]
    pub fn rc(&self) -> &Rc {
        &self.rc
    }

    /// Returns the shared receive queue that it names, if it is a request.
    #[inline]
    pub fn srqn(&self) -> Option<Srqn> {
        self.srqn
    }

    /// Reads the headers of a packet with the operation of this opcode of RC.
    ///
    /// The XRCETH of a request is the first header.
    fn parse(opcode: Opcode, r: &mut Reader<'_>) -> Result<Xrc, DropReason> {
        let srqn = if opcode.is_response() { None } else { Some(ext::parse_xrceth(r)?) };
        match parse_headers(opcode, r)? {
            Body::Rc(rc) => Ok(Xrc { rc, srqn }),
            _ => unreachable!("an operation of RC"),
        }
    }
}
