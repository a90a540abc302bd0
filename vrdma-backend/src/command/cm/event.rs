//! CM_GET_EVENT.

use super::super::base::{Command, Nothing, StatusResult};
use super::super::caller::Caller;
use super::fields::address_bytes;
use crate::config::Transport;
use crate::device;
use crate::memory::Extent;
use crate::streams::cm::{CmEvent, Failure, What};
use crate::worker::Worker;
use vrdma_abi::control::{CmEventKind, CmEventResp, CmStatus, Opcode, limit};
use vrdma_transport::DeviceId;

/// CM_GET_EVENT.
#[derive(Debug)]
pub struct CmGetEvent;

impl Command for CmGetEvent {
    const OPCODE: Opcode = Opcode::CM_GET_EVENT;
    const TRANSPORT: Option<Transport> = Some(Transport::Iwarp);
    type Request = Nothing;
    type Reply = CmEventResp;
    const IS_SHARED: bool = true;

    fn parse(_: &Nothing, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self)
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<CmEventResp> {
        let event = worker.with_streams(|streams, _| streams.next_event(id));
        Ok(response(event.as_ref()))
    }
}

/// Lays out an event for the driver, or the reply that there is none.
fn response(event: Option<&CmEvent>) -> CmEventResp {
    let mut resp = CmEventResp {
        kind: CmEventKind::NONE.0.into(),
        connection: limit::NONE.into(),
        listener: limit::NONE.into(),
        status: 0.into(),
        local_addr: [0; 16],
        remote_addr: [0; 16],
        local_port: 0.into(),
        remote_port: 0.into(),
        ird: 0.into(),
        ord: 0.into(),
        private_data_len: 0.into(),
        reserved: [0; 6],
        private_data: [0; 512],
    };
    let Some(event) = event else { return resp };
    let kind = match event.what {
        What::ConnectRequest { listener } => {
            resp.listener = listener.0.into();
            CmEventKind::CONNECT_REQUEST
        }
        What::ConnectReply(result) => {
            resp.status = result.err().map_or(CmStatus::OK, cm_status).0.into();
            CmEventKind::CONNECT_REPLY
        }
        What::Established => CmEventKind::ESTABLISHED,
        What::Disconnect => CmEventKind::DISCONNECT,
        What::Close => CmEventKind::CLOSE,
    };
    resp.kind = kind.0.into();
    resp.connection = event.connection.0.into();
    (resp.local_addr, resp.local_port) = (address_bytes(event.local.ip()), event.local.port().into());
    (resp.remote_addr, resp.remote_port) = (address_bytes(event.remote.ip()), event.remote.port().into());
    (resp.ird, resp.ord) = (event.ird.into(), event.ord.into());
    // MPA allows no more than the field holds.
    let length = event.private_data.len().min(resp.private_data.len());
    resp.private_data[..length].copy_from_slice(&event.private_data[..length]);
    resp.private_data_len = (length as u16).into();
    resp
}

/// Returns the driver's code for the reason that there is no connection.
fn cm_status(failure: Failure) -> CmStatus {
    match failure {
        Failure::Refused => CmStatus::REFUSED,
        Failure::TimedOut => CmStatus::TIMED_OUT,
        Failure::Reset => CmStatus::RESET,
        Failure::Unreachable => CmStatus::UNREACHABLE,
        Failure::Protocol => CmStatus::PROTOCOL,
        Failure::InUse => CmStatus::IN_USE,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields::address;
    use super::*;
    use crate::streams::cm::ConnectionId;

    #[test]
    fn an_event_is_told_as_it_is() {
        let event = CmEvent {
            what: What::ConnectReply(Err(Failure::Refused)),
            connection: ConnectionId(3),
            local: "10.0.0.1:1000".parse().unwrap(),
            remote: "[fe80::1]:4420".parse().unwrap(),
            ird: 1,
            ord: 2,
            private_data: b"no".to_vec(),
        };
        let resp = response(Some(&event));
        assert_eq!((resp.kind.get(), resp.status.get()), (CmEventKind::CONNECT_REPLY.0, CmStatus::REFUSED.0));
        assert_eq!(address(resp.local_addr), event.local.ip());
        assert_eq!(address(resp.remote_addr), event.remote.ip());
        assert_eq!(&resp.private_data[..3], b"no\0");
        assert_eq!(resp.private_data_len.get(), 2);
        assert_eq!(response(None).kind.get(), CmEventKind::NONE.0);
    }
}
