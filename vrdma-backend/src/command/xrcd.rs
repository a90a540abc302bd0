//! XRC domains: ALLOC_XRCD and DEALLOC_XRCD.

use super::base::{Command, Nothing, StatusResult, new_object, nothing, object};
use super::caller::Caller;
use crate::config::Transport;
use crate::device;
use crate::memory::Extent;
use crate::worker::Worker;
use vrdma_abi::control::{ObjectReq, ObjectResp, Opcode};
use vrdma_transport::{DeviceId, XrcdId};

/// ALLOC_XRCD.
#[derive(Debug)]
pub struct AllocXrcd;

impl Command for AllocXrcd {
    const OPCODE: Opcode = Opcode::ALLOC_XRCD;
    const TRANSPORT: Option<Transport> = Some(Transport::Roce);
    type Request = Nothing;
    type Reply = ObjectResp;

    fn parse(_: &Nothing, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self)
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<ObjectResp> {
        worker.engine.alloc_xrcd(id).map(|xrcd| new_object(xrcd.0))
    }
}

/// DEALLOC_XRCD.
#[derive(Debug)]
pub struct DeallocXrcd {
    /// The XRC domain to destroy.
    pub xrcd: XrcdId,
}

impl Command for DeallocXrcd {
    const OPCODE: Opcode = Opcode::DEALLOC_XRCD;
    const TRANSPORT: Option<Transport> = Some(Transport::Roce);
    type Request = ObjectReq;
    type Reply = Nothing;

    fn parse(request: &ObjectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self { xrcd: XrcdId(object(request)?) })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        worker.engine.dealloc_xrcd(id, self.xrcd).map(nothing)
    }
}
