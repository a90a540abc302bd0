//! Commands on a connection: CM_ACCEPT, CM_REJECT, CM_DISCONNECT and CM_RELEASE.

use super::super::base::{Command, Nothing, StatusResult, nothing, object, qpn};
use super::super::caller::Caller;
use super::fields::{depths, private_data};
use crate::config::Transport;
use crate::device;
use crate::memory::Extent;
use crate::streams::cm::{Accept, ConnectionId};
use crate::worker::Worker;
use vrdma_abi::control::{CmAcceptReq, CmRejectReq, ObjectReq, Opcode, Status};
use vrdma_transport::{DeviceId, Error};
use vrdma_wire::num::Qpn;

/// CM_ACCEPT.
#[derive(Debug)]
pub struct CmAccept {
    accept: Accept,
}

impl Command for CmAccept {
    const OPCODE: Opcode = Opcode::CM_ACCEPT;
    const TRANSPORT: Option<Transport> = Some(Transport::Iwarp);
    type Request = CmAcceptReq;
    type Reply = Nothing;
    const IS_SHARED: bool = true;

    fn parse(request: &CmAcceptReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        if request.reserved.get() != 0 {
            return Err(Status::INVALID);
        }
        let accept = Accept {
            connection: ConnectionId(request.connection.get()),
            qpn: qpn(request.qpn.get())?,
            depths: depths(request.ird.get(), request.ord.get())?,
            private_data: private_data(&request.private_data, request.private_data_len.get())?,
        };
        Ok(Self { accept })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        if worker.is_draining {
            return Err(Error::NoResources);
        }
        worker.with_streams(|streams, host| streams.accept(id, &self.accept, host)).map(nothing)
    }
}

/// CM_REJECT.
#[derive(Debug)]
pub struct CmReject {
    connection: ConnectionId,
    private_data: Vec<u8>,
}

impl Command for CmReject {
    const OPCODE: Opcode = Opcode::CM_REJECT;
    const TRANSPORT: Option<Transport> = Some(Transport::Iwarp);
    type Request = CmRejectReq;
    type Reply = Nothing;
    const IS_SHARED: bool = true;

    fn parse(request: &CmRejectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        if request.reserved.get() != 0 {
            return Err(Status::INVALID);
        }
        let private_data = private_data(&request.private_data, request.private_data_len.get())?;
        Ok(Self { connection: ConnectionId(request.connection.get()), private_data })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        let Self { connection, private_data } = self;
        let rejected =
            worker.with_streams(|streams, host| streams.reject(id, connection, &private_data, host));
        rejected.map(nothing)
    }
}

/// CM_DISCONNECT: ends the connection of a QP in order.
#[derive(Debug)]
pub struct CmDisconnect {
    qpn: Qpn,
}

impl Command for CmDisconnect {
    const OPCODE: Opcode = Opcode::CM_DISCONNECT;
    const TRANSPORT: Option<Transport> = Some(Transport::Iwarp);
    type Request = ObjectReq;
    type Reply = Nothing;
    const IS_SHARED: bool = true;

    fn parse(request: &ObjectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self { qpn: qpn(object(request)?)? })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        worker.with_streams(|streams, host| streams.disconnect(id, self.qpn, host)).map(nothing)
    }
}

/// CM_RELEASE.
#[derive(Debug)]
pub struct CmRelease {
    connection: ConnectionId,
}

impl Command for CmRelease {
    const OPCODE: Opcode = Opcode::CM_RELEASE;
    const TRANSPORT: Option<Transport> = Some(Transport::Iwarp);
    type Request = ObjectReq;
    type Reply = Nothing;
    const IS_SHARED: bool = true;

    fn parse(request: &ObjectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self { connection: ConnectionId(object(request)?) })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        worker.with_streams(|streams, host| streams.release(id, self.connection, host)).map(nothing)
    }
}
