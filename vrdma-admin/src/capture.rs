//! `org.vrdma.Capture`: captures of what guests send and receive.

use crate::Method;
use serde::{Deserialize, Serialize};

/// The method Start. A descriptor goes with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct StartCapture {
    /// What this guest sends or receives; `None`: what all do.
    pub guest: Option<String>,
    /// What the queue pairs of this number send or receive.
    pub qpn: Option<u32>,
    /// What has this address as its source or destination: an IP address or a GID.
    pub peer: Option<String>,
    /// Most bytes of a packet that are written; `None`: all.
    pub snap: Option<u32>,
    /// After how many packets the capture ends.
    pub count: Option<u64>,
}

/// What a capture has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct CaptureProgress {
    /// Packets that were written.
    pub packets: u64,
    /// Bytes that were written, with what the format adds.
    pub bytes: u64,
    /// Packets that are not written, because the file or its reader was too slow, or because the
    /// capture has ended.
    pub missed: u64,
    /// Why the capture has ended; `None` while it runs.
    pub end: Option<CaptureEnd>,
    /// What failed, if it ended because of that.
    pub reason: Option<String>,
}

/// Why a capture has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureEnd {
    /// The client sends nothing more.
    Asked,
    /// As many packets are written as were asked for.
    Count,
    /// The reader of the pipe or socket has closed it.
    Closed,
    /// Writing has failed.
    Failed,
    /// The guest of the capture was removed.
    GuestRemoved,
    /// The daemon is about to end.
    Stopping,
}

impl Method for StartCapture {
    const NAME: &'static str = "org.vrdma.Capture.Start";
    type Output = CaptureProgress;
}
