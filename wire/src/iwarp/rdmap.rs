//! RDMAP messages of DDP segments (RFC 5040, 4; RFC 7306).

use super::cause::{Cause, Code};
use super::ddp;
use super::ddp::{DdpHeader, Target};
use super::fault::Fault;
use super::num::{Msn, Queue, Stag};
use super::request::{ATOMIC_LEN, ATOMIC_RESPONSE_LEN, AtomicRequest, AtomicResponse, READ_LEN, ReadRequest};
use super::terminate::{self, Terminate, Terminated};
use crate::rw::Writer;

/// Length of immediate data.
pub const IMMEDIATE_LEN: usize = 8;
/// Length of the longest headers of a segment: those of an atomic request.
pub const MAX_HEADERS: usize = ddp::UNTAGGED_LEN + ATOMIC_LEN;

const VERSION_MASK: u8 = 0xc0;
const VERSION: u8 = 0x40;
const OPCODE_MASK: u8 = 0x0f;

mod opcode {
    pub const WRITE: u8 = 0;
    pub const READ_REQUEST: u8 = 1;
    pub const READ_RESPONSE: u8 = 2;
    pub const SEND: u8 = 3;
    pub const SEND_INVALIDATE: u8 = 4;
    pub const SEND_SOLICITED: u8 = 5;
    pub const SEND_SOLICITED_INVALIDATE: u8 = 6;
    pub const TERMINATE: u8 = 7;
    /// The opcodes from here on are those of RFC 7306.
    pub const IMMEDIATE: u8 = 8;
    pub const IMMEDIATE_SOLICITED: u8 = 9;
    pub const ATOMIC_REQUEST: u8 = 10;
    pub const ATOMIC_RESPONSE: u8 = 11;
}

/// A segment without the payload of a WRITE, a READ response or a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// RDMA WRITE, with payload.
    Write(Tagged),
    /// Response of a READ, with payload.
    ReadResponse(Tagged),
    /// SEND, with payload.
    Send {
        /// The message, and the part of it.
        part: SendPart,
        /// The receiver must raise a solicited event.
        solicited: bool,
        /// A key of the receiver to invalidate.
        invalidate: Option<Stag>,
    },
    /// Immediate data. It is a message of its own, behind the WRITE or SEND to which it belongs.
    Immediate {
        /// The message.
        msn: Msn,
        /// The receiver must raise a solicited event.
        solicited: bool,
        /// The data.
        data: [u8; IMMEDIATE_LEN],
    },
    /// RDMA READ.
    ReadRequest(Msn, ReadRequest),
    /// Atomic operation.
    AtomicRequest(Msn, AtomicRequest),
    /// Response of an atomic operation.
    AtomicResponse(Msn, AtomicResponse),
    /// TERMINATE: the connection fails.
    Terminate(Msn, Terminate),
}

/// Destination of a tagged segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// The buffer.
    pub stag: Stag,
    /// Position in it.
    pub offset: u64,
    /// The segment is the last of its message.
    pub last: bool,
}

/// Position of a segment in an untagged message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendPart {
    /// The message.
    pub msn: Msn,
    /// Position in the message.
    pub offset: u32,
    /// The segment is the last of its message.
    pub last: bool,
}

/// A segment as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedSegment<'a> {
    /// The segment.
    pub segment: Segment,
    /// Its payload. Empty, unless it is a WRITE, a READ response or a SEND.
    pub payload: &'a [u8],
}

