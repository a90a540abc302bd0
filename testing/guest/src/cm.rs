//! Connections that the device makes for a guest (iWARP).

use crate::control::Answer;
use crate::guest::{Guest, GuestTcp};
use crate::qp::{Qp, QpOptions};
use crate::side::Side;
use crate::wait;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use vrdma_abi::control::*;
use vrdma_abi::zerocopy::FromZeros;

/// Number of READs and atomics (IRD and ORD) that tests request.
const DEPTH: u16 = 16;

/// Returns the address of this host from which guest `index` connects.
///
/// It depends on the process number, so concurrent test processes use different addresses.
pub fn host_address(index: u8) -> Ipv4Addr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high, low, index + 1)
}

impl GuestTcp {
    /// Returns the address from which guest `index` connects, and on which it listens.
    pub fn address(self, index: u8) -> Ipv4Addr {
        match self {
            GuestTcp::Kernel => host_address(index),
            GuestTcp::Own => Ipv4Addr::new(10, 0, 0, index + 1),
        }
    }

    /// Returns the MAC address for frames to guest `index`.
    ///
    /// It is `None` over the host's TCP, where the guest does not choose the next hop.
    pub fn next_hop(self, index: u8) -> Option<[u8; 6]> {
        (self == GuestTcp::Own).then_some([0x52, 0x54, 0, 0, 0, index + 1])
    }

