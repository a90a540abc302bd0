//! Shared receive queues in the record.

use super::Receive;
use serde::{Deserialize, Serialize};

/// A shared receive queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Srq {
    /// Its number.
    pub srq: u32,
    /// Who may post.
    pub owner: u32,
    /// Its PD.
    pub pd: u32,
    /// Most receives outstanding.
    pub max_wr: u32,
    /// Most elements of a receive.
    pub max_sge: u32,
    /// What is special about it if it is one of XRC. (Older records have none.)
    #[serde(default)]
    pub xrc: Option<XrcSrq>,
    /// The limit that is armed, or 0.
    pub limit: u32,
    /// It takes no receives any more.
    pub failed: bool,
    /// Its receives, in order.
    pub receives: Vec<Receive>,
    /// QPNs of those whose peers on this host wait for a receive, in order.
    pub waiting: Vec<u32>,
    /// Those of them whose peers were woken by a receive and have not tried, in the same order.
    pub woken: Vec<u32>,
}

/// [`XrcSrq`](crate::XrcSrq).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct XrcSrq {
    /// Its XRC domain.
    pub xrcd: u32,
    /// Where its receives complete.
    pub cq: u32,
}
