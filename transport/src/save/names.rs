//! Enums of the record: their names are part of the format, whatever the engine calls its own.

use crate::carrier::Carrier as EngineCarrier;
use crate::engine::sweep::Task as EngineTask;
use crate::op::Message as EngineMessage;
use crate::qp::attr::{QpState as EngineQpState, QpType as EngineQpType};
use crate::qp::requester::Wait as EngineWait;
use serde::{Deserialize, Serialize};
use vrdma_wire::num::Mtu as WireMtu;

/// An enum of the record, and the ways to and from the engine's.
macro_rules! named {
    ($(#[$what:meta])* $name:ident is $of:ident { $($(#[$doc:meta])* $variant:ident,)* }) => {
        $(#[$what])*
        #[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl From<$of> for $name {
            fn from(value: $of) -> $name {
                match value {
                    $($of::$variant => $name::$variant,)*
                }
            }
        }

        impl From<$name> for $of {
            fn from(value: $name) -> $of {
                match value {
                    $($name::$variant => $of::$variant,)*
                }
            }
        }
    };
}

named! {
/// The service of a QP.
QpType is EngineQpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// QP1.
    Gsi,
}
}

named! {
/// State of a QP (IBTA 10.3.1).
QpState is EngineQpState {
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
}

named! {
/// A path MTU.
Mtu is WireMtu {
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
}

named! {
/// What carries the messages of a connected QP.
Carrier is EngineCarrier {
    /// The engine itself, or nobody yet; each datagram is carried as it goes.
    Local,
    /// Packets of RoCEv2.
    Roce,
}
}

named! {
/// What the first request of a send queue waits for.
Wait is EngineWait {
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
}
}

named! {
/// A message that has begun and not ended at its responder.
Message is EngineMessage {
    /// There is none.
    None,
    /// Into a receive.
    Send,
    /// Into a region.
    Write,
}
}

named! {
/// What is done to all QPs of a device.
Task is EngineTask {
    /// The device goes on: what waited is tried at once.
    GoOn,
    /// The link is up again: what was not answered is sent again.
    StartOver,
    /// Own addresses of QPs follow the GID table.
    Sources,
}
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
