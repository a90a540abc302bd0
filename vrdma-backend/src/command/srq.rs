//! Shared receive queues: CREATE_SRQ, MODIFY_SRQ, QUERY_SRQ and DESTROY_SRQ.

use super::base::{Command, Nothing, StatusResult, nothing, object};
use super::caller::Caller;
use crate::device;
use crate::memory::Extent;
use crate::worker::{Order, Worker};
use vrdma_abi::control::{
    CreateSrqReq, CreateSrqResp, ModifySrqReq, ObjectReq, Opcode, QuerySrqResp, Status, limit, srq_attr,
};
use vrdma_transport::{CqId, DeviceId, OwnerId, PdId, SrqId, SrqInit, XrcSrq, XrcdId};

/// CREATE_SRQ.
#[derive(Debug)]
pub struct CreateSrq {
    /// The shared receive queue to create.
    pub init: SrqInit,
}

impl Command for CreateSrq {
    const OPCODE: Opcode = Opcode::CREATE_SRQ;
    type Request = CreateSrqReq;
    type Reply = CreateSrqResp;

    fn parse(request: &CreateSrqReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        let xrc = match (request.xrcdn.get(), request.cqn.get()) {
            (limit::NONE, limit::NONE) => None,
            (limit::NONE, _) | (_, limit::NONE) => return Err(Status::INVALID),
            (xrcdn, cqn) => Some(XrcSrq { xrcd: XrcdId(xrcdn), cq: CqId(cqn) }),
        };
        let init = SrqInit {
            owner: OwnerId(request.context.get()),
            pd: PdId(request.pdn.get()),
            max_wr: request.max_wr.get(),
            max_sge: request.max_sge.get(),
            xrc,
        };
        Ok(Self { init })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<CreateSrqResp> {
        let Worker { engine, outputs, .. } = worker;
        let srq = outputs.device(id).create_srq(engine, self.init)?;
        Ok(CreateSrqResp { srqn: srq.0.into(), reserved: 0.into() })
    }
}

/// MODIFY_SRQ.
#[derive(Debug)]
pub struct ModifySrq {
    /// The queue.
    pub srq: SrqId,
    /// The new capacity in receives, if it changes.
    pub max_wr: Option<u32>,
    /// The new limit, if it changes: an event is due when there are fewer receives than this.
    pub limit: Option<u32>,
}

impl Command for ModifySrq {
    const OPCODE: Opcode = Opcode::MODIFY_SRQ;
    type Request = ModifySrqReq;
    type Reply = Nothing;

    fn parse(request: &ModifySrqReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        let mask = request.mask.get();
        if mask & !(srq_attr::MAX_WR | srq_attr::LIMIT) != 0 {
            return Err(Status::INVALID);
        }
        let if_set = |bit, value: u32| (mask & bit != 0).then_some(value);
        Ok(Self {
            srq: SrqId(request.srqn.get()),
            max_wr: if_set(srq_attr::MAX_WR, request.max_wr.get()),
            limit: if_set(srq_attr::LIMIT, request.limit.get()),
        })
    }

    fn order(&self) -> Order {
        Order::Srq(self.srq)
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        let Worker { engine, outputs, .. } = worker;
        let old = engine.query_srq(id, self.srq)?.max_wr;
        outputs.device(id).check_resize(old, self.max_wr.unwrap_or(old))?;
        engine.modify_srq(id, self.srq, (self.max_wr, self.limit), outputs)?;
        let new = engine.query_srq(id, self.srq)?.max_wr;
        outputs.device(id).resized(old, new);
        Ok([])
    }
}

/// QUERY_SRQ.
#[derive(Debug)]
pub struct QuerySrq {
    /// The queue.
    pub srq: SrqId,
}

impl Command for QuerySrq {
    const OPCODE: Opcode = Opcode::QUERY_SRQ;
    type Request = ObjectReq;
    type Reply = QuerySrqResp;

    fn parse(request: &ObjectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self { srq: SrqId(object(request)?) })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<QuerySrqResp> {
        let attr = worker.engine.query_srq(id, self.srq)?;
        Ok(QuerySrqResp {
            max_wr: attr.max_wr.into(),
            max_sge: attr.max_sge.into(),
            limit: attr.limit.into(),
            reserved: 0.into(),
        })
    }
}

/// DESTROY_SRQ.
#[derive(Debug)]
pub struct DestroySrq {
    /// The shared receive queue to destroy.
    pub srq: SrqId,
}

impl Command for DestroySrq {
    const OPCODE: Opcode = Opcode::DESTROY_SRQ;
    type Request = ObjectReq;
    type Reply = Nothing;

    fn parse(request: &ObjectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self { srq: SrqId(object(request)?) })
    }

    fn order(&self) -> Order {
        Order::Srq(self.srq)
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        let Worker { engine, outputs, .. } = worker;
        outputs.device(id).destroy_srq(engine, self.srq).map(nothing)
    }
}
