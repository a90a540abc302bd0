//! Enums of the record. Their names are part of the format, whatever the engine's own names are.
//!
//! The module of an engine enum declares which variants correspond
//! ([`same_names`](super::same_names)).

use serde::{Deserialize, Serialize};

/// The service of a QP.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// QP1.
    Gsi,
    /// XRC initiator. (From version 4 on.)
    XrcSend,
    /// XRC target. (From version 4 on.)
    XrcRecv,
}

/// State of a QP (IBTA 10.3.1).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QpState {
    /// RESET.
    Reset,
    /// INIT.
    Init,
    /// RTR.
    Rtr,
    /// RTS.
    Rts,
    /// SQD.
    Sqd,
    /// SQE.
    Sqe,
    /// ERR.
    Err,
}

/// A path MTU.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mtu {
    /// 256 bytes.
    M256,
    /// 512 bytes.
    M512,
    /// 1024 bytes.
    M1024,
    /// 2048 bytes.
    M2048,
    /// 4096 bytes.
    M4096,
}

/// The transport kind of a QP.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransportKind {
    /// Within the engine, or not chosen yet. Also of datagram QPs, where each datagram is routed by
    /// itself.
    Local,
    /// RoCEv2 packets.
    Roce,
    /// A TCP stream.
    Tcp,
}

/// The first message of a stream, which its initiator sends.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyToReceive {
    /// An FPDU without a ULPDU.
    Fpdu,
    /// A WRITE of no bytes.
    Write,
    /// A READ of no bytes.
    Read,
}

/// Which peers may use a memory window.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MwType {
    /// Peers of all QPs of its PD.
    Type1,
    /// Peers of the QP that bound it.
    Type2B,
}

/// What the first request of a send queue waits for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Nothing.
    No,
    /// A receive of the peer.
    Receive,
    /// An answer of the peer.
    Answer,
    /// The caller, to drain posts that may include a receive.
    #[serde(rename = "look")]
    Drain,
    /// Nothing: the caller has drained the posts.
    #[serde(rename = "looked")]
    Drained,
    /// Nothing: the peer had a receive. (From version 3 on.)
    Woken,
}

/// The kind of message that has begun and not ended at its responder.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// No message.
    None,
    /// A message into a receive.
    Send,
    /// A message into a region.
    Write,
}

/// How far a FLUSH goes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// To global visibility.
    Global,
    /// To persistence.
    Persistent,
    /// Both.
    Both,
}

/// A task for all QPs of a device.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// The device resumes: everything that waited is tried at once.
    GoOn,
    /// The link is up again: everything without an answer is retransmitted.
    StartOver,
    /// The QPs' own addresses are updated from the GID table.
    Sources,
}

/// What is still to be sent of the response to a READ or atomic.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pending {
    /// Nothing: it was sent.
    Nothing,
    /// All or part of it, for the first time.
    First,
    /// It was sent in full, and is sent again on request.
    Again,
}

/// The port to other hosts, and its link.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// There is no port.
    None,
    /// The link is down.
    Down,
    /// The link is up.
    Up,
}
