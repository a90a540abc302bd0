//! Connections that the device makes by itself: what drivers say of them, and what they are told.

use crate::tcp::{Path, TrafficClass};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use vrdma_abi::control::{
    CmAcceptReq, CmConnectReq, CmEventKind, CmEventResp, CmListenReq, CmRejectReq, CmStatus, Status,
    cm_flags, cm_limit, limit,
};
use vrdma_tcp::NextHop;
use vrdma_transport::{AttrMask, QpAttr, QpInit, QpState, QpType};
use vrdma_wire::num::{Mac, Qpn, VlanId, VlanTag};

/// Most connections that wait for an answer of the driver, of one listener.
const MAX_BACKLOG: u32 = 256;
/// Highest priority of a frame in a VLAN (IEEE 802.1Q).
const MAX_PRIORITY: u8 = 7;

/// READs and atomics that each end of a connection is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depths {
    /// Answered at once.
    pub ird: u8,
    /// Outstanding.
    pub ord: u8,
}

/// What a connection is to be.
#[derive(Debug)]
pub struct Connect {
    /// The QP that is to be connected.
    pub qpn: Qpn,
    /// The peer may send first.
    pub peer_to_peer: bool,
    /// Where from. Without a port: any.
    pub local: SocketAddr,
    /// Where to.
    pub remote: SocketAddr,
    /// READs and atomics that it wants.
    pub depths: Depths,
    /// For the peer's program.
    pub private_data: Vec<u8>,
}

/// What to do with a connection that was requested.
#[derive(Debug)]
pub struct Accept {
    /// Which.
    pub connection: u32,
    /// The QP that is to be connected.
    pub qpn: Qpn,
    /// READs and atomics that it wants.
    pub depths: Depths,
    /// For the peer's program.
    pub private_data: Vec<u8>,
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "documented where their numbers are, in abi/src/control/cm.rs")]
pub enum Failure {
    Refused,
    TimedOut,
    Reset,
    Unreachable,
    Protocol,
    InUse,
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "documented where their numbers are, in abi/src/control/cm.rs")]
pub enum What {
    ConnectRequest { listener: u32 },
    ConnectReply(Result<(), Failure>),
    Established,
    Disconnect,
    Close,
}

/// An event of a connection.
#[derive(Clone, Debug)]
pub struct CmEvent {
    /// What happened.
    pub what: What,
    /// To which.
    pub connection: u32,
    /// The guest's end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// READs and atomics answered at once,
    pub ird: u16,
    /// and outstanding.
    pub ord: u16,
    /// Of the peer's program.
    pub private_data: Vec<u8>,
}

/// Whether a function of iWARP has such QPs.
///
/// # Errors
/// `UNSUPPORTED`: it is no reliable connection.
pub fn check_qp(init: &QpInit) -> Result<(), Status> {
    if init.qp_type == QpType::Rc { Ok(()) } else { Err(Status::UNSUPPORTED) }
}

/// Whether MODIFY_QP may do this to a QP of iWARP: the rest is done by connecting it.
///
/// # Errors
/// `INVALID`: it may not.
pub fn check_change(mask: AttrMask, attr: &QpAttr) -> Result<(), Status> {
    let may_be = matches!(attr.state, QpState::Reset | QpState::Init | QpState::Err);
    if !mask.contains(AttrMask::STATE) || may_be { Ok(()) } else { Err(Status::INVALID) }
}

/// A listener that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Where. An unspecified address is each of the guest's.
    pub at: SocketAddr,
    /// How many connections may wait.
    pub backlog: usize,
    /// Of what they send.
    pub traffic_class: TrafficClass,
}

/// Where to listen, and how.
///
/// # Errors
/// `INVALID`: a port of 0, a reserved field that is not, or no DS field.
pub fn listen(req: &CmListenReq) -> Result<Listen, Status> {
    let port = req.port.get();
    if port == 0 || req.reserved != 0 {
        return Err(Status::INVALID);
    }
    let backlog = req.backlog.get().clamp(1, MAX_BACKLOG) as usize;
    let at = SocketAddr::new(address(req.addr), port);
    Ok(Listen { at, backlog, traffic_class: traffic_class(req.traffic_class)? })
}

