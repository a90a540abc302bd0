//! CM_LISTEN and CM_CLOSE_LISTENER.

use super::super::base::{Command, Nothing, StatusResult, new_object, nothing, object};
use super::super::caller::Caller;
use super::fields::{address, may_be_own, traffic_class};
use crate::config::Transport;
use crate::device;
use crate::memory::Extent;
use crate::streams::cm::ListenerId;
use crate::tcp::{self, ListenAddrs, TrafficClass};
use crate::translate::status::status;
use crate::worker::Worker;
use std::io;
use std::net::SocketAddr;
use vrdma_abi::control::{CmListenReq, ObjectReq, ObjectResp, Opcode, Status};
use vrdma_transport::DeviceId;

/// Largest number of connections of one listener that wait for an answer of the driver.
const MAX_BACKLOG: u32 = 256;

/// CM_LISTEN. If the listener uses the host's TCP, its sockets already listen.
#[derive(Debug)]
pub struct CmListen {
    addrs: ListenAddrs,
    backlog: usize,
}

impl Command for CmListen {
    const OPCODE: Opcode = Opcode::CM_LISTEN;
    const TRANSPORT: Option<Transport> = Some(Transport::Iwarp);
    type Request = CmListenReq;
    type Reply = ObjectResp;
    const IS_SHARED: bool = true;

    fn parse(request: &CmListenReq, _: &[Extent], caller: &Caller<'_>) -> StatusResult<Self> {
        let Wanted { at, backlog, traffic_class } = wanted(request)?;
        let guest = caller.guest;
        if guest.has_own_tcp() {
            let may_be = at.ip().is_unspecified() || may_be_own(at.ip(), guest);
            let addrs = ListenAddrs::Own { at, traffic_class };
            return if may_be { Ok(Self { addrs, backlog }) } else { Err(Status::DENIED) };
        }
        let addresses = guest.host_addresses.iter().map(|address| address.0);
        let at: Vec<SocketAddr> = match at.ip().is_unspecified() {
            true => addresses.map(|address| SocketAddr::new(address, at.port())).collect(),
            false => addresses.filter(|&address| address == at.ip()).map(|_| at).collect(),
        };
        if at.is_empty() {
            return Err(Status::DENIED);
        }
        let sockets = at
            .into_iter()
            .map(|at| tcp::listen(at, caller.keep_alive, traffic_class))
            .collect::<io::Result<_>>();
        let addrs = ListenAddrs::Kernel(sockets.map_err(|error| status(tcp::refusal(&error)))?);
        Ok(Self { addrs, backlog })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<ObjectResp> {
        let Self { addrs, backlog } = self;
        let listener = worker.with_streams(|streams, host| streams.listen(id, addrs, backlog, host))?;
        Ok(new_object(listener.0))
    }
}

/// CM_CLOSE_LISTENER.
#[derive(Debug)]
pub struct CmCloseListener {
    listener: ListenerId,
}

impl Command for CmCloseListener {
    const OPCODE: Opcode = Opcode::CM_CLOSE_LISTENER;
    const TRANSPORT: Option<Transport> = Some(Transport::Iwarp);
    type Request = ObjectReq;
    type Reply = Nothing;
    const IS_SHARED: bool = true;

    fn parse(request: &ObjectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self { listener: ListenerId(object(request)?) })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        worker.with_streams(|streams, host| streams.close_listener(id, self.listener, host)).map(nothing)
    }
}

/// The listener that a driver asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    /// The address and port to listen at. An unspecified address stands for each address of the
    /// guest.
    at: SocketAddr,
    /// Number of connections that may wait.
    backlog: usize,
    /// Traffic class of the segments that its connections send.
    traffic_class: TrafficClass,
}

/// Parses the listener that a driver asks for.
///
/// # Errors
/// `INVALID`: the port is 0, the reserved field is not 0, or the traffic class has ECN bits.
fn wanted(req: &CmListenReq) -> StatusResult<Wanted> {
    let port = req.port.get();
    if port == 0 || req.reserved != 0 {
        return Err(Status::INVALID);
    }
    let backlog = req.backlog.get().clamp(1, MAX_BACKLOG) as usize;
    let at = SocketAddr::new(address(req.addr), port);
    Ok(Wanted { at, backlog, traffic_class: traffic_class(req.traffic_class)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;
    use vrdma_abi::zerocopy::FromZeros;

    fn request() -> CmListenReq {
        CmListenReq { port: 9.into(), ..CmListenReq::new_zeroed() }
    }

    #[test]
    fn a_listener_is_what_the_driver_says() {
        let mapped: Ipv6Addr = "::ffff:127.0.0.1".parse().unwrap();
        let found = wanted(&CmListenReq { addr: mapped.octets(), traffic_class: 0x68, ..request() }).unwrap();
        assert_eq!(found.at, "127.0.0.1:9".parse().unwrap());
        assert_eq!(found.traffic_class.number(), 0x68);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for refused in [
            CmListenReq { port: 0.into(), ..request() },
            CmListenReq { reserved: 1, ..request() },
            // The traffic class has ECN bits.
            CmListenReq { traffic_class: 0x69, ..request() },
        ] {
            assert_eq!(wanted(&refused).unwrap_err(), Status::INVALID);
        }
    }
}
