//! Enums of the record: their names are part of the format, whatever the engine calls its own. Each
//! owner of one of the engine's says which names are the same ([`same_names`](super::same_names)).

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

/// What carries the messages of a connected QP.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// The engine itself, or nobody yet; each datagram is carried as it goes.
    Local,
    /// Packets of RoCEv2.
    Roce,
    /// A stream of TCP.
    Tcp,
}

/// What the initiator of a stream sends before all else.
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

/// Who may use a memory window.
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
    /// The peer to post a receive.
    Receive,
    /// The peer to answer.
    Answer,
    /// The caller to look whether a receive has been posted.
    Look,
    /// Nothing: the caller has looked.
    Looked,
    /// Nothing: the peer had a receive. (From version 3 on.)
    Woken,
}

/// A message that has begun and not ended at its responder.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// There is none.
    None,
    /// Into a receive.
    Send,
    /// Into a region.
    Write,
}

/// How far a FLUSH is to go.
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

/// What is done to all QPs of a device.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// The device goes on: what waited is tried at once.
    GoOn,
    /// The link is up again: what was not answered is sent again.
    StartOver,
    /// Own addresses of QPs follow the GID table.
    Sources,
}

/// What is to be sent of the response to a READ or atomic.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pending {
    /// Nothing: it was answered.
    Nothing,
    /// It was never answered in full.
    First,
    /// It was answered, and asked for again.
    Again,
}

/// Whether there is a port to other hosts, and its link.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// There is no port.
    None,
    /// Its link is down.
    Down,
    /// Its link is up.
    Up,
}