/// The DS field of a command.
///
/// # Errors
/// `INVALID`: it has bits of ECN.
pub fn traffic_class(value: u8) -> Result<TrafficClass, Status> {
    TrafficClass::new(value).ok_or(Status::INVALID)
}

/// What is to be connected.
///
/// # Errors
/// `INVALID`: a value that none can have. `UNSUPPORTED`: a flag without a meaning. `NOT_FOUND`: no QP has this number.
pub fn connect(req: &CmConnectReq) -> Result<Connect, Status> {
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

/// The path of what is to be connected.
///
/// # Errors
/// `INVALID`: there is no next hop, or it cannot be one; a priority outside VLANs, or that is none; no DS field.
pub fn path(req: &CmConnectReq) -> Result<Path, Status> {
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

/// What is accepted.
///
/// # Errors
/// As of [`connect`].
pub fn accept(req: &CmAcceptReq) -> Result<Accept, Status> {
    if req.reserved.get() != 0 {
        return Err(Status::INVALID);
    }
    Ok(Accept {
        connection: req.connection.get(),
        qpn: qpn(req.qpn.get())?,
        depths: depths(req.ird.get(), req.ord.get())?,
        private_data: private_data(&req.private_data, req.private_data_len.get())?,
    })
}

/// Which connection is rejected, and with which private data.
///
/// # Errors
/// As of [`connect`].
pub fn reject(req: &CmRejectReq) -> Result<(u32, Vec<u8>), Status> {
    if req.reserved.get() != 0 {
        return Err(Status::INVALID);
    }
    Ok((req.connection.get(), private_data(&req.private_data, req.private_data_len.get())?))
}

/// An event, or that there is none, for the driver that asks for it.
pub fn response(event: Option<&CmEvent>) -> CmEventResp {
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
            resp.listener = listener.into();
            CmEventKind::CONNECT_REQUEST
        }
        What::ConnectReply(result) => {
            resp.status = result.err().map_or(CmStatus::OK, status).0.into();
            CmEventKind::CONNECT_REPLY
        }
        What::Established => CmEventKind::ESTABLISHED,
        What::Disconnect => CmEventKind::DISCONNECT,
        What::Close => CmEventKind::CLOSE,
    };
    resp.kind = kind.0.into();
    resp.connection = event.connection.into();
    (resp.local_addr, resp.local_port) = (bytes(event.local.ip()), event.local.port().into());
    (resp.remote_addr, resp.remote_port) = (bytes(event.remote.ip()), event.remote.port().into());
    (resp.ird, resp.ord) = (event.ird.into(), event.ord.into());
    // MPA has no more.
    let length = event.private_data.len().min(resp.private_data.len());
    resp.private_data[..length].copy_from_slice(&event.private_data[..length]);
    resp.private_data_len = (length as u16).into();
    resp
}

fn status(failure: Failure) -> CmStatus {
    match failure {
        Failure::Refused => CmStatus::REFUSED,
        Failure::TimedOut => CmStatus::TIMED_OUT,
        Failure::Reset => CmStatus::RESET,
        Failure::Unreachable => CmStatus::UNREACHABLE,
        Failure::Protocol => CmStatus::PROTOCOL,
        Failure::InUse => CmStatus::IN_USE,
    }
}

