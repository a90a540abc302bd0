//! Connection set-up (MPA; RFC 5044, 7.1, and RFC 6581).
//!
//! The initiator sends a request, and the responder a reply. Both ends then know how FPDUs are
//! framed, and how many READs may be outstanding. There is no I/O: bytes are passed in and
//! returned.
//!
//! A listener knows its QP only after the request has arrived. Set-up is therefore not part of a
//! QP. The caller passes its result to [`Engine::connect_stream`](crate::Engine::connect_stream).
//! It then passes what came behind the request or reply to
//! [`Engine::handle_stream`](crate::Engine::handle_stream).

use crate::objects::iwarp::attr::{Role, StreamAttr};
use crate::objects::iwarp::stream::ReadyToReceive;
use core::fmt;
use vrdma_wire::iwarp::set_up::{
    Depth, Enhanced, MAX_LEN, MAX_PRIVATE_DATA, Revision, Rtr, SetUp, SetUpKind,
};
use vrdma_wire::iwarp::{Cause, Fault, Framing};

/// What one end wants of a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Wishes {
    /// Markers in the FPDUs that it receives.
    pub markers: bool,
    /// CRCs. If either end wants them, both directions have them.
    pub crc: bool,
    /// As initiator: the enhanced set-up (RFC 6581), which negotiates `ird` and `ord`.
    ///
    /// A responder does what the request asks for.
    pub enhanced: bool,
    /// As initiator: to be one of two peers, each of which may send first.
    ///
    /// The initiator then has to send a message by itself. It is [`ReadyToReceive::Write`] if the
    /// responder takes that, or else one that the responder takes.
    pub peer_to_peer: bool,
    /// Most READs and atomics that this end answers at once.
    pub ird: u8,
    /// Most READs and atomics that this end has outstanding.
    pub ord: u8,
}

/// What both ends have negotiated, as one end sees it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// Which end this is.
    pub role: Role,
    /// Framing of the FPDUs that this end sends.
    pub framing_out: Framing,
    /// Framing of the FPDUs that this end receives.
    pub framing_in: Framing,
    /// The message that the initiator sends by itself, so that the responder may send.
    pub ready: Option<ReadyToReceive>,
    /// Most READs and atomics that this end answers at once.
    pub ird: u8,
    /// Most READs and atomics that this end has outstanding.
    pub ord: u8,
}

impl Agreed {
    /// Returns the attributes of the stream, over a TCP with segments of `mss` bytes.
    pub fn stream(&self, mss: u32) -> StreamAttr {
        let Agreed { role, framing_out, framing_in, ready, ird, ord } = *self;
        StreamAttr { role, framing_out, framing_in, ready, ord, ird, mss }
    }
}

/// Why set-up failed.
///
/// The connection is closed, because nothing can be said in it. A [`Cause`] is for the local
/// program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetUpError {
    /// The peer sent no request or reply, or an impossible one.
    Malformed(Fault),
    /// The message was not the expected one.
    ///
    /// A request came instead of a reply, or the other way round. A reply has another revision than
    /// the request. Or data came behind a request, before its reply.
    Unexpected,
    /// The peer refuses the connection, with private data of its program.
    Rejected(Vec<u8>),
    /// The wishes of both ends are not compatible.
    Disagreed(Cause),
}

impl fmt::Display for SetUpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetUpError::Malformed(fault) => fault.fmt(f),
            SetUpError::Unexpected => f.write_str("no reply to the request, or no request"),
            SetUpError::Rejected(_) => f.write_str("rejected by the peer"),
            SetUpError::Disagreed(cause) => cause.fmt(f),
        }
    }
}

impl core::error::Error for SetUpError {}

/// The bytes of a request or reply that have arrived so far.
#[derive(Clone, Default)]
struct Incoming {
    bytes: Vec<u8>,
    /// Whether the message is complete, and was returned.
    is_whole: bool,
}

impl Incoming {
    /// Takes bytes from the front of a stream. Returns how many were taken, and the message once it
    /// is complete.
    fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<SetUp<'_>>), SetUpError> {
        if self.is_whole {
            return Err(SetUpError::Unexpected);
        }
        let before = self.bytes.len();
        let most = bytes.len().min(MAX_LEN - before);
        self.bytes.extend_from_slice(&bytes[..most]);
        match SetUp::parse(&self.bytes).map_err(SetUpError::Malformed)? {
            // The message was incomplete before, so it ends in these bytes. Bytes behind it are not
            // part of it.
            Some((set_up, length)) => {
                self.is_whole = true;
                Ok((length - before, Some(set_up)))
            }
            None => Ok((most, None)),
        }
    }
}

/// Longest private data of programs. An enhanced set-up takes a part of the private data itself.
pub const MAX_PROGRAM_DATA: usize = MAX_PRIVATE_DATA - 4;

