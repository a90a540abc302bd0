//! Multicast groups: ATTACH_MCAST and DETACH_MCAST.

use super::base::{Command, Nothing, StatusResult, nothing, qpn};
use super::caller::Caller;
use crate::config::Transport;
use crate::device;
use crate::memory::Extent;
use crate::worker::Worker;
use vrdma_abi::control::{McastReq, Opcode, Status};
use vrdma_transport::DeviceId;
use vrdma_wire::num::{Gid, Qpn};

/// A QP and a multicast group.
#[derive(Debug)]
pub struct McastMember {
    qpn: Qpn,
    mgid: Gid,
}

impl McastMember {
    fn parse(request: &McastReq) -> StatusResult<McastMember> {
        if request.reserved.get() != 0 {
            return Err(Status::INVALID);
        }
        Ok(McastMember { qpn: qpn(request.qpn.get())?, mgid: Gid(request.mgid) })
    }
}

/// ATTACH_MCAST: adds the QP to the group.
#[derive(Debug)]
pub struct AttachMcast(McastMember);

impl Command for AttachMcast {
    const OPCODE: Opcode = Opcode::ATTACH_MCAST;
    const TRANSPORT: Option<Transport> = Some(Transport::Roce);
    type Request = McastReq;
    type Reply = Nothing;
    const IS_SHARED: bool = true;

    fn parse(request: &McastReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        McastMember::parse(request).map(Self)
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        worker.engine.attach_mcast(id, self.0.qpn, self.0.mgid).map(nothing)
    }
}

/// DETACH_MCAST: removes the QP from the group.
#[derive(Debug)]
pub struct DetachMcast(McastMember);

impl Command for DetachMcast {
    const OPCODE: Opcode = Opcode::DETACH_MCAST;
    const TRANSPORT: Option<Transport> = Some(Transport::Roce);
    type Request = McastReq;
    type Reply = Nothing;
    const IS_SHARED: bool = true;

    fn parse(request: &McastReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        McastMember::parse(request).map(Self)
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        worker.engine.detach_mcast(id, self.0.qpn, self.0.mgid).map(nothing)
    }
}
