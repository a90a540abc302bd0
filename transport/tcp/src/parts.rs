//! Parts of a connection's state: what recovers, what was agreed on, which window there is, what is
//! due.

use crate::prr::Prr;
use crate::seq::Range;
use crate::time::Instant;
use serde::{Deserialize, Serialize};

/// Whether something is taken for lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Recovery {
    /// Nothing is.
    Open,
    /// Something is, and what comes after it arrives. It is over when `until` is acknowledged.
    Fast { until: u64, prr: Prr },
    /// The retransmission timeout ran out.
    Timeout { until: u64 },
}

/// How a recovery may turn out to have been for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Undo {
    /// What was sent again is within these numbers.
    pub within: Range,
    /// How many segments were, that no DSACK has told of.
    pub unexplained: u32,
    /// The timestamp of the first of them (RFC 3522), until something is acknowledged.
    pub first_sent: Option<u32>,
}

/// What all segments were as long as, before the path turned out to take only shorter ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FullSize {
    /// Most data of a segment then.
    pub mss: u64,
    /// One may be as long again after this,
    pub after: Instant,
    /// and was: here it ends. It has no answer yet.
    pub probe: Option<u64>,
}

/// What both ends agreed on, or one says, in their SYNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Agreed {
    /// Shift of the peer's windows, and of ours.
    pub send_scale: u8,
    pub receive_scale: u8,
    /// Both SYNs have a scale.
    pub scaled: bool,
    pub sack: bool,
    pub timestamps: bool,
    /// Segments say that they are whole FPDUs.
    #[serde(default)]
    pub fpdus: bool,
}

/// What is known of the peer's timestamps, and ours (RFC 7323).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamps {
    /// What is added to our clock of milliseconds.
    pub offset: u32,
    /// TS.Recent, and when it was.
    pub recent: u32,
    pub recent_at: Instant,
    /// Last.ACK.sent.
    pub last_ack: u64,
}

/// The window that the peer allows: SND.WND.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SendWindow {
    pub size: u64,
    /// The numbers of the segment that told it last: SND.WL1, SND.WL2.
    pub seq: u64,
    pub ack: u64,
    /// The largest that there was: MAX.SND.WND.
    pub largest: u64,
}

/// What is to be sent as soon as possible, beside data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Due {
    pub ack: bool,
    /// A segment that probes the tail.
    pub tail_probe: bool,
    /// Something that makes the peer tell its window.
    pub window_probe: bool,
    pub keep_alive: bool,
    /// A RST with this number, and whether it acknowledges.
    pub reset: Option<(u32, bool)>,
}
