//! Commands about the device as a whole, its port, and the port's GIDs.

use zerocopy::little_endian::{U16, U32, U64};

layout! {
    /// Limits of the device, as in version 1.0.
    pub struct QueryDeviceResp = "vrdma_query_device_resp" {
        /// Version of the device's software, major << 32 | minor << 16 | patch.
        fw_version: U64,
        /// System image GUID, EUI-64 of the MAC, in network byte order.
        sys_image_guid: [u8; 8],
        /// Largest region, bytes.
        max_mr_size: U64,
        /// Most extents of one region.
        max_mr_runs: U32,
        /// Most user contexts.
        max_contexts: U32,
        /// Most PDs.
        max_pd: U32,
        /// Most CQs.
        max_cq: U32,
        /// Most CQEs of one CQ; a power of two.
        max_cqe: U32,
        /// Most MRs and memory windows together.
        max_mr: U32,
        /// A power of two. No two existing QPs have QPNs that are equal modulo this number. Two of
        /// the QPNs are not for ordinary QPs (0, and 1 for QP1), so there are at most `max_qp - 2`
        /// of them.
        max_qp: U32,
        /// Most requests outstanding of one send or receive queue.
        max_qp_wr: U32,
        /// Most scatter/gather elements of a send request.
        max_send_sge: U32,
        /// Most scatter/gather elements of a receive request.
        max_recv_sge: U32,
        /// Most bytes of inline data in a send request.
        max_inline: U32,
        /// Most READs and atomics outstanding of one QP, as requester.
        max_rd_atomic: U32,
        /// Most READs and atomics outstanding of one QP, as responder.
        max_dest_rd_atomic: U32,
        /// Most entries of the AH table, the kernel's own included.
        max_ah: U32,
        /// 0: no atomics. 1: atomic with respect to this device (IB_ATOMIC_HCA). 2 or more: atomic
        /// with respect to processors too (IB_ATOMIC_GLOB), because atomics are the host's own
        /// instructions. An emulator may break that promise on the guest's side, by making the
        /// guest's `lock`ed instructions plain ones. QEMU's TCG does so for a VM with one
        /// processor.
        atomic_cap: U32,
        /// Written as zero.
        reserved: U32,
    }
}

layout! {
    /// Limits and capabilities of the device.
    pub struct QueryDeviceExResp = "vrdma_query_device_ex_resp" {
        /// The limits of version 1.0.
        base: QueryDeviceResp,
        /// `VRDMA_CAP_*`. 0 (a device of version 1.0) means `VRDMA_CAP_V1_0`.
        device_cap: U64,
        /// Most shared receive queues. The limits of their receives are those of QPs.
        max_srq: U32,
        /// Most multicast groups with members; 0 without `VRDMA_CAP_MULTICAST`.
        max_mcast_grp: U32,
        /// Most QPs of one multicast group.
        max_mcast_qp_attach: U32,
        /// Most QPs of all multicast groups together.
        max_total_mcast_qp_attach: U32,
        /// Most pages of a fast registration; 0 without `VRDMA_CAP_MEM_MGT_EXTENSIONS`.
        max_fast_reg_pages: U32,
        /// Written as zero.
        reserved: [u8; 140],
    }
}

