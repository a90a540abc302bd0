//! How a connection begins (MPA; RFC 5044, 7.1, and RFC 6581): who connected sends a request, who
//! listens a reply, and then both know how FPDUs are framed and how many READs may be outstanding.
//! Without I/O: bytes go in and out.
//!
//! A listener knows its QP only after the request has come, so this is no part of a QP: what was
//! agreed goes to [`Engine::connect_stream`](crate::Engine::connect_stream), and with it, to
//! [`Engine::handle_stream`](crate::Engine::handle_stream), what came behind the request or reply.

use crate::objects::iwarp::attr::{Role, StreamAttr};
use crate::objects::iwarp::stream::ReadyToReceive;
use core::fmt;
use vrdma_wire::iwarp::set_up::{Depth, Enhanced, Kind, MAX_LEN, MAX_PRIVATE_DATA, Revision, Rtr, SetUp};
use vrdma_wire::iwarp::{Cause, Fault, Framing};

/// What one end wants.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Wishes {
    /// Markers in what it receives.
    pub markers: bool,
    /// CRCs, which are then used both ways.
    pub crc: bool,
    /// As initiator: the enhanced set-up (RFC 6581), by which `ird` and `ord` are agreed about. A
    /// responder does what the request asks for.
    pub enhanced: bool,
    /// As initiator: to be one of two peers of which each may send first. The message that this
    /// takes is [`ReadyToReceive::Write`] if the responder takes it, else one that it does.
    pub peer_to_peer: bool,
    /// READs and atomics that it answers at once.
    pub ird: u8,
    /// READs and atomics that it has outstanding at most.
    pub ord: u8,
}

/// What both ends have agreed about.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The end that knows this.
    pub role: Role,
    /// How FPDUs are framed that it sends,
    pub framing_out: Framing,
    /// and those that it receives.
    pub framing_in: Framing,
    /// What the initiator sends by itself, so that the responder may send.
    pub ready: Option<ReadyToReceive>,
    /// READs and atomics that this end answers at once,
    pub ird: u8,
    /// and has outstanding at most.
    pub ord: u8,
}

impl Agreed {
    /// The stream, over a TCP whose segments carry so much.
    pub fn stream(&self, mss: u32) -> StreamAttr {
        let Agreed { role, framing_out, framing_in, ready, ird, ord } = *self;
        StreamAttr { role, framing_out, framing_in, ready, ord, ird, mss }
    }
}

/// Why there is no connection. It is closed, for nothing can be said in it; what a [`Cause`] says
/// goes to the local program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetUpError {
    /// The peer sent no request or reply, or one that cannot be.
    Malformed(Fault),
    /// A request came where a reply belongs, or the other way round; a reply of another revision
    /// than the request; or more behind a request, before its reply.
    Unexpected,
    /// The peer refuses, with private data of its program.
    Rejected(Vec<u8>),
    /// Both do not agree.
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

/// The bytes of a request or reply, as far as they have come.
#[derive(Clone, Default)]
struct Incoming {
    bytes: Vec<u8>,
    /// It is whole, and was handed out.
    is_whole: bool,
}

impl Incoming {
    /// Takes bytes off the front of a stream: how many, and what they and those before come to if
    /// that is whole.
    fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<SetUp<'_>>), SetUpError> {
        if self.is_whole {
            return Err(SetUpError::Unexpected);
        }
        let before = self.bytes.len();
        let most = bytes.len().min(MAX_LEN - before);
        self.bytes.extend_from_slice(&bytes[..most]);
        match SetUp::parse(&self.bytes).map_err(SetUpError::Malformed)? {
            // What is behind it is not its own: it was not whole before, so it ends in these bytes.
            Some((set_up, length)) => {
                self.is_whole = true;
                Ok((length - before, Some(set_up)))
            }
            None => Ok((most, None)),
        }
    }
}

/// Longest private data of programs: with an enhanced set-up, that takes its part of it.
pub const MAX_PROGRAM_DATA: usize = MAX_PRIVATE_DATA - 4;

/// The end that connected.
pub struct Initiator {
    wishes: Wishes,
    incoming: Incoming,
}

impl Initiator {
    /// One with its request, which is to be sent first.
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
        let request = SetUp { kind: Kind::Request, markers, crc, reject: false, revision, private_data };
        (Initiator { wishes, incoming: Incoming::default() }, emitted(&request))
    }

    /// The next bytes of the peer: how many of them belong to its reply; with what was agreed, and
    /// private data, once that is whole.
    #[expect(clippy::type_complexity, reason = "how many bytes, and what they come to")]
    pub fn handle(&mut self, bytes: &[u8]) -> Result<(usize, Option<(Agreed, Vec<u8>)>), SetUpError> {
        let wishes = self.wishes;
        let (taken, reply) = self.incoming.take(bytes)?;
        let Some(reply) = reply else { return Ok((taken, None)) };
        if reply.kind != Kind::Reply {
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
    /// What an initiator makes of a reply: IRD, ORD, and what it sends first.
    fn meet(&self, theirs: &Enhanced) -> Result<(u8, u8, Option<ReadyToReceive>), SetUpError> {
        // The responder has chosen: it asks for no more than this end gives (RFC 6581, 9.1).
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

/// A request that has come to a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    markers: bool,
    crc: bool,
    revision: AskedRevision,
    /// Private data of the program that connects.
    pub private_data: Vec<u8>,
}

/// What a request is of.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum AskedRevision {
    One,
    Two(Option<Enhanced>),
}

/// The end that listened, until the request has come.
#[derive(Clone, Default)]
pub struct Responder(Incoming);

impl Responder {
    /// The next bytes of the peer: how many of them belong to its request, and that once it is
    /// whole. Nothing may come behind it before the reply.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<(usize, Option<Request>), SetUpError> {
        let (taken, request) = self.0.take(bytes)?;
        let Some(request) = request else { return Ok((taken, None)) };
        if request.kind != Kind::Request {
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
    /// READs that the peer has outstanding and answers at most, if it says: as programs see them
    /// (ORD and IRD of the responder's side are these, swapped).
    pub fn depths(&self) -> Option<(u16, u16)> {
        match self.revision {
            AskedRevision::Two(Some(theirs)) => {
                Some((theirs.ord.count().unwrap_or(u16::MAX), theirs.ird.count().unwrap_or(u16::MAX)))
            }
            _ => None,
        }
    }

    /// Takes the connection: what was agreed, and the reply that is to be sent.
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

    /// Refuses the connection: the reply that is to be sent, before the connection is closed.
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
        SetUp { kind: Kind::Reply, markers: false, crc, reject, revision, private_data }
    }
}

/// So many, but not more than the peer says.
fn at_most(own: u8, theirs: Depth) -> u8 {
    theirs.count().map_or(own, |theirs| u16::from(own).min(theirs) as u8)
}

fn enhanced(wishes: &Wishes, peer_to_peer: bool, rtr: Rtr) -> Enhanced {
    let depth = |count: u8| Depth::new(count.into()).expect("14 bits have room for 8");
    Enhanced { ird: depth(wishes.ird), ord: depth(wishes.ord), peer_to_peer, rtr }
}

/// One of these messages: that which all know, if it is among them.
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

/// How FPDUs to and from the peer are framed: each end says what it wants to receive, and either
/// wants CRCs for both.
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
