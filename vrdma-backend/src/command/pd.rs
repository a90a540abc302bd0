//! Protection domains: ALLOC_PD and DEALLOC_PD.

use super::base::{Command, Nothing, StatusResult, new_object, nothing, object};
use super::caller::Caller;
use crate::device;
use crate::memory::Extent;
use crate::worker::Worker;
use vrdma_abi::control::{ObjectReq, ObjectResp, Opcode};
use vrdma_transport::{DeviceId, OwnerId, PdId};

/// ALLOC_PD.
#[derive(Debug)]
pub struct AllocPd {
    /// The context that will own the PD.
    pub context: OwnerId,
}

impl Command for AllocPd {
    const OPCODE: Opcode = Opcode::ALLOC_PD;
    type Request = ObjectReq;
    type Reply = ObjectResp;

    fn parse(request: &ObjectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self { context: OwnerId(object(request)?) })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<ObjectResp> {
        let Worker { engine, outputs, .. } = worker;
        outputs.device(id).alloc_pd(engine, self.context).map(|pd| new_object(pd.0))
    }
}

/// DEALLOC_PD.
#[derive(Debug)]
pub struct DeallocPd {
    /// The PD to destroy.
    pub pd: PdId,
}

impl Command for DeallocPd {
    const OPCODE: Opcode = Opcode::DEALLOC_PD;
    type Request = ObjectReq;
    type Reply = Nothing;

    fn parse(request: &ObjectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self { pd: PdId(object(request)?) })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        let Worker { engine, outputs, .. } = worker;
        outputs.device(id).dealloc_pd(engine, self.pd).map(nothing)
    }
}
