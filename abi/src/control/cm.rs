//! Commands and events of connections that the device makes itself. These are the connections of
//! iWARP.
//!
//! The iw_cm of the guest's kernel uses them.

use zerocopy::little_endian::{U16, U32};

consts! {
    /// Limits of connection management.
    pub mod cm_limit: u32 = "VRDMA_CM" {
        /// Bytes for private data in commands and events.
        PRIVATE_DATA = 512,
        /// Most bytes of private data in a command. The device needs the other 4 for IRD and ORD
        /// (RFC 6581).
        MAX_PRIVATE_DATA = 508,
        /// Most READs and atomics of a connection, in each direction.
        MAX_DEPTH = 128,
    }
}

layout! {
    /// Listens for connections.
    pub struct CmListenReq = "vrdma_cm_listen_req" {
        /// Address of the guest: an IPv6 address in network byte order, or `::ffff:a.b.c.d` for
        /// IPv4. All zero listens on each address that the guest may use.
        addr: [u8; 16],
        /// TCP port, not 0.
        port: U16,
        /// DS field (RFC 2474) of all that the listener's connections send, in the upper six bits.
        /// The lower two bits are zero. Other values than 0 need `VRDMA_CAP_CM_TRAFFIC_CLASS`.
        traffic_class: u8,
        /// Written as zero; refused otherwise.
        reserved: u8,
        /// Most connections that may wait for `VRDMA_CMD_CM_ACCEPT`, `VRDMA_CMD_CM_REJECT` or
        /// release, 1 to 256. Those whose peer has gone count too.
        backlog: U32,
    }
}

consts! {
    /// [`CmConnectReq::flags`].
    pub mod cm_flags: u32 = "VRDMA_CM" {
        /// The peer may send first. The device therefore sends a message of its own before all
        /// others (RFC 6581, 4).
        PEER_TO_PEER = 1 << 0,
        /// `next_hop` and the fields after it are given. A device with `VRDMA_CAP_NEXT_HOP`
        /// requires this; other devices ignore the fields.
        NEXT_HOP = 1 << 1,
    }
}

layout! {
    /// Connects a QP.
    pub struct CmConnectReq = "vrdma_cm_connect_req" {
        /// The QP: a reliable connection in state INIT.
        qpn: U32,
        /// `VRDMA_CM_*`: flags.
        flags: U32,
        /// Address of the guest, as in `struct vrdma_cm_listen_req`.
        local_addr: [u8; 16],
        /// Address of the peer, as in `struct vrdma_cm_listen_req`.
        remote_addr: [u8; 16],
        /// TCP port of the guest; 0 lets the device choose it.
        local_port: U16,
        /// TCP port of the peer, not 0.
        remote_port: U16,
        /// Wanted IRD: most READs and atomics that this end answers at once.
        ird: U16,
        /// Wanted ORD: most READs and atomics that this end has outstanding.
        ord: U16,
        /// Length of the private data in bytes.
        private_data_len: U16,
        /// With `VRDMA_CM_NEXT_HOP`: the MAC address to which frames to the peer go. It is not a
        /// group address.
        next_hop: [u8; 6],
        /// With `VRDMA_CM_NEXT_HOP`: the VLAN of these frames; 0 for frames without a tag.
        vlan: U16,
        /// With `VRDMA_CM_NEXT_HOP`: most bytes of an IP packet on the path; 0 for that of the
        /// device's port.
        path_mtu: U16,
        /// DS field of all that the connection sends, as in `struct vrdma_cm_listen_req`.
        traffic_class: u8,
        /// With `VRDMA_CM_NEXT_HOP` and in a VLAN: the priority (PCP, IEEE 802.1Q) of these frames,
        /// 0 to 7. Other values than 0 need `VRDMA_CAP_CM_TRAFFIC_CLASS`.
        priority: u8,
        /// Written as zero; refused otherwise. Without `VRDMA_CM_NEXT_HOP`, `next_hop`, `vlan`,
        /// `path_mtu` and `priority` are written as zero and refused otherwise, too.
        reserved: [u8; 2],
        /// Private data for the peer's program.
        private_data: [u8; 512],
    }
}

