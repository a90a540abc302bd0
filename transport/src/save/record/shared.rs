//! Shared receive queues in the record.

use super::Receive;
use serde::{Deserialize, Serialize};

/// A shared receive queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Srq {
    /// Its number.
    pub srq: u32,
    /// The context that may post.
    pub owner: u32,
    /// Its PD.
    pub pd: u32,
    /// Most receives outstanding.
    pub max_wr: u32,
    /// Most elements of a receive.
    pub max_sge: u32,
    /// Set for a shared receive queue of XRC. (Older records have none.)
    #[serde(default)]
    pub xrc: Option<XrcSrq>,
    /// The limit that is armed, or 0.
    pub limit: u32,
    /// Whether the queue failed and takes no more receives.
    pub failed: bool,
    /// Its receives, in order.
    pub receives: Vec<Receive>,
    /// QPNs of QPs whose peers on this host wait for a receive, in order.
    pub waiting: Vec<u32>,
    /// QPNs of those QPs whose peers were woken by a receive and have not tried, in that order.
    pub woken: Vec<u32>,
}

/// [`XrcSrq`](crate::XrcSrq).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct XrcSrq {
    /// Its XRC domain.
    pub xrcd: u32,
    /// The CQ in which its receives complete.
    pub cq: u32,
}