    /// Returns a port of guest `index` that is unused at the moment.
    pub fn free_port(self, index: u8) -> u16 {
        static NEXT: AtomicU16 = AtomicU16::new(20_000);
        match self {
            GuestTcp::Kernel => free_port(host_address(index)),
            GuestTcp::Own => NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// Returns an address in the format of commands: IPv4 as an IPv4-mapped IPv6 address.
pub fn mapped(address: impl Into<IpAddr>) -> [u8; 16] {
    match address.into() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Returns a port of `address` that is unused at the moment.
pub fn free_port(address: Ipv4Addr) -> u16 {
    let listener = TcpListener::bind((address, 0)).expect("an address of this host");
    listener.local_addr().expect("it is bound").port()
}

/// Builds a request that connects a QP of guest `from` to a port of guest `to`.
pub fn request(qp: &Qp, from: u8, to: u8, port: u16, private_data: &[u8]) -> CmConnectReq {
    let tcp = qp.guest().options.tcp;
    let next_hop = tcp.next_hop(to);
    let with_hop = if next_hop.is_some() { cm_flags::NEXT_HOP } else { 0 };
    let mut req = CmConnectReq {
        qpn: qp.number.into(),
        flags: (cm_flags::PEER_TO_PEER | with_hop).into(),
        next_hop: next_hop.unwrap_or_default(),
        local_addr: mapped(tcp.address(from)),
        remote_addr: mapped(tcp.address(to)),
        remote_port: port.into(),
        ird: DEPTH.into(),
        ord: DEPTH.into(),
        private_data_len: (private_data.len() as u16).into(),
        ..CmConnectReq::new_zeroed()
    };
    req.private_data[..private_data.len()].copy_from_slice(private_data);
    req
}

/// Returns the private data of an event.
pub fn data_of(event: &CmEventResp) -> &[u8] {
    &event.private_data[..usize::from(event.private_data_len.get())]
}

/// The commands for connections. [`vrdma_abi::control`] specifies each of them.
#[allow(missing_docs, reason = "each is the command of that name")]
impl Guest {
    pub fn cm_listen(&self, address: impl Into<IpAddr>, port: u16, backlog: u32) -> Answer<u32> {
        let addr = mapped(address);
        let req =
            CmListenReq { addr, port: port.into(), backlog: backlog.into(), ..CmListenReq::new_zeroed() };
        self.cm_listen_as(&req)
    }

    pub fn cm_listen_as(&self, req: &CmListenReq) -> Answer<u32> {
        self.command(Opcode::CM_LISTEN, req, &[]).map(|resp: ObjectResp| resp.object.get())
    }

    pub fn cm_connect(&self, req: &CmConnectReq) -> Answer<u32> {
        self.command(Opcode::CM_CONNECT, req, &[]).map(|resp: ObjectResp| resp.object.get())
    }

    pub fn cm_accept(&self, connection: u32, qpn: u32, private_data: &[u8]) -> Answer<()> {
        let mut req = CmAcceptReq {
            connection: connection.into(),
            qpn: qpn.into(),
            ird: DEPTH.into(),
            ord: DEPTH.into(),
            private_data_len: (private_data.len() as u16).into(),
            ..CmAcceptReq::new_zeroed()
        };
        req.private_data[..private_data.len()].copy_from_slice(private_data);
        self.command::<[u8; 0]>(Opcode::CM_ACCEPT, &req, &[]).map(|_| ())
    }

    pub fn cm_reject(&self, connection: u32, private_data: &[u8]) -> Answer<()> {
        let mut req = CmRejectReq {
            connection: connection.into(),
            private_data_len: (private_data.len() as u16).into(),
            ..CmRejectReq::new_zeroed()
        };
        req.private_data[..private_data.len()].copy_from_slice(private_data);
        self.command::<[u8; 0]>(Opcode::CM_REJECT, &req, &[]).map(|_| ())
    }

    fn cm_of(&self, opcode: Opcode, object: u32) -> Answer<()> {
        let req = ObjectReq { object: object.into(), reserved: 0.into() };
        self.command::<[u8; 0]>(opcode, &req, &[]).map(|_| ())
    }

    pub fn cm_close_listener(&self, listener: u32) -> Answer<()> {
        self.cm_of(Opcode::CM_CLOSE_LISTENER, listener)
    }

    pub fn cm_disconnect(&self, qpn: u32) -> Answer<()> {
        self.cm_of(Opcode::CM_DISCONNECT, qpn)
    }

    pub fn cm_release(&self, connection: u32) -> Answer<()> {
        self.cm_of(Opcode::CM_RELEASE, connection)
    }

    pub fn cm_get_event(&self) -> Answer<CmEventResp> {
        self.command(Opcode::CM_GET_EVENT, &[0u8; 0], &[])
    }

    /// Takes the next connection event, or `None` if none comes within `time`.
    ///
    /// It polls with the command `CM_GET_EVENT` and does not wait for a notification.
    pub fn cm_event_within(&self, time: Duration) -> Option<CmEventResp> {
        wait::within(time, || {
            let event = self.cm_get_event().expect("a function of iWARP");
            (event.kind.get() != CmEventKind::NONE.0).then_some(event)
        })
    }

    /// Waits for the next connection event and asserts its kind.
    pub fn cm_event(&self, kind: CmEventKind) -> CmEventResp {
        let event = self.cm_event_within(wait::PATIENCE).unwrap_or_else(|| panic!("no event {kind:?}"));
        assert_eq!(CmEventKind(event.kind.get()), kind, "status {}", event.status.get());
        event
    }
}

impl Guest {
    /// Asserts that the next two events report the end of `connection`: `DISCONNECT`, then `CLOSE`.
    pub fn cm_expect_end(&self, connection: u32) {
        for kind in [CmEventKind::DISCONNECT, CmEventKind::CLOSE] {
            assert_eq!(self.cm_event(kind).connection.get(), connection, "{kind:?}");
        }
    }
}

/// Creates a side in guest 0 and one in guest 1, and connects them.
///
/// The first side is the initiator. Each side is returned with the number of its connection.
pub fn connected(
    a: &Arc<Guest>,
    b: &Arc<Guest>,
    len: u64,
    options: &QpOptions,
) -> ((Side, u32), (Side, u32)) {
    let (a, b) = (Side::new(a, len, options), Side::new(b, len, options));
    let (of_a, of_b) = connect_streams(&a.qp, &b.qp);
    ((a, of_a), (b, of_b))
}

/// Connects two QPs, from RESET to RTS, and returns the numbers of their connections.
///
/// The addresses of both guests follow from [`GuestOptions::host`](crate::GuestOptions::host).
pub fn connect_streams(a: &Qp, b: &Qp) -> (u32, u32) {
    let [from, to] = [a, b].map(|qp| qp.guest().options.host - 1);
    let tcp = b.guest().options.tcp;
    let port = tcp.free_port(to);
    let listener = b.guest().cm_listen(tcp.address(to), port, 1).expect("to listen");
    let numbers = connect_to(listener, &request(a, from, to, port, b"hello"), a, b);
    b.guest().cm_close_listener(listener).expect("to listen no more");
    numbers
}

/// Connects `a` to `b` by request `req`, from RESET to RTS.
///
/// The guest of `b` listens with `listener`. The request has to carry the private data `hello`.
/// Returns the numbers of both connections.
pub fn connect_to(listener: u32, req: &CmConnectReq, a: &Qp, b: &Qp) -> (u32, u32) {
    a.to_init().expect("to INIT");
    b.to_init().expect("to INIT");
    let of_a = a.guest().cm_connect(req).expect("to connect");
    let event = b.guest().cm_event(CmEventKind::CONNECT_REQUEST);
    assert_eq!((event.local_addr, event.remote_addr), (req.remote_addr, req.local_addr));
    assert_eq!((event.listener.get(), data_of(&event)), (listener, &b"hello"[..]));
    assert_eq!((event.ird.get(), event.ord.get()), (DEPTH, DEPTH));
    let of_b = event.connection.get();
    b.guest().cm_accept(of_b, b.number, b"welcome").expect("to accept");
    assert_eq!(b.guest().cm_event(CmEventKind::ESTABLISHED).connection.get(), of_b);
    let event = a.guest().cm_event(CmEventKind::CONNECT_REPLY);
    assert_eq!((event.connection.get(), event.status.get()), (of_a, CmStatus::OK.0));
    assert_eq!((data_of(&event), event.ird.get(), event.ord.get()), (&b"welcome"[..], DEPTH, DEPTH));
    assert_eq!((a.state(), b.state()), (QpState::RTS, QpState::RTS));
    (of_a, of_b)
}
