//! SET_AH_TABLE: names the table in which the driver keeps address handles.

use super::base::{Command, ExtentList, Nothing, StatusResult, nothing};
use super::body::check_total;
use super::caller::Caller;
use crate::config::Transport;
use crate::device::{self, ah::AhTable};
use crate::memory::Extent;
use crate::worker::Worker;
use vrdma_abi::control::{AhTableReq, Opcode, Status};
use vrdma_transport::DeviceId;

/// SET_AH_TABLE.
#[derive(Debug)]
pub struct SetAhTable {
    /// The table, in guest memory.
    pub table: AhTable,
}

impl Command for SetAhTable {
    const OPCODE: Opcode = Opcode::SET_AH_TABLE;
    const TRANSPORT: Option<Transport> = Some(Transport::Roce);
    type Request = AhTableReq;
    const EXTENTS: ExtentList = ExtentList::Always;
    type Reply = Nothing;

    fn parse(request: &AhTableReq, extents: &[Extent], caller: &Caller<'_>) -> StatusResult<Self> {
        let entries = request.entries.get();
        if entries == 0 || request.reserved.get() != 0 {
            return Err(Status::INVALID);
        }
        if entries > caller.limits.ahs {
            return Err(Status::NO_RESOURCES);
        }
        check_total(extents, AhTable::bytes(entries))?;
        let &[extent] = extents else { return Err(Status::INVALID) };
        let table = AhTable::new(caller.memory, extent, entries).ok_or(Status::FAULT)?;
        caller.populate(extents)?;
        Ok(Self { table })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        worker.outputs.device(id).set_ah_table(self.table).map(nothing)
    }
}