/// The end that connects.
pub struct Initiator {
    wishes: Wishes,
    incoming: Incoming,
}

impl Initiator {
    /// Makes an initiator, and its request, which is to be sent first.
    ///
    /// # Panics
    /// If there is more private data than [`MAX_PROGRAM_DATA`].
    pub fn new(wishes: Wishes, private_data: &[u8]) -> (Initiator, Vec<u8>) {
        assert!(private_data.len() <= MAX_PROGRAM_DATA, "the caller has bounded it");
        let rtr = match wishes.peer_to_peer {
            true => Rtr { fpdu: true, write: true, read: true },
            false => Rtr::default(),
        };
        let revision = match wishes.enhanced || wishes.peer_to_peer {
            true => Revision::Two(Some(enhanced(&wishes, wishes.peer_to_peer, rtr))),
            false => Revision::One,
        };
        let Wishes { markers, crc, .. } = wishes;
        let request = SetUp { kind: SetUpKind::Request, markers, crc, reject: false, revision, private_data };
        (Initiator { wishes, incoming: Incoming::default() }, emitted(&request))
    }

    /// Takes the next bytes from the peer. Returns how many of them belong to its reply.
    ///
    /// Once the reply is complete, it also returns what was negotiated, and the private data.
    #[expect(clippy::type_complexity, reason = "how many bytes, and what they come to")]
    pub fn handle(&mut self, bytes: &[u8]) -> Result<(usize, Option<(Agreed, Vec<u8>)>), SetUpError> {
        let wishes = self.wishes;
        let (taken, reply) = self.incoming.take(bytes)?;
        let Some(reply) = reply else { return Ok((taken, None)) };
        if reply.kind != SetUpKind::Reply {
            return Err(SetUpError::Unexpected);
        }
        if reply.reject {
            return Err(SetUpError::Rejected(reply.private_data.to_vec()));
        }
        let asked = wishes.enhanced || wishes.peer_to_peer;
        let (ird, ord, ready) = match reply.revision {
            Revision::Two(Some(theirs)) if asked => wishes.meet(&theirs)?,
            Revision::One if !asked => (wishes.ird, wishes.ord, None),
            _ => return Err(SetUpError::Unexpected),
        };
        let (framing_out, framing_in) = framings(&wishes, &reply);
        let agreed = Agreed { role: Role::Initiator, framing_out, framing_in, ready, ird, ord };
        Ok((taken, Some((agreed, reply.private_data.to_vec()))))
    }
}

impl Wishes {
    /// Applies a reply to an initiator's wishes. Returns IRD, ORD, and the message that it sends
    /// first.
    fn meet(&self, theirs: &Enhanced) -> Result<(u8, u8, Option<ReadyToReceive>), SetUpError> {
        // The responder has chosen last, so it must not ask for more than this end gives (RFC 6581,
        // 9.1).
        if theirs.ord.count().is_some_and(|ord| ord > self.ird.into()) {
            return Err(SetUpError::Disagreed(Cause::MpaInsufficientIrd));
        }
        let ord = at_most(self.ord, theirs.ird);
        if !self.peer_to_peer {
            return Ok((self.ird, ord, None));
        }
        let ready = choose(theirs.rtr).filter(|_| theirs.peer_to_peer);
        // A READ needs room at the responder.
        match ready {
            Some(ready) if ready != ReadyToReceive::Read || ord > 0 => Ok((self.ird, ord, Some(ready))),
            _ => Err(SetUpError::Disagreed(Cause::MpaNoMatchingRtr)),
        }
    }
}

/// A request that has arrived at a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    markers: bool,
    crc: bool,
    revision: AskedRevision,
    /// Private data of the program that connects.
    pub private_data: Vec<u8>,
}

/// The revision of a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum AskedRevision {
    One,
    Two(Option<Enhanced>),
}

/// The end that listens, until the request has arrived.
#[derive(Clone, Default)]
pub struct SetUpResponder(Incoming);

impl SetUpResponder {
    /// Takes the next bytes from the peer. Returns how many of them belong to its request.
    ///
    /// Once the request is complete, it is returned too. Nothing may come behind it before the
    /// reply.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<(usize, Option<Request>), SetUpError> {
        let (taken, request) = self.0.take(bytes)?;
        let Some(request) = request else { return Ok((taken, None)) };
        if request.kind != SetUpKind::Request {
            return Err(SetUpError::Unexpected);
        }
        let revision = match request.revision {
            Revision::One => AskedRevision::One,
            Revision::Two(enhanced) => AskedRevision::Two(enhanced),
        };
        let SetUp { markers, crc, private_data, .. } = request;
        let private_data = private_data.to_vec();
        Ok((taken, Some(Request { markers, crc, revision, private_data })))
    }
}

