//! Parts of a connection's state: recovery, negotiated options, windows, timestamps, and what is
//! due.

use crate::prr::Prr;
use crate::seq::Range;
use crate::time::Instant;
use serde::{Deserialize, Serialize};

/// Whether a recovery from loss is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Recovery {
    /// Nothing is considered lost.
    Open,
    /// Fast recovery: a segment is lost, and later ones arrive. It ends when `until` is
    /// acknowledged.
    Fast { until: u64, prr: Prr },
    /// The retransmission timeout expired. Recovery ends when `until` is acknowledged.
    Timeout { until: u64 },
}

/// What is needed to undo a recovery that turns out to have been spurious.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Undo {
    /// All retransmitted segments are within these numbers.
    pub within: Range,
    /// How many retransmitted segments no DSACK has reported.
    pub unexplained: u32,
    /// The timestamp of the first retransmission (RFC 3522), until something is acknowledged.
    pub first_sent: Option<u32>,
}

/// The former length of segments, if the path takes only shorter ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FullSize {
    /// The former maximum data of a segment.
    pub mss: u64,
    /// After this time one segment may have the former length again.
    pub after: Instant,
    /// Where the segment ends that probes the former length. It has no answer yet.
    pub probe: Option<u64>,
}

/// What the SYNs of both ends negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Agreed {
    /// The shifts of the peer's windows and of ours.
    pub send_scale: u8,
    pub receive_scale: u8,
    /// Both SYNs have a window scale.
    pub scaled: bool,
    pub sack: bool,
    pub timestamps: bool,
    /// Segments say whether they are whole FPDUs.
    #[serde(default)]
    pub fpdus: bool,
}

/// The state of timestamps of both ends (RFC 7323).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamps {
    /// The offset of our clock of milliseconds.
    pub offset: u32,
    /// TS.Recent, and when it was set.
    pub recent: u32,
    pub recent_at: Instant,
    /// Last.ACK.sent.
    pub last_ack: u64,
}

/// The window that the peer allows: SND.WND.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SendWindow {
    pub size: u64,
    /// The numbers of the segment that set the window: SND.WL1, SND.WL2.
    pub seq: u64,
    pub ack: u64,
    /// The largest window so far: MAX.SND.WND.
    pub largest: u64,
}

/// What is to be sent as soon as possible, besides data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Due {
    pub ack: bool,
    /// A tail loss probe.
    pub tail_probe: bool,
    /// A segment that makes the peer report its window.
    pub window_probe: bool,
    pub keep_alive: bool,
    /// A RST with this number, and whether it has the ACK flag.
    pub reset: Option<(u32, bool)>,
}
