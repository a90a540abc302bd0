//! The limits and counters of a stack.

/// The maximum numbers of connections of a stack.
#[derive(Clone, Copy, Debug)]
pub struct StackLimits {
    /// Of all connections.
    pub connections: usize,
    /// Of half-open connections of listeners. Beyond that, SYNs are answered by cookies.
    pub half_open: usize,
    /// Of connections in TIME-WAIT. Beyond that, the oldest one ends.
    pub time_wait: usize,
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The limit of connections is reached.
    Full,
    /// The tuple, or a listener's port, is in use.
    InUse,
    /// The remote address is not a unicast address.
    Address,
}

/// Counters of segments that belong to no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StackCounters {
    /// Half-open connections that were removed to make room for others.
    pub evicted: u64,
    /// SYNs that were answered by a cookie, and of which nothing is kept.
    pub cookies_sent: u64,
    /// Connections that were set up by a cookie.
    pub cookies_taken: u64,
    /// ACKs to listeners without a valid cookie, while cookies were in use.
    pub cookies_refused: u64,
    /// SYNs, or ACKs with a cookie, that were dropped for lack of room.
    pub no_room: u64,
    /// Segments that belong to no connection and no listener.
    pub for_nobody: u64,
    /// Segments from addresses that cannot belong to a peer.
    pub bad_address: u64,
    /// TIME-WAITs that were cut short.
    pub short_wait: u64,
}
