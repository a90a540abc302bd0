//! Completion queues: CREATE_CQ, RESIZE_CQ, MODIFY_CQ and DESTROY_CQ.

use super::base::{Command, ExtentList, Nothing, StatusResult, nothing, object};
use super::body::check_total;
use super::caller::Caller;
use crate::device;
use crate::device::moderation::Moderation;
use crate::memory::Extent;
use crate::queue::cq::{CqRing, CqeKind};
use crate::worker::{Order, Worker};
use vrdma_abi::control::{
    CreateCqReq, CreateCqResp, ModifyCqReq, ObjectReq, Opcode, ResizeCqReq, Status, cq_flags,
};
use vrdma_transport::{CqId, DeviceId, OwnerId};

/// CREATE_CQ.
#[derive(Debug)]
pub struct CreateCq {
    /// The context that will own the CQ.
    pub context: OwnerId,
    /// The event queue for its completion events.
    pub vector: u16,
    /// The CQ ring, in guest memory.
    pub ring: CqRing,
}

impl Command for CreateCq {
    const OPCODE: Opcode = Opcode::CREATE_CQ;
    type Request = CreateCqReq;
    const EXTENTS: ExtentList = ExtentList::Always;
    type Reply = CreateCqResp;

    fn parse(request: &CreateCqReq, extents: &[Extent], caller: &Caller<'_>) -> StatusResult<Self> {
        let vector = u16::try_from(request.vector.get()).map_err(|_| Status::INVALID)?;
        let flags = request.flags.get();
        let kind = cqe_kind(flags & !cq_flags::IGNORE_OVERRUN)?;
        let mut ring = cq_ring(extents, (kind, request.entries.get()), caller)?;
        if flags & cq_flags::IGNORE_OVERRUN != 0 {
            ring.ignore_overrun();
        }
        Ok(Self { context: OwnerId(request.context.get()), vector, ring })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<CreateCqResp> {
        let cq = worker.outputs.device(id).create_cq(self.context, self.vector, self.ring)?;
        Ok(CreateCqResp { cqn: cq.0.into(), reserved: 0.into() })
    }
}

/// RESIZE_CQ.
#[derive(Debug)]
pub struct ResizeCq {
    /// The CQ.
    pub cq: CqId,
    /// Number of entries that the consumer has taken, but not returned yet.
    pub held: u32,
    /// The ring in which the CQ continues, in guest memory.
    pub ring: CqRing,
}

impl Command for ResizeCq {
    const OPCODE: Opcode = Opcode::RESIZE_CQ;
    type Request = ResizeCqReq;
    const EXTENTS: ExtentList = ExtentList::Always;
    type Reply = Nothing;

    fn parse(request: &ResizeCqReq, extents: &[Extent], caller: &Caller<'_>) -> StatusResult<Self> {
        let kind = cqe_kind(request.flags.get())?;
        let ring = cq_ring(extents, (kind, request.entries.get()), caller)?;
        Ok(Self { cq: CqId(request.cqn.get()), held: request.held.get(), ring })
    }

    fn order(&self) -> Order {
        Order::Cq(self.cq)
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        worker.outputs.device(id).resize_cq(self.cq, self.held, self.ring).map(nothing)
    }
}

/// MODIFY_CQ.
#[derive(Debug)]
pub struct ModifyCq {
    /// The CQ.
    pub cq: CqId,
    /// How to delay its events. `None` means no delay.
    pub moderation: Option<Moderation>,
}

impl Command for ModifyCq {
    const OPCODE: Opcode = Opcode::MODIFY_CQ;
    type Request = ModifyCqReq;
    type Reply = Nothing;

    fn parse(request: &ModifyCqReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        let moderation = Moderation::new(request.count.get(), request.period.get());
        Ok(Self { cq: CqId(request.cqn.get()), moderation })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        worker.outputs.device(id).modify_cq(self.cq, self.moderation).map(nothing)
    }
}

/// DESTROY_CQ.
#[derive(Debug)]
pub struct DestroyCq {
    /// The CQ to destroy.
    pub cq: CqId,
}

impl Command for DestroyCq {
    const OPCODE: Opcode = Opcode::DESTROY_CQ;
    type Request = ObjectReq;
    type Reply = Nothing;

    fn parse(request: &ObjectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self { cq: CqId(object(request)?) })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        worker.outputs.device(id).destroy_cq(self.cq).map(nothing)
    }
}

/// Returns the kind of CQE that the flags of a CQ ask for. Refuses other flags.
fn cqe_kind(flags: u32) -> StatusResult<CqeKind> {
    match flags {
        0 => Ok(CqeKind::Plain),
        cq_flags::TIMESTAMP => Ok(CqeKind::Timed),
        _ => Err(Status::INVALID),
    }
}

/// Creates the ring of a CQ for `entries` CQEs, in these extents.
fn cq_ring(extents: &[Extent], (kind, entries): (CqeKind, u32), caller: &Caller<'_>) -> StatusResult<CqRing> {
    if !entries.is_power_of_two() {
        return Err(Status::INVALID);
    }
    if entries > caller.limits.cq_entries {
        return Err(Status::NO_RESOURCES);
    }
    check_total(extents, CqRing::bytes(kind, entries))?;
    let ring = CqRing::new(caller.memory, extents, kind, entries).ok_or(Status::FAULT)?;
    caller.populate(extents)?;
    Ok(ring)
}