impl Request {
    /// Returns the most READs that the peer has outstanding and that it answers, if it says so.
    ///
    /// These are its ORD and IRD. On the responder's side they are swapped: its IRD and ORD.
    pub fn depths(&self) -> Option<(u16, u16)> {
        match self.revision {
            AskedRevision::Two(Some(theirs)) => {
                Some((theirs.ord.count().unwrap_or(u16::MAX), theirs.ird.count().unwrap_or(u16::MAX)))
            }
            _ => None,
        }
    }

    /// Accepts the connection. Returns what was negotiated, and the reply to send.
    ///
    /// # Panics
    /// If there is more private data than [`MAX_PROGRAM_DATA`].
    pub fn accept(&self, wishes: &Wishes, private_data: &[u8]) -> Result<(Agreed, Vec<u8>), SetUpError> {
        assert!(private_data.len() <= MAX_PROGRAM_DATA, "the caller has bounded it");
        let mut ready = None;
        let (mut ird, mut ord) = (wishes.ird, wishes.ord);
        let revision = match self.revision {
            AskedRevision::One => Revision::One,
            AskedRevision::Two(None) => Revision::Two(None),
            AskedRevision::Two(Some(theirs)) => {
                ord = at_most(ord, theirs.ird);
                ird = at_most(ird, theirs.ord);
                if theirs.peer_to_peer {
                    let chosen = choose(theirs.rtr).ok_or(SetUpError::Disagreed(Cause::MpaNoMatchingRtr))?;
                    if chosen == ReadyToReceive::Read {
                        ird = ird.max(1);
                    }
                    ready = Some(chosen);
                }
                let rtr = ready.map_or(Rtr::default(), only);
                Revision::Two(Some(enhanced(&Wishes { ird, ord, ..*wishes }, theirs.peer_to_peer, rtr)))
            }
        };
        let crc = wishes.crc || self.crc;
        let reply = SetUp { markers: wishes.markers, ..self.reply(crc, false, revision, private_data) };
        let framing_out = Framing { markers: self.markers, crc };
        let framing_in = Framing { markers: wishes.markers, crc };
        let agreed = Agreed { role: Role::Responder, framing_out, framing_in, ready, ird, ord };
        Ok((agreed, emitted(&reply)))
    }

    /// Refuses the connection. Returns the reply to send before the connection is closed.
    ///
    /// # Panics
    /// If there is more private data than [`MAX_PROGRAM_DATA`].
    pub fn reject(&self, private_data: &[u8]) -> Vec<u8> {
        assert!(private_data.len() <= MAX_PROGRAM_DATA, "the caller has bounded it");
        let revision = match self.revision {
            AskedRevision::One => Revision::One,
            AskedRevision::Two(enhanced) => Revision::Two(enhanced),
        };
        emitted(&self.reply(self.crc, true, revision, private_data))
    }

    fn reply<'a>(&self, crc: bool, reject: bool, revision: Revision, private_data: &'a [u8]) -> SetUp<'a> {
        SetUp { kind: SetUpKind::Reply, markers: false, crc, reject, revision, private_data }
    }
}

/// Returns `own`, but not more than the peer allows.
fn at_most(own: u8, theirs: Depth) -> u8 {
    theirs.count().map_or(own, |theirs| u16::from(own).min(theirs) as u8)
}

fn enhanced(wishes: &Wishes, peer_to_peer: bool, rtr: Rtr) -> Enhanced {
    let depth = |count: u8| Depth::new(count.into()).expect("14 bits have room for 8");
    Enhanced { ird: depth(wishes.ird), ord: depth(wishes.ord), peer_to_peer, rtr }
}

/// Chooses one of these messages. A WRITE is preferred, because all implementations know it.
fn choose(rtr: Rtr) -> Option<ReadyToReceive> {
    match rtr {
        Rtr { write: true, .. } => Some(ReadyToReceive::Write),
        Rtr { read: true, .. } => Some(ReadyToReceive::Read),
        Rtr { fpdu: true, .. } => Some(ReadyToReceive::Fpdu),
        _ => None,
    }
}

fn only(ready: ReadyToReceive) -> Rtr {
    let (fpdu, write, read) = match ready {
        ReadyToReceive::Fpdu => (true, false, false),
        ReadyToReceive::Write => (false, true, false),
        ReadyToReceive::Read => (false, false, true),
    };
    Rtr { fpdu, write, read }
}

/// Returns the framing of FPDUs to and from the peer.
///
/// Each end says whether it wants to receive markers. If either end wants CRCs, both directions
/// have them.
fn framings(wishes: &Wishes, theirs: &SetUp<'_>) -> (Framing, Framing) {
    let crc = wishes.crc || theirs.crc;
    (Framing { markers: theirs.markers, crc }, Framing { markers: wishes.markers, crc })
}

fn emitted(set_up: &SetUp<'_>) -> Vec<u8> {
    let mut bytes = vec![0; MAX_LEN];
    let length = set_up.emit(&mut bytes);
    bytes.truncate(length);
    bytes
}
