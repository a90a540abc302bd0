//! What a queue pair knows of its peer and of losses, in the record.

use serde::{Deserialize, Serialize};

/// An estimate of a round-trip time (RFC 6298).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Estimate {
    /// The smoothed time, in nanoseconds.
    pub srtt: u32,
    /// How far times differ from it, in nanoseconds.
    pub variation: u32,
}

/// The round-trip time of a QP's packets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RoundTrip {
    /// The estimate, once there is one.
    pub estimate: Option<Estimate>,
    /// PSN of the packet that is timed.
    pub timed: Option<u32>,
    /// When that packet was sent, on the caller's clock.
    pub timed_at: Option<u64>,
    /// The oldest PSN without an answer when that packet was sent. (None if its answer waits for
    /// data of a READ.)
    #[serde(default)]
    pub timed_una: Option<u32>,
    /// The last time, in nanoseconds.
    #[serde(default)]
    pub last: Option<u32>,
    /// Number of measured times, modulo 256.
    pub samples: u8,
    /// The shortest time, in nanoseconds.
    pub least: Option<u32>,
}

/// What a device knows of a peer on another host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// Its address.
    pub gid: [u8; 16],
    /// How long it takes to answer.
    pub estimate: Option<Estimate>,
    /// What it does with packets that come ahead of a gap.
    pub ahead: Ahead,
}

/// The probes of a QP. All times are on the caller's clock.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Probes {
    /// When to look whether the peer is silent.
    pub at: Option<u64>,
    /// When packets were last sent again from the oldest one on.
    pub went_back: u64,
    /// When something was last answered, or when the oldest packet was sent.
    pub answered_at: u64,
    /// When something was last answered, or when packets were sent while nothing was outstanding.
    pub progress_at: u64,
    /// When a probe was last tried, or something made one unnecessary.
    pub tried_at: u64,
    /// The longest time between two answers with a probe in between, in nanoseconds.
    pub pause: u64,
    /// The PSN that was next when a probe was sent, until all before it are answered.
    pub end: Option<u32>,
    /// Number of tried probes since a round-trip time was measured.
    pub backoff: u8,
    /// How often packets were sent again because of one more NAK, since something was answered.
    pub naks: u8,
    /// Whether a probe was sent, and nothing was answered since.
    pub is_asked: bool,
    /// Whether a probe is to be sent.
    pub is_due: bool,
    /// Whether the oldest packet is to be sent again alone, because it is lost.
    #[serde(default)]
    pub is_repeat_due: bool,
}

/// What a QP knows of the way in which its peer handles losses.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SelectiveRepeat {
    /// What the peer does with packets that come ahead of a gap.
    pub ahead: Ahead,
    /// The packet that was sent again alone, until it is answered.
    pub alone: Option<Alone>,
    /// How often in a row the answer to a packet covered nothing more.
    pub misses: u8,
    /// Losses since the peer was last tried, if it drops.
    pub losses: u8,
    /// Packets before this PSN were sent again, and are not answered.
    pub unclear: Option<u32>,
}

/// A packet that was sent again alone.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Alone {
    /// Its PSN.
    pub first: u32,
    /// The PSN behind it.
    pub end: u32,
    /// The PSN that was next when it was sent.
    pub next: u32,
    /// Whether it has a response of its own.
    pub has_response: bool,
}

/// Whether the first request was sent again, if it is a READ.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadAgain {
    /// It was not.
    #[default]
    No,
    /// It was, alone.
    Alone,
    /// It was, alone, and data of a later READ were dropped because of that.
    Dropped,
    /// It was, with all that is outstanding behind it.
    All,
    /// It has ended. What is behind it is to be asked for again.
    Due,
}

/// What a peer does with packets that come ahead of a gap.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ahead {
    /// It has not shown that.
    #[default]
    Unknown,
    /// It holds them.
    Held,
    /// It drops them.
    Dropped,
}

/// How late a packet came, or may come.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lateness {
    /// Packets that overtook it.
    pub packets: u8,
    /// Nanoseconds after the first of them.
    pub time: u32,
}

/// Responses that came ahead of a missing one. Times are on the caller's clock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EarlyResponses {
    /// The responses, by their PSN.
    pub held: Vec<EarlyResponse>,
    /// The PSN before which the peer has executed all requests.
    pub executed: Option<u32>,
    /// Responses that came ahead of the missing one.
    pub extent: u16,
    /// When the first of them came.
    pub since: u64,
    /// The PSN before which everything missing was asked for again.
    pub asked: Option<u32>,
    /// Whether a part of a READ was asked for then.
    pub is_part: bool,
    /// When the missing one counts as lost.
    pub late_at: Option<u64>,
    /// How late a response may come.
    pub tolerance: Lateness,
    /// How late it might come because of the present second.
    pub seen: Lateness,
    /// When that second began.
    pub period: u64,
    /// PSN of the last gap that was asked for and filled, and how late its response came.
    pub suspect: Option<(u32, Lateness)>,
    /// Whether the response of the gap before that one came again.
    pub was_late: bool,
    /// Whether a part of a READ was ever asked for again.
    pub has_parts: bool,
}

/// A response that is held.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EarlyResponse {
    /// Its PSN.
    pub psn: u32,
    /// The responder's MSN, and its credits as in the AETH, if the response has them.
    pub aeth: Option<(u32, u8)>,
    /// What it carries.
    pub data: EarlyData,
}

/// What a held response carries.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EarlyData {
    /// A part of the data of a READ.
    Read {
        /// Whether the packet says that there is no more.
        last: bool,
        /// The data.
        data: Vec<u8>,
    },
    /// The value that an atomic found.
    Atomic(u64),
}

/// How often a path loses packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LossInterval {
    /// The oldest PSN without an answer when something was last lost.
    pub since: u32,
    /// PSNs between two losses, on the average.
    pub interval: u32,
}
