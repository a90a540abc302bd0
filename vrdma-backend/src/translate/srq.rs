//! Shared receive queues: what they are created with, and their attributes.

use vrdma_abi::control::{CreateSrqReq, ModifySrqReq, QuerySrqResp, Status, limit, srq_attr};
use vrdma_transport::{OwnerId, PdId, SrqAttr, SrqInit};

/// What a new shared receive queue is to be.
///
/// # Errors
/// `UNSUPPORTED`: one for XRC.
pub fn init(req: &CreateSrqReq) -> Result<SrqInit, Status> {
    if (req.xrcdn.get(), req.cqn.get()) != (limit::NONE, limit::NONE) {
        return Err(Status::UNSUPPORTED);
    }
    Ok(SrqInit {
        owner: OwnerId(req.context.get()),
        pd: PdId(req.pdn.get()),
        max_wr: req.max_wr.get(),
        max_sge: req.max_sge.get(),
    })
}

/// What is to change: how many receives it can hold, and its limit.
///
/// # Errors
/// `INVALID`: an unknown attribute.
pub fn changes(req: &ModifySrqReq) -> Result<(Option<u32>, Option<u32>), Status> {
    let mask = req.mask.get();
    if mask & !(srq_attr::MAX_WR | srq_attr::LIMIT) != 0 {
        return Err(Status::INVALID);
    }
    let if_set = |bit, value: u32| (mask & bit != 0).then_some(value);
    Ok((if_set(srq_attr::MAX_WR, req.max_wr.get()), if_set(srq_attr::LIMIT, req.limit.get())))
}

/// What the driver asked for.
pub fn response(attr: &SrqAttr) -> QuerySrqResp {
    QuerySrqResp {
        max_wr: attr.max_wr.into(),
        max_sge: attr.max_sge.into(),
        limit: attr.limit.into(),
        reserved: 0.into(),
    }
}
