//! Fields that only some operations have: memory of the peer, immediate data, a key.

use super::{Receive, Remote, SendOp};
use vrdma_wire::num::{Imm, Rkey};

impl SendOp {
    /// Returns the address and key in the peer's memory that the operation names.
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

    /// Returns the immediate data.
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

    /// Returns the peer's key that the operation invalidates.
    #[inline]
    pub(crate) fn invalidates(&self) -> Option<Rkey> {
        match *self {
            SendOp::SendInvalidate { key } => Some(key),
            _ => None,
        }
    }

    /// Whether the operation takes a receive of the peer.
    #[inline]
    pub(crate) fn takes_receive(&self) -> bool {
        match self.row().receive {
            Receive::Never => false,
            Receive::Always => true,
            Receive::WithImm => self.imm().is_some(),
        }
    }
}
