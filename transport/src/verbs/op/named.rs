//! What a request of an operation names: memory of the peer, immediate data, a key.

use super::{Receive, Remote, SendOp};
use vrdma_wire::num::{Imm, Rkey};

impl SendOp {
    /// The place in the peer's memory that it names.
    #[inline]
    pub(crate) fn remote(&self) -> Option<Remote> {
        match *self {
            SendOp::Send { .. }
            | SendOp::SendInvalidate { .. }
            | SendOp::BindMw(_)
            | SendOp::LocalInvalidate { .. }
            | SendOp::RegMr { .. } => None,
            SendOp::Write { remote, .. }
            | SendOp::Read { remote }
            | SendOp::CompareSwap { remote, .. }
            | SendOp::FetchAdd { remote, .. }
            | SendOp::AtomicWrite { remote }
            | SendOp::Flush { remote, .. } => Some(remote),
        }
    }

    /// Its immediate data.
    #[inline]
    pub(crate) fn imm(&self) -> Option<Imm> {
        match *self {
            SendOp::Send { imm } | SendOp::Write { imm, .. } => imm,
            SendOp::Read { .. }
            | SendOp::CompareSwap { .. }
            | SendOp::FetchAdd { .. }
            | SendOp::AtomicWrite { .. }
            | SendOp::Flush { .. }
            | SendOp::SendInvalidate { .. }
            | SendOp::BindMw(_)
            | SendOp::LocalInvalidate { .. }
            | SendOp::RegMr { .. } => None,
        }
    }

    /// The key of the peer that it invalidates.
    #[inline]
    pub(crate) fn invalidates(&self) -> Option<Rkey> {
        match *self {
            SendOp::SendInvalidate { key } => Some(key),
            _ => None,
        }
    }

    /// Whether it takes a receive of the peer.
    #[inline]
    pub(crate) fn takes_receive(&self) -> bool {
        match self.row().receive {
            Receive::Never => false,
            Receive::Always => true,
            Receive::WithImm => self.imm().is_some(),
        }
    }
}
