//! Shared receive queues: what they are created with, and their attributes.

use vrdma_abi::control::{CreateSrqReq, ModifySrqReq, QuerySrqResp, Status, limit, srq_attr};
use vrdma_transport::{CqId, OwnerId, PdId, SrqAttr, SrqInit, XrcSrq, XrcdId};

/// What a new shared receive queue is to be.
///
/// # Errors
/// `INVALID`: an XRC domain without a CQ, or a CQ without a domain.
pub fn init(req: &CreateSrqReq) -> Result<SrqInit, Status> {
    let xrc = match (req.xrcdn.get(), req.cqn.get()) {
        (limit::NONE, limit::NONE) => None,
        (limit::NONE, _) | (_, limit::NONE) => return Err(Status::INVALID),
        (xrcdn, cqn) => Some(XrcSrq { xrcd: XrcdId(xrcdn), cq: CqId(cqn) }),
    };
    Ok(SrqInit {
        owner: OwnerId(req.context.get()),
        pd: PdId(req.pdn.get()),
        max_wr: req.max_wr.get(),
        max_sge: req.max_sge.get(),
        xrc,
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