impl Segment {
    /// Reads a ULPDU, and makes all checks that need no state.
    pub fn parse(ulpdu: &[u8]) -> Result<ParsedSegment<'_>, Fault> {
        let (header, payload) = DdpHeader::parse(ulpdu)?;
        if header.rdmap & VERSION_MASK != VERSION {
            return Err(Fault::RdmapVersion);
        }
        let opcode = header.rdmap & OPCODE_MASK;
        match header.target {
            Target::Tagged { stag, offset } => {
                let tagged = Tagged { stag, offset, last: header.last };
                let segment = match opcode {
                    opcode::WRITE => Segment::Write(tagged),
                    opcode::READ_RESPONSE => Segment::ReadResponse(tagged),
                    _ => return Err(Fault::Opcode),
                };
                Ok(ParsedSegment { segment, payload })
            }
            Target::Untagged { queue, msn, offset, invalidate } => {
                if queue_of(opcode)? != queue {
                    return Err(Fault::Queue);
                }
                let part = SendPart { msn, offset, last: header.last };
                match send_of(opcode) {
                    Some((solicited, invalidates)) => {
                        let invalidate = invalidates.then_some(invalidate);
                        Ok(ParsedSegment { segment: Segment::Send { part, solicited, invalidate }, payload })
                    }
                    None => Ok(ParsedSegment {
                        segment: Self::parse_single(opcode, part, payload)?,
                        payload: &[],
                    }),
                }
            }
        }
    }

    /// Reads a message of one segment.
    fn parse_single(opcode: u8, part: SendPart, payload: &[u8]) -> Result<Segment, Fault> {
        let msn = part.msn;
        Ok(match opcode {
            opcode::READ_REQUEST => {
                Segment::ReadRequest(msn, ReadRequest::parse(single::<READ_LEN>(part, payload)?)?)
            }
            opcode::ATOMIC_REQUEST => {
                Segment::AtomicRequest(msn, AtomicRequest::parse(single::<ATOMIC_LEN>(part, payload)?)?)
            }
            opcode::ATOMIC_RESPONSE => {
                let response = single::<ATOMIC_RESPONSE_LEN>(part, payload)?;
                Segment::AtomicResponse(msn, AtomicResponse::parse(response))
            }
            opcode::IMMEDIATE | opcode::IMMEDIATE_SOLICITED => {
                let data = *single::<IMMEDIATE_LEN>(part, payload)?;
                Segment::Immediate { msn, solicited: opcode == opcode::IMMEDIATE_SOLICITED, data }
            }
            opcode::TERMINATE => Segment::Terminate(msn, Terminate::parse(payload)?),
            _ => return Err(Fault::Opcode),
        })
    }

    /// Returns the length of the headers: everything but the payload.
    pub fn header_len(&self) -> usize {
        let rest = match self {
            Segment::Write(_) | Segment::ReadResponse(_) | Segment::Send { .. } => 0,
            Segment::Immediate { .. } => IMMEDIATE_LEN,
            Segment::ReadRequest(..) => READ_LEN,
            Segment::AtomicRequest(..) => ATOMIC_LEN,
            Segment::AtomicResponse(..) => ATOMIC_RESPONSE_LEN,
            Segment::Terminate(_, terminate) => terminate.len(),
        };
        self.header().len() + rest
    }

    /// Writes the headers to the front of `buf`. Returns their length. The caller adds the payload.
    ///
    /// # Panics
    /// If `buf` is shorter than the headers ([`MAX_HEADERS`] is always enough).
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let mut writer = Writer::new(buf);
        self.header().put(&mut writer);
        match self {
            Segment::Write(_) | Segment::ReadResponse(_) | Segment::Send { .. } => {}
            Segment::Immediate { data, .. } => writer.put(data),
            Segment::ReadRequest(_, request) => request.put(&mut writer),
            Segment::AtomicRequest(_, request) => request.put(&mut writer),
            Segment::AtomicResponse(_, response) => response.put(&mut writer),
            Segment::Terminate(_, terminate) => terminate.put(&mut writer),
        }
        writer.len()
    }

    fn header(&self) -> DdpHeader {
        let tagged = |opcode: u8, Tagged { stag, offset, last }: Tagged| DdpHeader {
            last,
            rdmap: VERSION | opcode,
            target: Target::Tagged { stag, offset },
        };
        let single =
            |opcode: u8, msn: Msn| untagged(opcode, SendPart { msn, offset: 0, last: true }, Stag(0));
        match *self {
            Segment::Write(to) => tagged(opcode::WRITE, to),
            Segment::ReadResponse(to) => tagged(opcode::READ_RESPONSE, to),
            Segment::Send { part, solicited, invalidate } => {
                let opcode = match (solicited, invalidate.is_some()) {
                    (false, false) => opcode::SEND,
                    (false, true) => opcode::SEND_INVALIDATE,
                    (true, false) => opcode::SEND_SOLICITED,
                    (true, true) => opcode::SEND_SOLICITED_INVALIDATE,
                };
                untagged(opcode, part, invalidate.unwrap_or(Stag(0)))
            }
            Segment::Immediate { msn, solicited: false, .. } => single(opcode::IMMEDIATE, msn),
            Segment::Immediate { msn, solicited: true, .. } => single(opcode::IMMEDIATE_SOLICITED, msn),
            Segment::ReadRequest(msn, _) => single(opcode::READ_REQUEST, msn),
            Segment::AtomicRequest(msn, _) => single(opcode::ATOMIC_REQUEST, msn),
            Segment::AtomicResponse(msn, _) => single(opcode::ATOMIC_RESPONSE, msn),
            Segment::Terminate(msn, _) => single(opcode::TERMINATE, msn),
        }
    }
}

