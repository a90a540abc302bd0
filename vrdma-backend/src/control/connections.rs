//! What functions of each transport take, and commands about connections: sockets are made here, away from the data path.

use super::context::CommandContext;
use crate::config::{GuestConfig, Transport};
use crate::device::command::Command;
use crate::tcp::{self, Doors, Way};
use crate::translate::{cm, status::status};
use std::io;
use std::net::{IpAddr, SocketAddr};
use vrdma_abi::control::{CmConnectReq, CmListenReq, Opcode, Status};

type Result<T> = std::result::Result<T, Status>;

/// Whether functions of this transport know a command.
pub(super) fn may_be(opcode: Opcode, transport: Transport) -> bool {
    match opcode {
        Opcode::CM_LISTEN
        | Opcode::CM_CLOSE_LISTENER
        | Opcode::CM_CONNECT
        | Opcode::CM_ACCEPT
        | Opcode::CM_REJECT
        | Opcode::CM_DISCONNECT
        | Opcode::CM_RELEASE
        | Opcode::CM_GET_EVENT => transport == Transport::Iwarp,
        Opcode::QUERY_GID
        | Opcode::ADD_GID
        | Opcode::DEL_GID
        | Opcode::ALLOC_XRCD
        | Opcode::DEALLOC_XRCD
        | Opcode::SET_AH_TABLE
        | Opcode::ATTACH_MCAST
        | Opcode::DETACH_MCAST => transport == Transport::Roce,
        _ => true,
    }
}

/// Listens.
pub(super) fn listen(req: &CmListenReq, context: &CommandContext<'_>) -> Result<Command> {
    let cm::Listen { at, backlog, traffic_class } = cm::listen(req)?;
    let guest = context.guest;
    if guest.has_own_tcp() {
        let may_be = at.ip().is_unspecified() || may_be_own(at.ip(), guest);
        let doors = Doors::Own { at, traffic_class };
        return if may_be { Ok(Command::CmListen { doors, backlog }) } else { Err(Status::DENIED) };
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
        .map(|at| tcp::listen(at, context.keep_alive, traffic_class))
        .collect::<io::Result<_>>();
    let doors = Doors::Kernel(sockets.map_err(|error| status(tcp::refusal(&error)))?);
    Ok(Command::CmListen { doors, backlog })
}

/// Whether an address may be one of a guest with its own TCP, in some VLAN. Which the worker knows.
fn may_be_own(address: IpAddr, guest: &GuestConfig) -> bool {
    let gids = guest.allowed_gids();
    !address.is_multicast()
        && !address.is_loopback()
        && (gids.is_empty() || gids.iter().any(|allowed| allowed.address == address))
}

/// Takes an address to connect from. The worker begins once it has found that the QP can be connected: a peer hears nothing of a command that is refused.
pub(super) fn connect(req: &CmConnectReq, context: &CommandContext<'_>) -> Result<Command> {
    let connect = Box::new(cm::connect(req)?);
    let guest = context.guest;
    if guest.has_own_tcp() {
        let path = cm::path(req)?;
        let may_be = may_be_own(connect.local.ip(), guest) && !connect.remote.ip().is_loopback();
        return if may_be {
            Ok(Command::CmConnect { way: Way::Own(path), connect })
        } else {
            Err(Status::DENIED)
        };
    }
    if !guest.host_addresses.iter().any(|address| address.0 == connect.local.ip())
        || !may_connect(connect.local.ip(), connect.remote.ip())
    {
        return Err(Status::DENIED);
    }
    let socket = tcp::bind(connect.local, context.keep_alive, cm::traffic_class(req.traffic_class)?);
    let socket = socket.map_err(|error| status(tcp::refusal(&error)))?;
    Ok(Command::CmConnect { way: Way::Kernel(socket), connect })
}

/// Whether a guest of this address may connect to that: the host's own loopback addresses are none of its business, unless it has one.
fn may_connect(local: IpAddr, remote: IpAddr) -> bool {
    let is_none = match remote {
        // "This network" (RFC 1122) is an address of the host itself, as far as Linux knows it.
        IpAddr::V4(remote) => remote.octets()[0] == 0 || remote.is_broadcast(),
        // With an IPv4 address in it, of which only that of a host's own stack (::1) is in use; `::ffff:a.b.c.d` is an IPv4 address by now.
        IpAddr::V6(remote) => !remote.is_loopback() && remote.to_ipv4().is_some(),
    };
    !is_none && !remote.is_multicast() && (!remote.is_loopback() || local.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_may_connect_to_no_address_of_the_host_itself_in_any_form() {
        let may = |local: &str, remote: &str| may_connect(local.parse().unwrap(), remote.parse().unwrap());
        for remote in ["127.0.0.1", "127.255.0.9", "0.0.0.0", "0.0.0.1", "255.255.255.255", "224.0.0.1"] {
            assert!(!may("10.0.0.1", remote), "{remote}");
        }
        for remote in
            ["::", "::1", "::7f00:1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.2", "ff02::1"]
        {
            assert!(!may("2001:db8::1", remote), "{remote}");
        }
        assert!(may("10.0.0.1", "10.0.0.2") && may("2001:db8::1", "2001:db8::2"));
        // Who has a loopback address may reach others.
        assert!(may("127.0.0.2", "127.0.0.3") && may("::1", "::1"));
        assert!(!may("127.0.0.2", "0.0.0.0") && !may("::1", "::7f00:1"));
    }
}
