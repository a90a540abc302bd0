//! Counters of a guest beside those of the engine.

/// Counters of events between guest and device. Each answers a question that an operator may have.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct DeviceCounters {
    /// Requests taken from channels.
    pub requests: u64,
    /// Requests dropped because they named no QP or SRQ, or one of another context.
    pub stray_requests: u64,
    /// Requests dropped because the QP's state does not allow them.
    pub untimely_requests: u64,
    /// Requests that are invalid.
    pub invalid_requests: u64,
    /// Datagrams that named no valid address handle in use.
    pub bad_address_handles: u64,
    /// QPs with more requests outstanding than allowed.
    pub overflows: u64,
    /// Channels that broke the rules.
    pub broken_channels: u64,
    /// Completions generated.
    pub completions: u64,
    /// CQs that overran.
    pub cq_overruns: u64,
    /// Number of times that a kick woke the worker.
    pub kicks: u64,
    /// Panics in its session, or in a worker's step about it. Each ended its connection.
    pub panics: u64,
    /// Number of times that the device ended because another worker copied too long from its pinned
    /// memory.
    pub kept_loans: u64,
    /// Registrations refused because the daemon would have exceeded its limit of pages to make.
    pub refused_pages: u64,
    /// Events delivered, or waiting for a buffer.
    pub events: u64,
    /// Control commands answered with success.
    pub commands: u64,
    /// Control commands refused.
    pub refused_commands: u64,
    /// GIDs refused because the guest may not use them, or because another guest has them.
    pub refused_gids: u64,
    /// Connections of iWARP peers that were dropped. The guest reached its limit, or the system had
    /// no descriptors left.
    pub failed_accepts: u64,
}

impl DeviceCounters {
    /// Returns the number of requests in channels that were dropped, for any reason.
    pub fn bad_requests(&self) -> u64 {
        self.stray_requests + self.untimely_requests + self.invalid_requests
    }
}

/// Numbers of existing objects, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[allow(missing_docs, reason = "each field is named after its kind of object")]
pub struct ObjectCounts {
    pub contexts: u32,
    pub channels: u32,
    pub pds: u32,
    pub cqs: u32,
    pub mrs: u32,
    pub mws: u32,
    pub qps: u32,
    pub srqs: u32,
    pub xrcds: u32,
    pub gids: u32,
    pub mcast_attached: u32,
    pub ahs: u32,
    pub connections: u32,
    pub runs: u64,
    pub pending_requests: u64,
    pub reorder_packets: u32,
    pub reorder_bytes: u64,
}