fn untagged(opcode: u8, SendPart { msn, offset, last }: SendPart, invalidate: Stag) -> DdpHeader {
    let queue = queue_of(opcode).expect("it is an opcode of an untagged message");
    DdpHeader { last, rdmap: VERSION | opcode, target: Target::Untagged { queue, msn, offset, invalidate } }
}

/// Returns the queue of untagged messages with this opcode.
const fn queue_of(opcode: u8) -> Result<Queue, Fault> {
    Ok(match opcode {
        opcode::SEND
        | opcode::SEND_INVALIDATE
        | opcode::SEND_SOLICITED
        | opcode::SEND_SOLICITED_INVALIDATE
        | opcode::IMMEDIATE
        | opcode::IMMEDIATE_SOLICITED => Queue::Send,
        opcode::READ_REQUEST | opcode::ATOMIC_REQUEST => Queue::Request,
        opcode::TERMINATE => Queue::Terminate,
        opcode::ATOMIC_RESPONSE => Queue::AtomicResponse,
        _ => return Err(Fault::Opcode),
    })
}

/// Returns whether a SEND of this opcode is solicited, and whether it invalidates.
const fn send_of(opcode: u8) -> Option<(bool, bool)> {
    Some(match opcode {
        opcode::SEND => (false, false),
        opcode::SEND_INVALIDATE => (false, true),
        opcode::SEND_SOLICITED => (true, false),
        opcode::SEND_SOLICITED_INVALIDATE => (true, true),
        _ => return None,
    })
}

/// Returns the payload of a message of exactly `N` bytes in one segment.
fn single<const N: usize>(part: SendPart, payload: &[u8]) -> Result<&[u8; N], Fault> {
    if part.offset != 0 {
        return Err(Fault::MessageOffset);
    }
    match <&[u8; N]>::try_from(payload) {
        Ok(payload) if part.last => Ok(payload),
        _ if payload.len() >= N => Err(Fault::MessageTooLong),
        _ => Err(Fault::MessageTooShort),
    }
}

/// Returns the TERMINATE that answers a ULPDU which ends the connection for this cause.
///
/// The TERMINATE includes the ULPDU's headers for errors of DDP and RDMAP, except for local errors.
/// For RDMAP's errors of a READ request, it includes the request too (RFC 5040, 4.8).
///
/// # Panics
/// If the ULPDU is longer than an FPDU allows.
pub fn terminate_for(cause: Cause, ulpdu: &[u8]) -> Segment {
    let code = cause.code();
    let is_read = code.layer == 0 && is_read_request(ulpdu);
    let segment = if has_headers(code) { Terminated::of(ulpdu, is_read) } else { None };
    Segment::Terminate(Msn::FIRST, Terminate { code, segment })
}

/// Returns whether errors of this code concern a segment.
const fn has_headers(code: Code) -> bool {
    code.layer < 2 && code.etype != 0
}

fn is_read_request(ulpdu: &[u8]) -> bool {
    let is_it = |rdmap: &u8| rdmap & OPCODE_MASK == opcode::READ_REQUEST;
    ulpdu.get(1).is_some_and(is_it) && !ddp::is_tagged(ulpdu[0])
}

const _: () = assert!(ddp::UNTAGGED_LEN + terminate::MAX_LEN <= MAX_HEADERS, "it has room for all");
