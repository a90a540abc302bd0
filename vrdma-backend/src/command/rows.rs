//! The list of all commands.

use super::base::{Command, StatusResult};
use super::body::Body;
use super::caller::Caller;
use super::{ah, channel, cm, context, cq, gid, mcast, mr, mw, pd, port, qp, query, srq, xrcd};
use crate::config::Transport;
use crate::worker::Job;
use vrdma_abi::control::Opcode;
use vrdma_abi::zerocopy::IntoBytes;

/// A row of the command list: the facts that precede parsing, and how to parse a request.
pub(super) struct Row {
    opcode: Opcode,
    pub transport: Option<Transport>,
    /// Size of the reply's structure in bytes: in ABI 1.0 (`first_reply`), and in this version
    /// (`reply`).
    pub first_reply: usize,
    pub reply: usize,
    /// Makes a job from a request. The job returns the bytes of the reply's structure.
    pub job: fn(&Body<'_>, &Caller<'_>) -> StatusResult<Job<Vec<u8>>>,
}

impl Row {
    const fn of<C: Command>() -> Row {
        Row {
            opcode: C::OPCODE,
            transport: C::TRANSPORT,
            first_reply: C::FIRST_REPLY,
            reply: size_of::<C::Reply>(),
            job: |body, caller| {
                let (request, extents) = body.read::<C::Request>(C::EXTENTS)?;
                Ok(C::parse(&request, &extents, caller)?.job().map(|reply| reply.as_bytes().to_vec()))
            },
        }
    }

    /// Returns the row of the command with this number, if there is one.
    pub fn find(opcode: Opcode) -> Option<&'static Row> {
        ROWS.iter().find(|row| row.opcode == opcode)
    }
}

/// All commands.
const ROWS: &[Row] = &[
    Row::of::<query::QueryDevice>(),
    Row::of::<port::QueryPort>(),
    Row::of::<gid::QueryGid>(),
    Row::of::<gid::AddGid>(),
    Row::of::<gid::DelGid>(),
    Row::of::<context::AllocContext>(),
    Row::of::<context::DeallocContext>(),
    Row::of::<channel::BindChannel>(),
    Row::of::<channel::UnbindChannel>(),
    Row::of::<port::SetPortMtu>(),
    Row::of::<query::QueryCounters>(),
    Row::of::<query::QueryClock>(),
    Row::of::<pd::AllocPd>(),
    Row::of::<pd::DeallocPd>(),
    Row::of::<xrcd::AllocXrcd>(),
    Row::of::<xrcd::DeallocXrcd>(),
    Row::of::<cq::CreateCq>(),
    Row::of::<cq::DestroyCq>(),
    Row::of::<cq::ResizeCq>(),
    Row::of::<cq::ModifyCq>(),
    Row::of::<mr::RegMr>(),
    Row::of::<mr::DeregMr>(),
    Row::of::<mr::GetDmaMr>(),
    Row::of::<mw::AllocMw>(),
    Row::of::<mw::DeallocMw>(),
    Row::of::<mr::ReregMr>(),
    Row::of::<mr::AllocFastMr>(),
    Row::of::<qp::CreateQp>(),
    Row::of::<qp::ModifyQp>(),
    Row::of::<qp::QueryQp>(),
    Row::of::<qp::DestroyQp>(),
    Row::of::<ah::SetAhTable>(),
    Row::of::<srq::CreateSrq>(),
    Row::of::<srq::ModifySrq>(),
    Row::of::<srq::QuerySrq>(),
    Row::of::<srq::DestroySrq>(),
    Row::of::<mcast::AttachMcast>(),
    Row::of::<mcast::DetachMcast>(),
    Row::of::<cm::CmListen>(),
    Row::of::<cm::CmCloseListener>(),
    Row::of::<cm::CmConnect>(),
    Row::of::<cm::CmAccept>(),
    Row::of::<cm::CmReject>(),
    Row::of::<cm::CmDisconnect>(),
    Row::of::<cm::CmRelease>(),
    Row::of::<cm::CmGetEvent>(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_opcode_has_one_row() {
        let rows: Vec<u64> = ROWS.iter().map(|row| row.opcode.0.into()).collect();
        let opcodes: Vec<u64> = Opcode::INFO.consts.iter().map(|(_, opcode, _)| *opcode).collect();
        for opcode in &opcodes {
            assert_eq!(rows.iter().filter(|&row| row == opcode).count(), 1, "opcode {opcode}");
        }
        assert_eq!(rows.len(), opcodes.len());
    }
}
