//! The drivers' requests for iWARP connections, and the events that drivers get.

use std::net::SocketAddr;
use vrdma_wire::num::Qpn;

/// Identifies a connection of a guest. Numbers of connections and listeners are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId(pub u32);

/// Identifies a listener of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId(pub u32);

/// The READs and atomics that each end of a connection may have in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depths {
    /// How many of the peer's are answered at the same time.
    pub ird: u8,
    /// How many may be outstanding.
    pub ord: u8,
}

/// The parameters of a new connection.
#[derive(Debug)]
pub struct Connect {
    /// The QP to be connected.
    pub qpn: Qpn,
    /// Whether the peer may send first.
    pub peer_to_peer: bool,
    /// Local address. With port 0, any port.
    pub local: SocketAddr,
    /// Remote address.
    pub remote: SocketAddr,
    /// The requested depths of READs and atomics.
    pub depths: Depths,
    /// Private data for the peer's program.
    pub private_data: Vec<u8>,
}

/// The driver's acceptance of a requested connection.
#[derive(Debug)]
pub struct Accept {
    /// The connection.
    pub connection: ConnectionId,
    /// The QP to be connected.
    pub qpn: Qpn,
    /// The requested depths of READs and atomics.
    pub depths: Depths,
    /// Private data for the peer's program.
    pub private_data: Vec<u8>,
}

/// Why a connection failed.
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
    /// The connection.
    pub connection: ConnectionId,
    /// Address of the guest's end.
    pub local: SocketAddr,
    /// Address of the peer's end.
    pub remote: SocketAddr,
    /// How many READs and atomics of the peer are answered at the same time.
    pub ird: u16,
    /// How many READs and atomics may be outstanding.
    pub ord: u16,
    /// Private data of the peer's program.
    pub private_data: Vec<u8>,
}
