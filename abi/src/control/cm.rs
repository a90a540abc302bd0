//! What commands say of connections that the device makes by itself: those of iWARP, for the iw_cm
//! of the guest's kernel.

use zerocopy::little_endian::{U16, U32};

consts! {
    /// Limits of connection management.
    pub mod cm_limit: u32 = "VRDMA_CM" {
        /// Room for private data in commands and events.
        PRIVATE_DATA = 512,
        /// Most bytes of private data that a command may have: 4 are the device's own, for IRD and
        /// ORD (RFC 6581).
        MAX_PRIVATE_DATA = 508,
        /// Most READs and atomics of a connection, in each direction.
        MAX_DEPTH = 128,
    }
}

layout! {
    /// Listens for connections.
    pub struct CmListenReq = "vrdma_cm_listen_req" {
        /// Address of the guest: an IPv6 address in network byte order, `::ffff:a.b.c.d` for an
        /// IPv4 one; all zero for each that it may use.
        addr: [u8; 16],
        /// TCP port, not 0.
        port: U16,
        /// The DS field of all that its connections send (RFC 2474), in the upper six bits; the
        /// lower two are zero. Another value than 0 only for a device with
        /// `VRDMA_CAP_CM_TRAFFIC_CLASS`.
        traffic_class: u8,
        /// Written as zero; refused otherwise.
        reserved: u8,
        /// Connections that may wait for their `VRDMA_CMD_CM_ACCEPT` or `VRDMA_CMD_CM_REJECT` (or
        /// release), those whose peer has gone included; 1 to 256.
        backlog: U32,
    }
}

consts! {
    /// [`CmConnectReq::flags`].
    pub mod cm_flags: u32 = "VRDMA_CM" {
        /// The peer may send first: the device sends a message of its own before all others (RFC
        /// 6581, 4).
        PEER_TO_PEER = 1 << 0,
        /// `next_hop` and what follows it are given. For a device with `VRDMA_CAP_NEXT_HOP`, which
        /// needs it; others do not look at them.
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
        /// Address of the peer, likewise.
        remote_addr: [u8; 16],
        /// TCP port of the guest; 0 for the device's choice.
        local_port: U16,
        /// TCP port of the peer, not 0.
        remote_port: U16,
        /// READs and atomics answered at once, wished for.
        ird: U16,
        /// READs and atomics outstanding, wished for.
        ord: U16,
        /// Bytes of private data.
        private_data_len: U16,
        /// With `VRDMA_CM_NEXT_HOP`: the MAC address to which frames to the peer go; it is no
        /// group's.
        next_hop: [u8; 6],
        /// With `VRDMA_CM_NEXT_HOP`: the VLAN of these frames; 0: without a tag.
        vlan: U16,
        /// With `VRDMA_CM_NEXT_HOP`: most bytes of an IP packet on the way; 0: as the device's
        /// port.
        path_mtu: U16,
        /// The DS field of all that the connection sends, as in `struct vrdma_cm_listen_req`.
        traffic_class: u8,
        /// With `VRDMA_CM_NEXT_HOP` and in a VLAN: the priority (PCP, IEEE 802.1Q) of these frames,
        /// 0 to 7. Another value than 0 only for a device with `VRDMA_CAP_CM_TRAFFIC_CLASS`.
        priority: u8,
        /// Written as zero, as are `next_hop`, `vlan`, `path_mtu` and `priority` without
        /// `VRDMA_CM_NEXT_HOP`; refused otherwise.
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
        /// READs and atomics answered at once, wished for.
        ird: U16,
        /// READs and atomics outstanding, wished for.
        ord: U16,
        /// Bytes of private data.
        private_data_len: U16,
        /// Written as zero; refused otherwise.
        reserved: U16,
        /// Private data for the peer's program.
        private_data: [u8; 512],
    }
}

layout! {
    /// Rejects a connection that was requested. It is released by that.
    pub struct CmRejectReq = "vrdma_cm_reject_req" {
        /// The connection, as the event named it.
        connection: U32,
        /// Bytes of private data.
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
        /// A peer wants a connection. The driver accepts, rejects or releases it, within 60 s.
        CONNECT_REQUEST = 1,
        /// How VRDMA_CMD_CM_CONNECT ended. With a `status` of `VRDMA_CM_OK` the QP is connected, in
        /// RTS; else the connection is over, and nothing more happens to it.
        CONNECT_REPLY = 2,
        /// A connection that was accepted is established; its QP is in RTS.
        ESTABLISHED = 3,
        /// The peer has ended an established connection, or it broke; the QP is in ERR.
        DISCONNECT = 4,
        /// A connection that was established or accepted is over, the last that happens to it.
        CLOSE = 5,
    }
}

open_enum! {
    /// [`CmEventResp::status`]. In brackets the errno that drivers make of it.
    pub enum CmStatus: u32 = "VRDMA_CM" {
        /// It is connected.
        OK = 0,
        /// Nobody listens there, or the peer's program rejects it (ECONNREFUSED).
        REFUSED = 1,
        /// No answer came in time (ETIMEDOUT).
        TIMED_OUT = 2,
        /// The peer, or this end, ended it before it was established (ECONNRESET).
        RESET = 3,
        /// The peer cannot be reached (EHOSTUNREACH).
        UNREACHABLE = 4,
        /// The peer speaks something else, or wants what this end does not have (EPROTO).
        PROTOCOL = 5,
        /// The address or port cannot be had (EADDRINUSE).
        IN_USE = 6,
    }
}

layout! {
    /// What happened to a connection.
    pub struct CmEventResp = "vrdma_cm_event_resp" {
        /// `VRDMA_CM_EVENT_*`.
        kind: U32,
        /// The connection.
        connection: U32,
        /// Of `VRDMA_CM_EVENT_CONNECT_REQUEST`: the listener; else `VRDMA_NONE`.
        listener: U32,
        /// Of `VRDMA_CM_EVENT_CONNECT_REPLY`: `VRDMA_CM_*`; else 0.
        status: U32,
        /// Address of the guest, as in `struct vrdma_cm_listen_req`.
        local_addr: [u8; 16],
        /// Address of the peer, likewise.
        remote_addr: [u8; 16],
        /// TCP port of the guest.
        local_port: U16,
        /// TCP port of the peer.
        remote_port: U16,
        /// Of `VRDMA_CM_EVENT_CONNECT_REQUEST`: READs and atomics that the peer will have
        /// outstanding at most, so what IRD has to be (128 if it does not say); once it is
        /// connected, the IRD agreed about.
        ird: U16,
        /// Of `VRDMA_CM_EVENT_CONNECT_REQUEST`: READs and atomics that the peer answers at once, so
        /// what ORD may be; once it is connected, the ORD agreed about.
        ord: U16,
        /// Bytes of private data, of the first two kinds.
        private_data_len: U16,
        /// Written as zero.
        reserved: [u8; 6],
        /// Private data of the peer's program.
        private_data: [u8; 512],
    }
}
