//! Memory windows: ALLOC_MW and DEALLOC_MW.

use super::base::{Command, Nothing, StatusResult, new_object, nothing, object};
use super::caller::Caller;
use crate::device;
use crate::memory::Extent;
use crate::worker::Worker;
use vrdma_abi::control::{AllocMwReq, ObjectReq, ObjectResp, Opcode, Status, mw_type};
use vrdma_transport::{DeviceId, MwType, PdId};
use vrdma_wire::num::Rkey;

/// ALLOC_MW.
#[derive(Debug)]
pub struct AllocMw {
    /// Its PD.
    pub pd: PdId,
    /// Its type.
    pub mw_type: MwType,
}

impl Command for AllocMw {
    const OPCODE: Opcode = Opcode::ALLOC_MW;
    type Request = AllocMwReq;
    type Reply = ObjectResp;

    fn parse(request: &AllocMwReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        let mw_type = match request.mw_type.get() {
            mw_type::TYPE_1 => MwType::Type1,
            mw_type::TYPE_2B => MwType::Type2B,
            _ => return Err(Status::INVALID),
        };
        Ok(Self { pd: PdId(request.pdn.get()), mw_type })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<ObjectResp> {
        worker.engine.alloc_mw(id, self.pd, self.mw_type).map(|key| new_object(key.0))
    }
}

/// DEALLOC_MW.
#[derive(Debug)]
pub struct DeallocMw {
    /// The key of the window to destroy.
    pub key: Rkey,
}

impl Command for DeallocMw {
    const OPCODE: Opcode = Opcode::DEALLOC_MW;
    type Request = ObjectReq;
    type Reply = Nothing;

    fn parse(request: &ObjectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self { key: Rkey(object(request)?) })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        worker.engine.dealloc_mw(id, self.key).map(nothing)
    }
}
