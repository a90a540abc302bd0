//! A connection in a stream (iWARP) in the record.

use super::ReadyToReceive;
use serde::{Deserialize, Serialize};

/// The state of a reliable connection in a stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tcp {
    /// The stream to the peer.
    pub output: TcpOutput,
    /// The stream from the peer.
    pub input: TcpInput,
    /// About its requests.
    pub requester: TcpRequester,
    /// About its responses.
    pub responder: TcpResponder,
}

/// How FPDUs of one direction are framed, and where the next one begins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Framing {
    /// Markers are in use.
    pub markers: bool,
    /// CRCs are in use.
    pub crc: bool,
    /// Bytes of the stream before the next FPDU, modulo 512.
    pub place: u16,
}

/// The stream to the peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TcpOutput {
    /// Its FPDUs.
    pub framing: Framing,
    /// Most bytes of a ULPDU.
    pub mulpdu: u32,
    /// This end may send: of the responder, the initiator has sent something.
    pub may_send: bool,
    /// What is to be sent before all else.
    pub ready: Option<ReadyToReceive>,
    /// There was no room for the next FPDU.
    pub blocked: bool,
    /// The ULPDU of a TERMINATE that is to be sent.
    pub terminate: Option<Vec<u8>>,
    /// It is to end when nothing is under way.
    pub finishes: bool,
    /// It has ended.
    pub ended: bool,
}

/// The stream from the peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TcpInput {
    /// Its FPDUs.
    pub framing: Framing,
    /// What has come of the next one.
    pub held: Vec<u8>,
    /// A ULPDU that waits for the answer to a question.
    pub waiting: Option<Waiting>,
    /// Nothing has come.
    pub is_new: bool,
    /// What the peer was to send before all else.
    pub ready: Option<ReadyToReceive>,
    /// MSN of the next SEND or immediate data,
    pub send_msn: u32,
    /// and of the next READ or atomic.
    pub request_msn: u32,
    /// Bytes of the WRITE in progress, or of the last.
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

/// About requests. Which of them are READs and atomics follows from the send queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TcpRequester {
    /// How many requests of the queue are before the cursor: all of them were sent.
    pub cursor: u32,
    /// Of the request at the cursor, bytes that were sent, if a part of it was.
    pub sent: Option<u32>,
    /// Bytes of the first request that were answered.
    pub answered: u32,
    /// MSN of the next SEND or immediate data,
    pub send_msn: u32,
    /// of the next READ or atomic,
    pub request_msn: u32,
    /// and of the next response to an atomic.
    pub response_msn: u32,
    /// The READ that was sent before all else is not answered.
    pub ready_awaited: bool,
}

/// About responses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TcpResponder {
    /// READs and atomics that are not answered in full, in order.
    pub pending: Vec<TcpResponse>,
    /// Bytes of the response to the first that were sent.
    pub sent: u32,
    /// Responses to atomics so far.
    pub atomics: u32,
}

/// A READ or an atomic that is not answered in full.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TcpResponse {
    /// A READ.
    Read {
        /// Its MSN.
        msn: u32,
        /// The PD in which it came.
        pd: u32,
        /// The peer's key for what it returns,
        sink: u32,
        /// and the place there.
        sink_offset: u64,
        /// Bytes.
        length: u32,
        /// The own key,
        source: u32,
        /// and the place there.
        source_offset: u64,
    },
    /// An atomic, carried out.
    Atomic {
        /// What the peer calls it.
        id: u32,
        /// What it found.
        original: u64,
    },
}