/// `::ffff:a.b.c.d` is an IPv4 address, and all zero the unspecified one of either.
fn address(bytes: [u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
}

fn bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn qpn(number: u32) -> Result<Qpn, Status> {
    Qpn::new(number).ok_or(Status::NOT_FOUND)
}

/// What is wished for may be more than can be.
fn depths(ird: u16, ord: u16) -> Result<Depths, Status> {
    let depth = |wish: u16| u8::try_from(wish).ok().filter(|&wish| u32::from(wish) <= cm_limit::MAX_DEPTH);
    match (depth(ird), depth(ord)) {
        (Some(ird), Some(ord)) => Ok(Depths { ird, ord }),
        _ => Err(Status::INVALID),
    }
}

fn private_data(data: &[u8; 512], length: u16) -> Result<Vec<u8>, Status> {
    let length = usize::from(length);
    if length > cm_limit::MAX_PRIVATE_DATA as usize {
        return Err(Status::INVALID);
    }
    Ok(data[..length].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vrdma_abi::zerocopy::FromZeros;

    fn request() -> CmConnectReq {
        CmConnectReq {
            qpn: 7.into(),
            local_addr: bytes("10.0.0.1".parse().unwrap()),
            remote_addr: bytes("10.0.0.2".parse().unwrap()),
            remote_port: 4420.into(),
            ird: 4.into(),
            ord: 128.into(),
            private_data_len: 508.into(),
            ..CmConnectReq::new_zeroed()
        }
    }

    #[test]
    fn a_connection_is_what_the_driver_says() {
        let connect = connect(&request()).unwrap();
        assert_eq!(connect.remote, "10.0.0.2:4420".parse().unwrap());
        assert_eq!(connect.local, "10.0.0.1:0".parse().unwrap());
        assert_eq!(connect.depths, Depths { ird: 4, ord: 128 });
        assert_eq!((connect.private_data.len(), connect.peer_to_peer), (508, false));
    }

    #[test]
    fn an_address_is_known_in_whatever_form_it_comes() {
        let mapped: Ipv6Addr = "::ffff:127.0.0.1".parse().unwrap();
        let of_req = connect(&CmConnectReq { remote_addr: mapped.octets(), ..request() }).unwrap();
        assert!(of_req.remote.ip().is_loopback() && of_req.remote.is_ipv4());
        let listener = CmListenReq { addr: mapped.octets(), port: 9.into(), ..CmListenReq::new_zeroed() };
        assert_eq!(listen(&listener).unwrap().at, "127.0.0.1:9".parse().unwrap());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |change: fn(&mut CmConnectReq)| {
            let mut req = request();
            change(&mut req);
            connect(&req).unwrap_err()
        };
        assert_eq!(refused(|req| req.remote_port = 0.into()), Status::INVALID);
        assert_eq!(refused(|req| req.private_data_len = 509.into()), Status::INVALID);
        assert_eq!(refused(|req| req.ord = 129.into()), Status::INVALID);
        assert_eq!(refused(|req| req.ird = 300.into()), Status::INVALID);
        assert_eq!(refused(|req| req.reserved[1] = 1), Status::INVALID);
        // What belongs to a next hop, without that.
        assert_eq!(refused(|req| req.next_hop[5] = 1), Status::INVALID);
        assert_eq!(refused(|req| req.vlan = 5.into()), Status::INVALID);
        assert_eq!(refused(|req| req.path_mtu = 1500.into()), Status::INVALID);
        assert_eq!(refused(|req| req.priority = 1), Status::INVALID);
        assert_eq!(refused(|req| req.local_addr = [0x20; 16]), Status::INVALID);
        assert_eq!(refused(|req| req.flags = 4.into()), Status::UNSUPPORTED);
        assert_eq!(refused(|req| req.qpn = (1 << 24).into()), Status::NOT_FOUND);
        let listener = CmListenReq { port: 0.into(), ..CmListenReq::new_zeroed() };
        assert_eq!(listen(&listener).unwrap_err(), Status::INVALID);
        let listener = CmListenReq { port: 9.into(), reserved: 1, ..listener };
        assert_eq!(listen(&listener).unwrap_err(), Status::INVALID);
    }

    #[test]
    fn connections_have_the_traffic_class_and_the_priority_that_the_driver_says_without_bits_of_ecn() {
        let listener = CmListenReq { port: 9.into(), traffic_class: 0x68, ..CmListenReq::new_zeroed() };
        assert_eq!(listen(&listener).unwrap().traffic_class.number(), 0x68);
        assert_eq!(listen(&CmListenReq { traffic_class: 0x69, ..listener }).unwrap_err(), Status::INVALID);
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
        // Frames without a tag have none.
        assert_eq!(refused(CmConnectReq { vlan: 0.into(), ..request }), Status::INVALID);
    }

    #[test]
    fn an_event_is_told_as_it_is() {
        let event = CmEvent {
            what: What::ConnectReply(Err(Failure::Refused)),
            connection: 3,
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
