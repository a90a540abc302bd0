//! Why messages are dropped.

/// Why a segment is dropped.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// Nobody here has the address.
    NoRoute,
    /// There is no such QP.
    NoQp,
    /// The QP is connected to another.
    NotConnected,
    /// The QP is not ready to receive.
    State,
    /// Not the PSN expected.
    Psn,
    /// The QP is of another service.
    Service,
    /// Not the QP's Q_Key.
    Qkey,
    /// There is no receive, and no way to tell.
    NoReceive,
    /// It is longer than the receive, and there is no way to tell.
    Length,
    /// It may not touch the memory that it names, and there is no way to tell.
    Access,
    /// It is not allowed or makes no sense, and there is no way to tell.
    Invalid,
}