layout! {
    /// Accepts a connection that was requested.
    pub struct CmAcceptReq = "vrdma_cm_accept_req" {
        /// The connection, as the event named it.
        connection: U32,
        /// The QP: a reliable connection in state INIT.
        qpn: U32,
        /// Wanted IRD: most READs and atomics that this end answers at once.
        ird: U16,
        /// Wanted ORD: most READs and atomics that this end has outstanding.
        ord: U16,
        /// Length of the private data in bytes.
        private_data_len: U16,
        /// Written as zero; refused otherwise.
        reserved: U16,
        /// Private data for the peer's program.
        private_data: [u8; 512],
    }
}

layout! {
    /// Rejects a connection that was requested, and releases it.
    pub struct CmRejectReq = "vrdma_cm_reject_req" {
        /// The connection, as the event named it.
        connection: U32,
        /// Length of the private data in bytes.
        private_data_len: U16,
        /// Written as zero; refused otherwise.
        reserved: U16,
        /// Private data for the peer's program.
        private_data: [u8; 512],
    }
}

open_enum! {
    /// [`CmEventResp::kind`].
    pub enum CmEventKind: u32 = "VRDMA_CM_EVENT" {
        /// Nothing has happened.
        NONE = 0,
        /// A peer requests a connection. The driver accepts, rejects or releases it within 60 s.
        CONNECT_REQUEST = 1,
        /// The result of VRDMA_CMD_CM_CONNECT. With a `status` of `VRDMA_CM_OK` the QP is
        /// connected, in RTS. Otherwise the connection is over, and no event of it follows.
        CONNECT_REPLY = 2,
        /// A connection that was accepted is established. Its QP is in RTS.
        ESTABLISHED = 3,
        /// The peer has ended an established connection, or the connection broke. The QP is in ERR.
        DISCONNECT = 4,
        /// A connection that was established or accepted is over. No event of it follows.
        CLOSE = 5,
    }
}

open_enum! {
    /// [`CmEventResp::status`]. The errno that drivers make of it is in brackets.
    pub enum CmStatus: u32 = "VRDMA_CM" {
        /// The connection is established.
        OK = 0,
        /// Nobody listens there, or the peer's program rejects the connection (ECONNREFUSED).
        REFUSED = 1,
        /// No answer came in time (ETIMEDOUT).
        TIMED_OUT = 2,
        /// The peer, or this end, ended the connection before it was established (ECONNRESET).
        RESET = 3,
        /// The peer cannot be reached (EHOSTUNREACH).
        UNREACHABLE = 4,
        /// The peer speaks another protocol, or wants something that this end does not have
        /// (EPROTO).
        PROTOCOL = 5,
        /// The address or port is in use, or not available on this host (EADDRINUSE).
        IN_USE = 6,
    }
}

layout! {
    /// An event of a connection.
    pub struct CmEventResp = "vrdma_cm_event_resp" {
        /// `VRDMA_CM_EVENT_*`.
        kind: U32,
        /// The connection.
        connection: U32,
        /// The listener in `VRDMA_CM_EVENT_CONNECT_REQUEST`, else `VRDMA_NONE`.
        listener: U32,
        /// `VRDMA_CM_*` in `VRDMA_CM_EVENT_CONNECT_REPLY`, else 0.
        status: U32,
        /// Address of the guest, as in `struct vrdma_cm_listen_req`.
        local_addr: [u8; 16],
        /// Address of the peer, as in `struct vrdma_cm_listen_req`.
        remote_addr: [u8; 16],
        /// TCP port of the guest.
        local_port: U16,
        /// TCP port of the peer.
        remote_port: U16,
        /// In `VRDMA_CM_EVENT_CONNECT_REQUEST`: most READs and atomics that the peer will have
        /// outstanding, so the IRD it needs (128 if the peer does not say). Once connected: the
        /// agreed IRD.
        ird: U16,
        /// In `VRDMA_CM_EVENT_CONNECT_REQUEST`: most READs and atomics that the peer answers at
        /// once, so the largest possible ORD. Once connected: the agreed ORD.
        ord: U16,
        /// Length of the private data in bytes, in `VRDMA_CM_EVENT_CONNECT_REQUEST` and
        /// `VRDMA_CM_EVENT_CONNECT_REPLY`.
        private_data_len: U16,
        /// Written as zero.
        reserved: [u8; 6],
        /// Private data of the peer's program.
        private_data: [u8; 512],
    }
}
