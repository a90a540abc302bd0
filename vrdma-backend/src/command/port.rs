//! QUERY_PORT and SET_PORT_MTU.

use super::base::{Command, Nothing, StatusResult, nothing};
use super::caller::Caller;
use crate::device;
use crate::memory::Extent;
use crate::translate::limits::GID_TABLE_LEN;
use crate::worker::Worker;
use vrdma_abi::control::{Opcode, QueryPortResp, SetPortMtuReq, Status, port_state};
use vrdma_transport::DeviceId;
use vrdma_wire::num::Mtu;

/// Largest message in bytes.
const MAX_MESSAGE: u32 = 1 << 31;

/// QUERY_PORT.
#[derive(Debug)]
pub struct QueryPort;

impl Command for QueryPort {
    const OPCODE: Opcode = Opcode::QUERY_PORT;
    type Request = Nothing;
    type Reply = QueryPortResp;

    fn parse(_: &Nothing, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self)
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<QueryPortResp> {
        let port = &worker.port;
        let active_mtu = worker.engine.active_mtu(id).unwrap_or(port.mtu);
        let bad_qkeys = worker.engine.counters(id).drop_qkey;
        Ok(QueryPortResp {
            state: if port.up { port_state::ACTIVE } else { port_state::DOWN },
            reserved0: 0,
            gid_table_len: GID_TABLE_LEN.into(),
            max_mtu: port.mtu.bytes().into(),
            active_mtu: active_mtu.bytes().into(),
            speed: port.speed.into(),
            max_msg_size: MAX_MESSAGE.into(),
            bad_qkeys: u32::try_from(bad_qkeys).unwrap_or(u32::MAX).into(),
            reserved: 0.into(),
        })
    }
}

/// SET_PORT_MTU.
#[derive(Debug)]
pub struct SetPortMtu {
    /// The new path MTU of the port.
    pub mtu: Mtu,
}

impl Command for SetPortMtu {
    const OPCODE: Opcode = Opcode::SET_PORT_MTU;
    type Request = SetPortMtuReq;
    type Reply = Nothing;

    fn parse(request: &SetPortMtuReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        // Codes 1 to 5 of `enum ibv_mtu`.
        let mtu = (1..=5).filter_map(Mtu::from_code).find(|mtu| mtu.bytes() == request.mtu.get());
        match mtu {
            Some(mtu) if request.reserved.get() == 0 => Ok(Self { mtu }),
            _ => Err(Status::INVALID),
        }
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        worker.engine.set_active_mtu(id, self.mtu).map(nothing)
    }
}
