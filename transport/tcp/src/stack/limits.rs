//! How much a host may have, and what it counts.

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub struct StackLimits {
    /// In all.
    pub connections: usize,
    /// Of those that came to listeners and are not set up. Beyond that, SYNs are answered by
    /// cookies.
    pub half_open: usize,
    /// In TIME-WAIT: then the oldest of them is over.
    pub time_wait: usize,
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There are as many connections as there may be.
    Full,
    /// The tuple, or a listener's port, is in use.
    InUse,
    /// An address that nobody has alone.
    Address,
}

/// What happened on segments that belong to no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StackCounters {
    /// Connections that were half open and made room for others.
    pub evicted: u64,
    /// SYNs that were answered by a cookie: nothing is kept of them.
    pub cookies_sent: u64,
    /// Connections that were set up by a cookie.
    pub cookies_taken: u64,
    /// Acknowledges to listeners that had no cookie, or a wrong or old one, while there were any.
    pub cookies_refused: u64,
    /// SYNs, or acknowledges with a cookie, that were dropped for want of room.
    pub no_room: u64,
    /// Segments for nobody.
    pub for_nobody: u64,
    /// Segments from addresses that cannot be a peer's.
    pub bad_address: u64,
    /// TIME-WAITs that were cut short.
    pub short_wait: u64,
}
