//! Reasons for which messages are dropped.

/// The reason for which a segment is dropped.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// No device here has the address.
    NoRoute,
    /// The QP does not exist.
    NoQp,
    /// The QP is connected to another QP.
    NotConnected,
    /// The QP is not ready to receive.
    State,
    /// The PSN is not the expected one.
    Psn,
    /// The QP has another service.
    Service,
    /// The Q_Key is not the QP's.
    Qkey,
    /// There is no receive, and the service has no NAK.
    NoReceive,
    /// The message is longer than the receive, and the service has no NAK.
    Length,
    /// The message may not access the memory that it names, and the service has no NAK.
    Access,
    /// The message is not allowed or makes no sense, and the service has no NAK.
    Invalid,
}
