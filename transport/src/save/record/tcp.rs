//! A connection in a stream (iWARP), in the record.

use super::ReadyToReceive;
use serde::{Deserialize, Serialize};

/// The state of a reliable connection in a stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tcp {
    /// The stream to the peer.
    pub output: TcpOutput,
    /// The stream from the peer.
    pub input: TcpInput,
    /// State of its requests.
    pub requester: TcpRequester,
    /// State of its responses.
    pub responder: TcpResponder,
}

/// How FPDUs of one direction are framed, and where the next one begins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Framing {
    /// Whether markers are in use.
    pub markers: bool,
    /// Whether CRCs are in use.
    pub crc: bool,
    /// Bytes of the stream before the next FPDU, modulo 512.
    pub place: u16,
}

/// The stream to the peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TcpOutput {
    /// Framing of its FPDUs.
    pub framing: Framing,
    /// Most bytes of a ULPDU.
    pub mulpdu: u32,
    /// Whether this end may send. A responder may once the initiator has sent something.
    pub may_send: bool,
    /// The message that has to be sent first.
    pub ready: Option<ReadyToReceive>,
    /// Whether there was no room for the next FPDU.
    pub blocked: bool,
    /// The ULPDU of a TERMINATE that is to be sent.
    pub terminate: Option<Vec<u8>>,
    /// Whether the stream ends when nothing is under way.
    pub finishes: bool,
    /// Whether the stream has ended.
    pub ended: bool,
}

/// The stream from the peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TcpInput {
    /// Framing of its FPDUs.
    pub framing: Framing,
    /// The bytes of the next FPDU that have arrived.
    pub held: Vec<u8>,
    /// A ULPDU that waits for the answer to a question.
    pub waiting: Option<Waiting>,
    /// Whether nothing has arrived.
    pub is_new: bool,
    /// The message that the peer sends first.
    pub ready: Option<ReadyToReceive>,
    /// MSN of the next SEND or immediate data.
    pub send_msn: u32,
    /// MSN of the next READ or atomic.
    pub request_msn: u32,
    /// Bytes of the WRITE in progress, or else of the last one.
    pub written: u32,
}

/// A ULPDU that waits for the answer to a question.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Waiting {
    /// The number with which it asked.
    pub number: u32,
    /// The ULPDU.
    pub ulpdu: Vec<u8>,
}

/// State of requests. The send queue tells which requests are READs and atomics.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TcpRequester {
    /// Number of requests in the queue before the cursor. All of them were sent.
    pub cursor: u32,
    /// Bytes that were sent of the request at the cursor, if a part of it was.
    pub sent: Option<u32>,
    /// Bytes of the first request that were answered.
    pub answered: u32,
    /// MSN of the next SEND or immediate data.
    pub send_msn: u32,
    /// MSN of the next READ or atomic.
    pub request_msn: u32,
    /// MSN of the next response to an atomic.
    pub response_msn: u32,
    /// Whether the READ that is sent first is still without an answer.
    pub ready_awaited: bool,
}

/// State of responses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TcpResponder {
    /// READs and atomics that are not fully answered, in order.
    pub pending: Vec<TcpResponse>,
    /// Bytes of the response to the first one that were sent.
    pub sent: u32,
    /// Number of responses to atomics so far.
    pub atomics: u32,
}

/// A READ or an atomic that is not fully answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TcpResponse {
    /// A READ.
    Read {
        /// Its MSN.
        msn: u32,
        /// The PD in which it arrived.
        pd: u32,
        /// The peer's STag for the returned data.
        sink: u32,
        /// The offset for the returned data.
        sink_offset: u64,
        /// Length in bytes.
        length: u32,
        /// The own STag that is read.
        source: u32,
        /// The offset that is read.
        source_offset: u64,
    },
    /// An atomic, which was executed.
    Atomic {
        /// The peer's id of the request.
        id: u32,
        /// The value that it found.
        original: u64,
    },
}