consts! {
    /// [`QueryDeviceExResp::device_cap`].
    ///
    /// A device sets a bit only if it has the whole function. Bits whose function this crate does
    /// not describe are reserved by name: no device has them yet.
    pub mod device_cap: u64 = "VRDMA_CAP" {
        /// MODIFY_QP compares the current state with `cur_state`.
        CUR_QP_STATE = 1 << 0,
        /// `VRDMA_EVENT_PORT_ACTIVE` reports that the port is up.
        PORT_ACTIVE_EVENT = 1 << 1,
        /// `sys_image_guid` is valid.
        SYS_IMAGE_GUID = 1 << 2,
        /// A missing receive of a reliable connection gives an RNR NAK.
        RNR_NAK = 1 << 3,
        /// The counter `bad_qkeys` is maintained.
        BAD_QKEY_COUNTER = 1 << 4,
        /// The functions of a device of version 1.0.
        V1_0 = 0x1f,
        /// Shared receive queues, with limit events and `LAST_WQE_REACHED`.
        SRQ = 1 << 8,
        /// Shared receive queues can be resized.
        SRQ_RESIZE = 1 << 9,
        /// XRC: domains, shared receive queues, and both types of QP.
        XRC = 1 << 10,
        /// Memory windows of type 1.
        MEM_WINDOW = 1 << 11,
        /// Memory windows of type 2B.
        MEM_WINDOW_TYPE_2B = 1 << 12,
        /// Base memory management extensions: fast registration, local invalidate, SEND with
        /// invalidate.
        MEM_MGT_EXTENSIONS = 1 << 13,
        /// Regions can be registered again with other memory, rights or PD.
        REREG_MR = 1 << 14,
        /// ATOMIC WRITE.
        ATOMIC_WRITE = 1 << 15,
        /// FLUSH to global visibility.
        FLUSH_GLOBAL = 1 << 16,
        /// FLUSH to persistence.
        FLUSH_PERSISTENT = 1 << 17,
        /// CQs can be resized.
        CQ_RESIZE = 1 << 18,
        /// Completion events can be moderated, by count and time.
        CQ_MODERATION = 1 << 19,
        /// CQs whose CQEs have a time stamp, and a clock to query.
        CQ_TIMESTAMP = 1 << 20,
        /// CQs that ignore an overrun.
        CQ_IGNORE_OVERRUN = 1 << 21,
        /// UD QPs can be attached to multicast groups.
        MULTICAST = 1 << 22,
        /// Counters of the port, of the device and of its protocol.
        HW_COUNTERS = 1 << 23,
        /// CM_CONNECT must name the next hop, because the device has no routes and no neighbours of
        /// its own.
        NEXT_HOP = 1 << 24,
        /// Lists of requests (`VRDMA_WQE_F_LIST`). `max_wqe_units` is at least 2.
        WQE_LIST = 1 << 25,
        /// CM_CONNECT and CM_LISTEN set the traffic class of connections.
        CM_TRAFFIC_CLASS = 1 << 26,
    }
}

layout! {
    /// State of the port.
    pub struct QueryPortResp = "vrdma_query_port_resp" {
        /// `VRDMA_PORT_*` (the numbers of enum ib_port_state).
        state: u8,
        /// Reserved, zero.
        reserved0: u8,
        /// Entries of the GID table.
        gid_table_len: U16,
        /// Largest path MTU, bytes.
        max_mtu: U32,
        /// Path MTU in use, bytes: the largest, or the value of SET_PORT_MTU.
        active_mtu: U32,
        /// Speed of the uplink in Mb/s; 100,000 if there is no uplink, or it does not report its
        /// speed.
        speed: U32,
        /// Largest message, bytes.
        max_msg_size: U32,
        /// Packets or same-host messages refused for a wrong Q_Key.
        bad_qkeys: U32,
        /// Written as zero.
        reserved: U64,
    }
}

consts! {
    /// [`QueryPortResp::state`].
    pub mod port_state: u8 = "VRDMA_PORT" {
        /// No link.
        DOWN = 1,
        /// Link up.
        ACTIVE = 4,
    }
}

layout! {
    /// Sets the largest datagram that the guest's netdev allows.
    ///
    /// The device does not know the MTU of that netdev.
    pub struct SetPortMtuReq = "vrdma_set_port_mtu_req" {
        /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096, and at most `max_mtu`.
        mtu: U32,
        /// Written as zero; refused otherwise.
        reserved: U32,
    }
}

layout! {
    /// Sets an entry of the GID table.
    pub struct AddGidReq = "vrdma_add_gid_req" {
        /// Index in the GID table.
        index: U32,
        /// `VRDMA_GID_*`.
        gid_type: u8,
        /// Reserved, zero.
        reserved0: u8,
        /// VLAN in which the device has the address: 1..4094, or 0xffff for frames without a tag.
        vlan: U16,
        /// The GID, in network byte order.
        gid: [u8; 16],
    }
}

layout! {
    /// An entry of the GID table; `gid` is all zero if it is empty.
    pub struct QueryGidResp = "vrdma_query_gid_resp" {
        /// The GID, in network byte order.
        gid: [u8; 16],
        /// `VRDMA_GID_*`.
        gid_type: u8,
        /// Reserved, zero.
        reserved0: u8,
        /// VLAN id 1..4094, or 0xffff for none.
        vlan: U16,
        /// Written as zero.
        reserved: U32,
    }
}

consts! {
    /// [`AddGidReq::gid_type`].
    pub mod gid_type: u8 = "VRDMA_GID" {
        /// RoCE version 2 (UDP).
        ROCE_V2 = 2,
    }
}
