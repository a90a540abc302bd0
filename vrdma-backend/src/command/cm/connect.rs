//! CM_CONNECT.

use super::super::base::{Command, StatusResult, new_object, qpn};
use super::super::caller::Caller;
use super::fields::{address, depths, may_be_own, private_data, traffic_class};
use crate::config::Transport;
use crate::device;
use crate::memory::Extent;
use crate::streams::cm::Connect;
use crate::tcp::{self, Dial, Path};
use crate::translate::status::status;
use crate::worker::Worker;
use std::net::{IpAddr, SocketAddr};
use vrdma_abi::control::{CmConnectReq, ObjectResp, Opcode, Status, cm_flags};
use vrdma_tcp::NextHop;
use vrdma_transport::{DeviceId, Error};
use vrdma_wire::num::{Mac, VlanId, VlanTag};

/// Highest priority of a frame in a VLAN (IEEE 802.1Q).
const MAX_PRIORITY: u8 = 7;

/// CM_CONNECT. Nothing is sent to the peer unless the worker finds that the QP can be connected.
#[derive(Debug)]
pub struct CmConnect {
    dial: Dial,
    connect: Connect,
}

impl Command for CmConnect {
    const OPCODE: Opcode = Opcode::CM_CONNECT;
    const TRANSPORT: Option<Transport> = Some(Transport::Iwarp);
    type Request = CmConnectReq;
    type Reply = ObjectResp;
    const IS_SHARED: bool = true;

