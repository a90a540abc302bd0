//! What is counted of a guest beside what the engine counts.

/// What happened at the border between guest and device; each answers a question that an operator
/// may ask.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct DeviceCounters {
    /// Requests taken from channels.
    pub requests: u64,
    /// Requests dropped: they named no QP, or one of another context.
    pub stray_requests: u64,
    /// Requests dropped: the QP's state does not allow them.
    pub untimely_requests: u64,
    /// Requests that could not be understood.
    pub invalid_requests: u64,
    /// Datagrams that named no address handle that is in use and makes sense.
    pub bad_address_handles: u64,
    /// QPs that had more outstanding than they may.
    pub overflows: u64,
    /// Channels that broke the rules.
    pub broken_channels: u64,
    /// Completions made.
    pub completions: u64,
    /// CQs that overran.
    pub cq_overruns: u64,
    /// Times that the worker was woken by a kick.
    pub kicks: u64,
    /// Panics in its session, or in a step of its worker about it, which ended its connection.
    pub panics: u64,
    /// Times that it ended because another worker copied for too long from memory that it had lent.
    pub kept_loans: u64,
    /// Registrations refused because the daemon would have had more pages of its memory made than
    /// it may.
    pub refused_pages: u64,
    /// Events handed over, or waiting for a buffer.
    pub events: u64,
    /// Control commands answered with success.
    pub commands: u64,
    /// Control commands refused.
    pub refused_commands: u64,
    /// GIDs refused: the guest may not use them, or another guest has them.
    pub refused_gids: u64,
    /// Connections of peers (iWARP) that were dropped: the guest has as many as it may, or the
    /// system is out of descriptors.
    pub failed_accepts: u64,
}

impl DeviceCounters {
    /// Requests in channels that were dropped, for whatever reason.
    pub fn bad_requests(&self) -> u64 {
        self.stray_requests + self.untimely_requests + self.invalid_requests
    }
}

/// Objects that exist, by kind.
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
}
