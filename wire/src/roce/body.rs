//! Kinds of packets: opcodes, and the extended headers of each (IBTA 9.2.1).

use super::part::Part::{self, First, Last, Middle, Only};
use super::part::{ReadPart, SendTail, UcTail, WriteTail};
use crate::DropReason;
use crate::ext::{self, Aeth, AtomicEth, Deth, Feth, Reth, len};
use crate::num::{Imm, Rkey, Srqn};
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
    /// An atomic of 8 bytes
    Atomic(AtomicKind, AtomicEth),
    /// ATOMIC WRITE: stores its payload, 8 bytes, at once
    AtomicWrite(Reth),
    /// FLUSH
    Flush(Feth, Reth),
}

/// What an atomic does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicKind {
    /// Compare and swap
    CompareSwap,
    /// Fetch and add
    FetchAdd,
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

/// The bits of an opcode that name its service: the upper three.
const SERVICE: u8 = 0b1110_0000;
/// The service bits of RC.
const RC: u8 = 0;
/// The service bits of XRC (annex A14).
const XRC: u8 = 0b1010_0000;

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

/// Makes opcodes, parser and opcode lookup from one table.
///
/// A row has an opcode, its number, the extended headers behind the BTH in their order, and the
/// resulting packet.
macro_rules! packets {
    ($(
        $(#[$doc:meta])* $opcode:ident $number:literal
            [$($header:ident: $parse:expr),*] => { $($packet:tt)* },
    )*) => {
        /// The opcode of a packet: service and operation (IBTA 9.2.1).
        ///
        /// XRC's opcodes are not variants. They have the operations of RC's opcodes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[$doc])* $opcode = $number,)*
        }

        impl Opcode {
            /// All opcodes, in ascending order.
            pub const ALL: &[Opcode] = &[$(Opcode::$opcode,)*];

            /// Returns the opcode of this number, or `None` if it is not supported.
            ///
            /// Reserved opcodes, RD, and vendors' own opcodes are not supported.
            pub const fn from_number(number: u8) -> Option<Opcode> {
                Some(match number {
                    $($number => Opcode::$opcode,)*
                    _ => return None,
                })
            }
        }

        // XRC's opcodes are made of RC's, so the packets of RC have RC's numbers.
        $(const _: () = assert!(($number & SERVICE == RC) == is_of_rc!($($packet)*));)*

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

/// Whether a row of the table is a packet of a reliable connection.
macro_rules! is_of_rc {
    (Rc($($rc:tt)*)) => {
        true
    };
    ($($other:tt)*) => {
        false
    };
}

packets! {
    /// RC SEND First
    RcSendFirst 0x00 [] => { Rc(Rc::Send(First(()))) },
    /// RC SEND Middle
    RcSendMiddle 0x01 [] => { Rc(Rc::Send(Middle)) },
    /// RC SEND Last
    RcSendLast 0x02 [] => { Rc(Rc::Send(Last(SendTail::Plain))) },
    /// RC SEND Last with Immediate
    RcSendLastImm 0x03 [imm: parse_imm] => { Rc(Rc::Send(Last(SendTail::Imm(imm)))) },
    /// RC SEND Only
    RcSendOnly 0x04 [] => { Rc(Rc::Send(Only((), SendTail::Plain))) },
    /// RC SEND Only with Immediate
    RcSendOnlyImm 0x05 [imm: parse_imm] => { Rc(Rc::Send(Only((), SendTail::Imm(imm)))) },
    /// RC RDMA WRITE First
    RcWriteFirst 0x06 [reth: Reth::parse] => { Rc(Rc::Write(First(reth))) },
    /// RC RDMA WRITE Middle
    RcWriteMiddle 0x07 [] => { Rc(Rc::Write(Middle)) },
    /// RC RDMA WRITE Last
    RcWriteLast 0x08 [] => { Rc(Rc::Write(Last(WriteTail::Plain))) },
    /// RC RDMA WRITE Last with Immediate
    RcWriteLastImm 0x09 [imm: parse_imm] => { Rc(Rc::Write(Last(WriteTail::Imm(imm)))) },
    /// RC RDMA WRITE Only
    RcWriteOnly 0x0a [reth: Reth::parse] => { Rc(Rc::Write(Only(reth, WriteTail::Plain))) },
    /// RC RDMA WRITE Only with Immediate
    RcWriteOnlyImm 0x0b [reth: Reth::parse, imm: parse_imm] => {
        Rc(Rc::Write(Only(reth, WriteTail::Imm(imm))))
    },
    /// RC RDMA READ Request
    RcReadRequest 0x0c [reth: Reth::parse] => { Rc(Rc::ReadRequest(reth)) },
    /// RC RDMA READ Response First
    RcReadResponseFirst 0x0d [aeth: Aeth::parse] => { Rc(Rc::ReadResponse(ReadPart::First(aeth))) },
    /// RC RDMA READ Response Middle
    RcReadResponseMiddle 0x0e [] => { Rc(Rc::ReadResponse(ReadPart::Middle)) },
    /// RC RDMA READ Response Last
    RcReadResponseLast 0x0f [aeth: Aeth::parse] => { Rc(Rc::ReadResponse(ReadPart::Last(aeth))) },
    /// RC RDMA READ Response Only
    RcReadResponseOnly 0x10 [aeth: Aeth::parse] => { Rc(Rc::ReadResponse(ReadPart::Only(aeth))) },
    /// RC Acknowledge
    RcAck 0x11 [aeth: Aeth::parse] => { Rc(Rc::Ack(aeth)) },
    /// RC ATOMIC Acknowledge
    RcAtomicAck 0x12 [aeth: Aeth::parse, original: ext::parse_atomic_ack] => {
        Rc(Rc::AtomicAck(aeth, original))
    },
    /// RC CmpSwap
    RcCompareSwap 0x13 [atomic: AtomicEth::parse] => {
        Rc(Rc::Atomic(AtomicKind::CompareSwap, atomic))
    },
    /// RC FetchAdd
    RcFetchAdd 0x14 [atomic: AtomicEth::parse] => {
        Rc(Rc::Atomic(AtomicKind::FetchAdd, atomic))
    },
    /// RC SEND Last with Invalidate
    RcSendLastInvalidate 0x16 [rkey: parse_ieth] => { Rc(Rc::Send(Last(SendTail::Invalidate(rkey)))) },
    /// RC SEND Only with Invalidate
    RcSendOnlyInvalidate 0x17 [rkey: parse_ieth] => {
        Rc(Rc::Send(Only((), SendTail::Invalidate(rkey))))
    },
    /// RC FLUSH
    RcFlush 0x1c [feth: Feth::parse, reth: Reth::parse] => { Rc(Rc::Flush(feth, reth)) },
    /// RC ATOMIC WRITE
    RcAtomicWrite 0x1d [reth: Reth::parse] => { Rc(Rc::AtomicWrite(reth)) },
    /// UC SEND First
    UcSendFirst 0x20 [] => { Uc(Uc::Send(First(()))) },
    /// UC SEND Middle
    UcSendMiddle 0x21 [] => { Uc(Uc::Send(Middle)) },
    /// UC SEND Last
    UcSendLast 0x22 [] => { Uc(Uc::Send(Last(UcTail::Plain))) },
    /// UC SEND Last with Immediate
    UcSendLastImm 0x23 [imm: parse_imm] => { Uc(Uc::Send(Last(UcTail::Imm(imm)))) },
    /// UC SEND Only
    UcSendOnly 0x24 [] => { Uc(Uc::Send(Only((), UcTail::Plain))) },
    /// UC SEND Only with Immediate
    UcSendOnlyImm 0x25 [imm: parse_imm] => { Uc(Uc::Send(Only((), UcTail::Imm(imm)))) },
    /// UC RDMA WRITE First
    UcWriteFirst 0x26 [reth: Reth::parse] => { Uc(Uc::Write(First(reth))) },
    /// UC RDMA WRITE Middle
    UcWriteMiddle 0x27 [] => { Uc(Uc::Write(Middle)) },
    /// UC RDMA WRITE Last
    UcWriteLast 0x28 [] => { Uc(Uc::Write(Last(WriteTail::Plain))) },
    /// UC RDMA WRITE Last with Immediate
    UcWriteLastImm 0x29 [imm: parse_imm] => { Uc(Uc::Write(Last(WriteTail::Imm(imm)))) },
    /// UC RDMA WRITE Only
    UcWriteOnly 0x2a [reth: Reth::parse] => { Uc(Uc::Write(Only(reth, WriteTail::Plain))) },
    /// UC RDMA WRITE Only with Immediate
    UcWriteOnlyImm 0x2b [reth: Reth::parse, imm: parse_imm] => {
        Uc(Uc::Write(Only(reth, WriteTail::Imm(imm))))
    },
    /// UD SEND Only
    UdSendOnly 0x64 [deth: Deth::parse] => { Ud { deth, imm: None } },
    /// UD SEND Only with Immediate
    UdSendOnlyImm 0x65 [deth: Deth::parse, imm: parse_imm] => { Ud { deth, imm: Some(imm) } },
    /// Congestion notification packet (annex A17)
    Cnp 0x81 [_reserved: parse_cnp] => { Cnp },
}

impl Opcode {
    /// Returns the opcode of RC with the operation of the XRC opcode `number`.
    ///
    /// Returns `None` if `number` is not an opcode of XRC.
    pub(crate) const fn of_xrc(number: u8) -> Option<Opcode> {
        if number & SERVICE == XRC { Opcode::from_number(number & !SERVICE) } else { None }
    }

    /// Returns whether RC packets with this opcode go from the responder to the requester.
    pub(crate) const fn is_response(self) -> bool {
        use Opcode as O;
        matches!(
            self,
            O::RcReadResponseFirst
                | O::RcReadResponseMiddle
                | O::RcReadResponseLast
                | O::RcReadResponseOnly
                | O::RcAck
                | O::RcAtomicAck
        )
    }

    /// Returns whether IBTA has given this number to an operation (9.2.1, annexes A14, A17, A19).
    ///
    /// Only opcodes of such numbers are known to other implementations.
    pub const fn is_of_ibta(number: u8) -> bool {
        match number & SERVICE {
            RC | XRC => matches!(number & !SERVICE, 0x00..=0x14 | 0x16 | 0x17 | 0x1c | 0x1d),
            _ => matches!(number, 0x20..=0x2b | 0x40..=0x55 | 0x64 | 0x65 | 0x81),
        }
    }

    /// Returns the number of the XRC opcode with the operation of this RC opcode.
    pub(crate) const fn xrc_number(self) -> u8 {
        XRC | self as u8 & !SERVICE
    }
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
            Body::Rc(Rc::Atomic(_, atomic)) => atomic.put(w),
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
            Body::Rc(Rc::Atomic(..)) => len::ATOMIC_ETH,
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
                Rc::ReadRequest(_) | Rc::Ack(_) | Rc::AtomicAck(..) | Rc::Atomic(..) | Rc::Flush(..),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xrc_has_the_operations_of_rc_and_no_others() {
        for number in 0..=255 {
            let of_rc = (0xa0..=0xbf).contains(&number).then(|| Opcode::from_number(number - 0xa0)).flatten();
            assert_eq!(Opcode::of_xrc(number), of_rc, "{number:#x}");
            assert!(of_rc.is_none_or(|opcode| opcode.xrc_number() == number && (opcode as u8) < 0x20));
        }
    }

    #[test]
    fn ibta_has_assigned_the_numbers_of_its_tables() {
        let assigned = |numbers: core::ops::Range<u8>| numbers.filter(|&n| Opcode::is_of_ibta(n)).count();
        // RC's and XRC's lack 0x15, 0x18 to 0x1b, 0x1e and 0x1f.
        assert_eq!((assigned(0..0x20), assigned(0xa0..0xc0)), (25, 25));
        // UC, RD and UD; congestion notifications; what belongs to vendors.
        assert_eq!((assigned(0x20..0x40), assigned(0x40..0x60), assigned(0x60..0x80)), (12, 22, 2));
        assert_eq!((assigned(0x80..0xa0), (0xc0..=0xff).any(Opcode::is_of_ibta)), (1, false));
    }

    #[test]
    fn numbers_and_opcodes_agree() {
        let known: usize = (0..=255).filter_map(Opcode::from_number).count();
        assert_eq!(known, Opcode::ALL.len());
        assert!(Opcode::ALL.is_sorted());
        for &opcode in Opcode::ALL {
            assert_eq!(Opcode::from_number(opcode as u8), Some(opcode));
        }
    }
}