    fn parse(request: &CmConnectReq, _: &[Extent], caller: &Caller<'_>) -> StatusResult<Self> {
        let connect = wanted(request)?;
        let (local, remote) = (connect.local.ip(), connect.remote.ip());
        let guest = caller.guest;
        if guest.has_own_tcp() {
            let dial = Dial::Own(path(request)?);
            let may_be = may_be_own(local, guest) && !remote.is_loopback();
            return if may_be { Ok(Self { dial, connect }) } else { Err(Status::DENIED) };
        }
        let is_own = guest.host_addresses.iter().any(|address| address.0 == local);
        if !is_own || !may_connect(local, remote) {
            return Err(Status::DENIED);
        }
        let traffic_class = traffic_class(request.traffic_class)?;
        let socket = tcp::bind(connect.local, caller.keep_alive, traffic_class);
        let socket = socket.map_err(|error| status(tcp::refusal(&error)))?;
        Ok(Self { dial: Dial::Kernel(socket), connect })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<ObjectResp> {
        if worker.is_draining {
            return Err(Error::NoResources);
        }
        let Self { dial, connect } = self;
        if let Dial::Own(Path { hop, .. }) = &dial {
            worker.check_address(id, connect.local.ip(), VlanId::of(hop.vlan))?;
        }
        let connection = worker.with_streams(|streams, host| streams.connect(id, dial, &connect, host))?;
        Ok(new_object(connection.0))
    }
}

/// Parses the connection to make.
///
/// # Errors
/// `INVALID`: a value that no connection can have. `UNSUPPORTED`: an unknown flag. `NOT_FOUND`: the
/// QP number has more than 24 bits.
fn wanted(req: &CmConnectReq) -> StatusResult<Connect> {
    let flags = req.flags.get();
    if flags & !(cm_flags::PEER_TO_PEER | cm_flags::NEXT_HOP) != 0 {
        return Err(Status::UNSUPPORTED);
    }
    let local = SocketAddr::new(address(req.local_addr), req.local_port.get());
    let remote = SocketAddr::new(address(req.remote_addr), req.remote_port.get());
    let may_be = remote.port() != 0 && local.is_ipv4() == remote.is_ipv4() && req.reserved == [0; 2];
    let has_no_hop =
        req.next_hop == [0; 6] && req.vlan.get() == 0 && req.path_mtu.get() == 0 && req.priority == 0;
    if !may_be || flags & cm_flags::NEXT_HOP == 0 && !has_no_hop {
        return Err(Status::INVALID);
    }
    Ok(Connect {
        qpn: qpn(req.qpn.get())?,
        peer_to_peer: flags & cm_flags::PEER_TO_PEER != 0,
        local,
        remote,
        depths: depths(req.ird.get(), req.ord.get())?,
        private_data: private_data(&req.private_data, req.private_data_len.get())?,
    })
}

/// Parses the path of the connection to make.
///
/// # Errors
/// `INVALID`: there is no next hop, or its address is no unicast address. Also for a priority
/// without a VLAN, a priority above 7, or a traffic class with ECN bits.
fn path(req: &CmConnectReq) -> StatusResult<Path> {
    let mac = Mac(req.next_hop);
    let vlan = VlanId::new(req.vlan.get()).ok_or(Status::INVALID)?;
    if req.flags.get() & cm_flags::NEXT_HOP == 0 || !mac.is_unicast() {
        return Err(Status::INVALID);
    }
    let most = if vlan == VlanId::UNTAGGED { 0 } else { MAX_PRIORITY };
    if req.priority > most {
        return Err(Status::INVALID);
    }
    let hop = NextHop { mac, vlan: VlanTag::in_vlan(vlan, req.priority) };
    Ok(Path { hop, mtu: req.path_mtu.get(), traffic_class: traffic_class(req.traffic_class)? })
}

/// Returns whether a guest with the address `local` may connect to `remote`.
///
/// Loopback addresses of the host are only for guests that have a loopback address themselves.
fn may_connect(local: IpAddr, remote: IpAddr) -> bool {
    let is_none = match remote {
        // Linux treats "this network" (0.0.0.0/8, RFC 1122) as an address of the host itself.
        IpAddr::V4(remote) => remote.octets()[0] == 0 || remote.is_broadcast(),
        // Of the IPv6 addresses that contain an IPv4 address only `::1` is in use. `address()` has
        // already turned `::ffff:a.b.c.d` into an IPv4 address.
        IpAddr::V6(remote) => !remote.is_loopback() && remote.to_ipv4().is_some(),
    };
    !is_none && !remote.is_multicast() && (!remote.is_loopback() || local.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::super::fields::address_bytes;
    use super::*;
    use crate::streams::cm::Depths;
    use std::net::Ipv6Addr;
    use vrdma_abi::zerocopy::FromZeros;

    fn request() -> CmConnectReq {
        CmConnectReq {
            qpn: 7.into(),
            local_addr: address_bytes("10.0.0.1".parse().unwrap()),
            remote_addr: address_bytes("10.0.0.2".parse().unwrap()),
            remote_port: 4420.into(),
            ird: 4.into(),
            ord: 128.into(),
            private_data_len: 508.into(),
            ..CmConnectReq::new_zeroed()
        }
    }

    #[test]
    fn a_connection_is_what_the_driver_says() {
        let connect = wanted(&request()).unwrap();
        assert_eq!(connect.remote, "10.0.0.2:4420".parse().unwrap());
        assert_eq!(connect.local, "10.0.0.1:0".parse().unwrap());
        assert_eq!(connect.depths, Depths { ird: 4, ord: 128 });
        assert_eq!((connect.private_data.len(), connect.peer_to_peer), (508, false));
    }

    #[test]
    fn an_address_is_known_in_whatever_form_it_comes() {
        let mapped: Ipv6Addr = "::ffff:127.0.0.1".parse().unwrap();
        let found = wanted(&CmConnectReq { remote_addr: mapped.octets(), ..request() }).unwrap();
        assert!(found.remote.ip().is_loopback() && found.remote.is_ipv4());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |change: fn(&mut CmConnectReq)| {
            let mut req = request();
            change(&mut req);
            wanted(&req).unwrap_err()
        };
        assert_eq!(refused(|req| req.remote_port = 0.into()), Status::INVALID);
        assert_eq!(refused(|req| req.private_data_len = 509.into()), Status::INVALID);
        assert_eq!(refused(|req| req.ord = 129.into()), Status::INVALID);
        assert_eq!(refused(|req| req.ird = 300.into()), Status::INVALID);
        assert_eq!(refused(|req| req.reserved[1] = 1), Status::INVALID);
        // Fields of the next hop, without the flag for it.
        assert_eq!(refused(|req| req.next_hop[5] = 1), Status::INVALID);
        assert_eq!(refused(|req| req.vlan = 5.into()), Status::INVALID);
        assert_eq!(refused(|req| req.path_mtu = 1500.into()), Status::INVALID);
        assert_eq!(refused(|req| req.priority = 1), Status::INVALID);
        assert_eq!(refused(|req| req.local_addr = [0x20; 16]), Status::INVALID);
        assert_eq!(refused(|req| req.flags = 4.into()), Status::UNSUPPORTED);
        assert_eq!(refused(|req| req.qpn = (1 << 24).into()), Status::NOT_FOUND);
    }

    #[test]
    fn connections_have_the_traffic_class_and_the_priority_that_the_driver_says_without_bits_of_ecn() {
        let request = CmConnectReq {
            flags: cm_flags::NEXT_HOP.into(),
            next_hop: [2; 6],
            vlan: 5.into(),
            traffic_class: 0xb8,
            priority: 7,
            ..request()
        };
        let Path { hop, traffic_class, .. } = path(&request).unwrap();
        let five = VlanId::new(5).unwrap();
        assert_eq!((hop.vlan, traffic_class.number()), (Some(VlanTag::new(five, 7)), 0xb8));
        let refused = |req| path(&req).unwrap_err();
        assert_eq!(refused(CmConnectReq { traffic_class: 2, ..request }), Status::INVALID);
        assert_eq!(refused(CmConnectReq { priority: 8, ..request }), Status::INVALID);
        // Frames without a tag have no priority.
        assert_eq!(refused(CmConnectReq { vlan: 0.into(), ..request }), Status::INVALID);
    }

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
        // A guest with a loopback address may reach other loopback addresses.
        assert!(may("127.0.0.2", "127.0.0.3") && may("::1", "::1"));
        assert!(!may("127.0.0.2", "0.0.0.0") && !may("::1", "::7f00:1"));
    }
}
