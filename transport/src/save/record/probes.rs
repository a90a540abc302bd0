//! Round-trip times and probes in the record.

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
    /// Number of measured times, modulo 256.
    pub samples: u8,
}

/// What a peer of a device takes to answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerTime {
    /// Its address.
    pub gid: [u8; 16],
    /// The time.
    pub estimate: Estimate,
}

/// The probes of a QP.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Probes {
    /// When to act if nothing more is answered, on the caller's clock.
    pub at: Option<u64>,
    /// When packets were last sent again from the oldest one on, on the caller's clock.
    pub went_back: u64,
    /// How often that was because of one more NAK, since something was answered.
    pub naks: u8,
    /// The PSN that was next when the last probe was sent, until all before it are answered.
    pub end: Option<u32>,
    /// Number of probes since something was answered.
    pub sent: u8,
    /// Whether a probe is to be sent.
    pub is_due: bool,
}
