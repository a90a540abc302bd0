//! The kinds of queue pairs.

/// Transport service of a QP, and the send requests that it supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reliable connection: all requests.
    Rc,
    /// Unreliable connection: SEND and WRITE.
    Uc,
    /// Unreliable datagram: SEND.
    Ud,
    /// XRC initiator: all requests, as for reliable connections.
    XrcSend,
    /// XRC target: no requests.
    XrcRecv,
}

impl Kind {
    /// Whether the QP supports all requests.
    #[inline]
    pub fn is_reliable(self) -> bool {
        matches!(self, Kind::Rc | Kind::XrcSend)
    }
}
