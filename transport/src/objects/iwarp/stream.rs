//! The state of the stream to the peer: segmentation and framing of FPDUs, the message in progress,
//! and the end. Pure state, without I/O.

mod save;

use crate::base::qp_ref::QpRef;
use crate::objects::qp::Direction;
use vrdma_wire::iwarp::rdmap::{MAX_HEADERS, Segment};
use vrdma_wire::iwarp::{Framing, StreamOffset as StreamPlace};

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
    /// Position at which the next FPDU begins.
    place: StreamPlace,
    /// Most bytes of a ULPDU.
    mulpdu: u32,
    /// Whether this end may send.
    ///
    /// A responder may once the initiator has sent, or was silent for long. An initiator that has
    /// to send a message first waits a little.
    pub(crate) may_send: bool,
    /// The message that the initiator has to send first.
    pub(crate) ready: Option<ReadyToReceive>,
    /// Whether there was no room for the next FPDU.
    blocked: bool,
    /// Direction of the message that has begun and not ended. Messages of a stream do not
    /// interleave.
    message: Option<Direction>,
    /// The last message of a failing connection, which is to be sent.
    pub(crate) terminate: Option<Box<Segment>>,
    /// Whether the stream ends when nothing is under way.
    pub(crate) finishes: bool,
    /// Whether the stream has ended: nothing is sent any more.
    ended: bool,
    /// FPDUs that were sent since this engine has the stream.
    pub(crate) fpdus: u64,
    /// The peer of a loopback connection.
    pub(crate) joined: Option<Loopback>,
}

/// The peer of a loopback connection: a QP of this engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loopback {
    pub(crate) peer: QpRef,
    /// Number of the connection at both ends. If the peer has another number, it has another
    /// stream.
    pub(crate) number: u64,
    /// Number of FPDUs that had been sent up to the last FPDU with its payload.
    pub(crate) whole: u64,
    /// Whether the last FPDU was placed, and its message goes on.
    pub(crate) goes_on: bool,
}

/// The shortest MSS that has room for headers.
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

    /// Returns the position at which the next FPDU begins.
    pub(crate) fn place(&self) -> StreamPlace {
        self.place
    }

    /// Records that an FPDU of `bytes` bytes was taken.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.place = self.place.after(bytes);
        self.fpdus += 1;
    }

    /// Returns the most payload of a segment with these headers.
    pub(crate) fn most(&self, segment: &Segment) -> u32 {
        self.most_behind(segment.header_len())
    }

    /// Returns the most payload behind this many bytes of headers.
    pub(crate) fn most_behind(&self, headers: usize) -> u32 {
        self.mulpdu - headers as u32
    }

    /// Whether a message of this direction may begin or go on.
    pub(crate) fn is_open_for(&self, direction: Direction) -> bool {
        let is_free = self.message.is_none_or(|message| message == direction);
        is_free && self.may_send && !self.blocked && !self.ended
    }

    /// Records that a message of this direction has begun and goes on, or has ended.
    pub(crate) fn set_message(&mut self, direction: Direction, goes_on: bool) {
        self.message = goes_on.then_some(direction);
    }

    /// Records that there was no room.
    pub(crate) fn block(&mut self) {
        self.blocked = true;
    }

    /// Records that there is room again.
    pub(crate) fn unblock(&mut self) {
        self.blocked = false;
    }

    /// Ends the stream.
    pub(crate) fn end(&mut self) {
        self.ended = true;
        self.terminate = None;
    }

    /// Whether the stream has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether there was no room at the last attempt.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }
}
