//! User contexts: ALLOC_CONTEXT and DEALLOC_CONTEXT.

use super::base::{Command, Nothing, StatusResult, new_object, nothing, object};
use super::caller::Caller;
use crate::device;
use crate::memory::Extent;
use crate::worker::Worker;
use vrdma_abi::control::{ObjectReq, ObjectResp, Opcode, limit};
use vrdma_transport::{DeviceId, OwnerId};

// The ABI and the engine use the same number for the kernel's context.
const _: () = assert!(limit::KERNEL_CONTEXT == OwnerId::KERNEL.0);

/// ALLOC_CONTEXT.
#[derive(Debug)]
pub struct AllocContext;

impl Command for AllocContext {
    const OPCODE: Opcode = Opcode::ALLOC_CONTEXT;
    type Request = Nothing;
    type Reply = ObjectResp;

    fn parse(_: &Nothing, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self)
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<ObjectResp> {
        worker.outputs.device(id).alloc_context().map(|context| new_object(context.0))
    }
}

/// DEALLOC_CONTEXT.
#[derive(Debug)]
pub struct DeallocContext {
    /// The context to destroy.
    pub context: OwnerId,
}

impl Command for DeallocContext {
    const OPCODE: Opcode = Opcode::DEALLOC_CONTEXT;
    type Request = ObjectReq;
    type Reply = Nothing;

    fn parse(request: &ObjectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self { context: OwnerId(object(request)?) })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        worker.outputs.device(id).dealloc_context(self.context).map(nothing)
    }
}
