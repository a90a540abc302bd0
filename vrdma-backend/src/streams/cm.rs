//! What drivers ask for, of connections of iWARP, and what they are told.

use std::net::SocketAddr;
use vrdma_wire::num::Qpn;

/// Names a connection of a guest. Numbers of connections and of listeners are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId(pub u32);

/// Names a listener of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId(pub u32);

/// READs and atomics that each end of a connection is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depths {
    /// Answered at once.
    pub ird: u8,
    /// Outstanding.
    pub ord: u8,
}

/// What a connection is to be.
#[derive(Debug)]
pub struct Connect {
    /// The QP that is to be connected.
    pub qpn: Qpn,
    /// The peer may send first.
    pub peer_to_peer: bool,
    /// Where from. Without a port: any.
    pub local: SocketAddr,
    /// Where to.
    pub remote: SocketAddr,
    /// READs and atomics that it wants.
    pub depths: Depths,
    /// For the peer's program.
    pub private_data: Vec<u8>,
}

/// What to do with a connection that was requested.
#[derive(Debug)]
pub struct Accept {
    /// Which connection.
    pub connection: ConnectionId,
    /// The QP that is to be connected.
    pub qpn: Qpn,
    /// READs and atomics that it wants.
    pub depths: Depths,
    /// For the peer's program.
    pub private_data: Vec<u8>,
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "documented where their numbers are, in abi/src/control/cm.rs")]
pub enum Failure {
    Refused,
    TimedOut,
    Reset,
    Unreachable,
    Protocol,
    InUse,
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "documented where their numbers are, in abi/src/control/cm.rs")]
pub enum What {
    ConnectRequest { listener: ListenerId },
    ConnectReply(Result<(), Failure>),
    Established,
    Disconnect,
    Close,
}

/// An event of a connection.
#[derive(Clone, Debug)]
pub struct CmEvent {
    /// What happened.
    pub what: What,
    /// To which connection.
    pub connection: ConnectionId,
    /// The guest's end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// READs and atomics of the peer that are answered at once.
    pub ird: u16,
    /// READs and atomics that may be outstanding.
    pub ord: u16,
    /// Of the peer's program.
    pub private_data: Vec<u8>,
}
