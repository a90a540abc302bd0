//! Entries of the GID table: QUERY_GID, ADD_GID and DEL_GID.

use super::base::{Command, Nothing, StatusResult, nothing, object};
use super::caller::Caller;
use crate::config::Transport;
use crate::device;
use crate::memory::Extent;
use crate::worker::{Order, Worker};
use vrdma_abi::control::{AddGidReq, ObjectReq, Opcode, QueryGidResp, Status, gid_type};
use vrdma_transport::{DeviceId, GidEntry};
use vrdma_wire::num::{Gid, VlanId};

/// The VLAN number that stands for frames without a tag.
const UNTAGGED: u16 = 0xffff;

/// QUERY_GID.
#[derive(Debug)]
pub struct QueryGid {
    /// Index in the table.
    pub index: u32,
}

impl Command for QueryGid {
    const OPCODE: Opcode = Opcode::QUERY_GID;
    const TRANSPORT: Option<Transport> = Some(Transport::Roce);
    type Request = ObjectReq;
    type Reply = QueryGidResp;

    fn parse(request: &ObjectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self { index: object(request)? })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<QueryGidResp> {
        let GidEntry { gid, vlan } = worker.engine.gid(id, self.index)?;
        let vlan = match vlan {
            VlanId::UNTAGGED => UNTAGGED,
            vlan => vlan.number(),
        };
        Ok(QueryGidResp {
            gid: gid.0,
            gid_type: gid_type::ROCE_V2,
            reserved0: 0,
            vlan: vlan.into(),
            reserved: 0.into(),
        })
    }
}

/// ADD_GID.
#[derive(Debug)]
pub struct AddGid {
    /// Index in the table.
    pub index: u32,
    /// The new entry.
    pub entry: GidEntry,
}

impl Command for AddGid {
    const OPCODE: Opcode = Opcode::ADD_GID;
    const TRANSPORT: Option<Transport> = Some(Transport::Roce);
    type Request = AddGidReq;
    type Reply = Nothing;
    const IS_SHARED: bool = true;

    fn parse(request: &AddGidReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        if request.gid_type != gid_type::ROCE_V2 || request.reserved0 != 0 {
            return Err(Status::INVALID);
        }
        let vlan = match request.vlan.get() {
            UNTAGGED => VlanId::UNTAGGED,
            0 => return Err(Status::INVALID),
            number => VlanId::new(number).ok_or(Status::INVALID)?,
        };
        Ok(Self { index: request.index.get(), entry: GidEntry { gid: Gid(request.gid), vlan } })
    }

    fn order(&self) -> Order {
        Order::Gids
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        worker.add_gid(id, self.index, self.entry).map(nothing)
    }
}

/// DEL_GID.
#[derive(Debug)]
pub struct DelGid {
    /// Index in the table.
    pub index: u32,
}

impl Command for DelGid {
    const OPCODE: Opcode = Opcode::DEL_GID;
    const TRANSPORT: Option<Transport> = Some(Transport::Roce);
    type Request = ObjectReq;
    type Reply = Nothing;
    const IS_SHARED: bool = true;

    fn parse(request: &ObjectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self { index: object(request)? })
    }

    fn order(&self) -> Order {
        Order::Gids
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        worker.engine.set_gid(id, self.index, None).map(nothing)
    }
}
