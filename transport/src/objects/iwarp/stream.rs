//! The stream to the peer: how FPDUs are cut and framed, whose message is in it, and how it ends.
//! Pure state.

mod save;

use crate::base::place::Place;
use crate::objects::qp::Direction;
use vrdma_wire::iwarp::rdmap::{MAX_HEADERS, Segment};
use vrdma_wire::iwarp::{Framing, Place as StreamPlace};

/// A message that the initiator of a connection sends by itself, so that the responder may send
/// (RFC 6581, 4).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ReadyToReceive {
    /// An FPDU without a ULPDU.
    Fpdu,
    /// A WRITE of no bytes.
    Write,
    /// A READ of no bytes.
    Read,
}

/// The stream to the peer.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    framing: Framing,
    /// Where the next FPDU begins.
    place: StreamPlace,
    /// Most bytes of a ULPDU.
    mulpdu: u32,
    /// This end sends. A responder does not before the initiator has, or was silent for long; an
    /// initiator that is to send something before all else waits a little.
    pub(crate) may_send: bool,
    /// What the initiator is to send before all else.
    pub(crate) ready: Option<ReadyToReceive>,
    /// There was no room for the next FPDU.
    blocked: bool,
    /// Whose message has begun and not ended: those of a stream do not mix.
    message: Option<Direction>,
    /// The last message of a connection that fails, which is to be sent.
    pub(crate) terminate: Option<Box<Segment>>,
    /// It is to end when nothing is under way.
    pub(crate) finishes: bool,
    /// Nothing is sent any more.
    ended: bool,
    /// FPDUs that were sent since the engine has had it.
    pub(crate) fpdus: u64,
    /// The peer is a QP of this engine.
    pub(crate) joined: Option<Joined>,
}

/// What is known of a peer that is a QP of this engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    pub(crate) peer: Place,
    /// Both ends have the same, and no others: if the peer has not, it has another stream now.
    pub(crate) number: u64,
    /// Which FPDU was the last that was sent with its payload: so many had been sent with it.
    pub(crate) whole: u64,
    /// The last FPDU was placed, and its message goes on.
    pub(crate) goes_on: bool,
}

/// The shortest MSS: with less, headers would not have room.
pub(crate) const MIN_MSS: u32 = 256;
const _: () = assert!(Framing { markers: true, crc: true }.mulpdu(MIN_MSS as usize) > MAX_HEADERS);

impl Stream {
    pub(crate) fn new(
        framing: Framing,
        mss: u32,
        is_initiator: bool,
        ready: Option<ReadyToReceive>,
    ) -> Stream {
        Stream {
            framing,
            place: StreamPlace::START,
            mulpdu: framing.mulpdu(mss as usize) as u32,
            may_send: is_initiator && ready.is_none(),
            ready,
            blocked: false,
            message: None,
            terminate: None,
            finishes: false,
            ended: false,
            fpdus: 0,
            joined: None,
        }
    }

    pub(crate) fn framing(&self) -> Framing {
        self.framing
    }

    /// Where the next FPDU begins.
    pub(crate) fn place(&self) -> StreamPlace {
        self.place
    }

    /// An FPDU of so many bytes was taken.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.place = self.place.after(bytes);
        self.fpdus += 1;
    }

    /// Most payload of a segment with these headers.
    pub(crate) fn most(&self, segment: &Segment) -> u32 {
        self.most_behind(segment.header_len())
    }

    /// Most payload behind so many bytes of headers.
    pub(crate) fn most_behind(&self, headers: usize) -> u32 {
        self.mulpdu - headers as u32
    }

    /// Whether messages of this direction may go on, or begin.
    pub(crate) fn is_open_for(&self, direction: Direction) -> bool {
        let is_free = self.message.is_none_or(|message| message == direction);
        is_free && self.may_send && !self.blocked && !self.ended
    }

    /// A message of this direction has begun, and not ended, or has ended.
    pub(crate) fn set_message(&mut self, direction: Direction, goes_on: bool) {
        self.message = goes_on.then_some(direction);
    }

    /// There was no room.
    pub(crate) fn block(&mut self) {
        self.blocked = true;
    }

    /// There is room again.
    pub(crate) fn unblock(&mut self) {
        self.blocked = false;
    }

    /// It ends here.
    pub(crate) fn end(&mut self) {
        self.ended = true;
        self.terminate = None;
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether there is room as far as is known.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }
}
