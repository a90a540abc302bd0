//! Commands about queue pairs.

use zerocopy::little_endian::{U16, U32};

layout! {
    /// Creates a queue pair in state RESET.
    pub struct CreateQpReq = "vrdma_create_qp_req" {
        /// Context that owns it.
        context: U32,
        /// Protection domain; `VRDMA_NONE` for `VRDMA_QPT_XRC_RECV`.
        pdn: U32,
        /// `VRDMA_QPT_*`.
        qp_type: U32,
        /// CQ of send completions; `VRDMA_NONE` for `VRDMA_QPT_XRC_RECV`.
        send_cqn: U32,
        /// CQ of receive completions; may equal `send_cqn`. `VRDMA_NONE` for `VRDMA_QPT_XRC_SEND`
        /// and `VRDMA_QPT_XRC_RECV`.
        recv_cqn: U32,
        /// Shared receive queue of the same context, or `VRDMA_NONE`. With one, `max_recv_wr` and
        /// `max_recv_sge` do not count. Receives that the QP has taken from it but not completed go
        /// back to its head when the QP is reset or destroyed.
        srqn: U32,
        /// Most send requests outstanding.
        max_send_wr: U32,
        /// Most receive requests outstanding.
        max_recv_wr: U32,
        /// Most elements of a send request.
        max_send_sge: U32,
        /// Most elements of a receive request.
        max_recv_sge: U32,
        /// Most bytes of inline data.
        max_inline: U32,
        /// XRC domain of `VRDMA_QPT_XRC_RECV`. Other types write zero, and are refused otherwise.
        xrcdn: U32,
    }
}

layout! {
    /// The new queue pair. Its capabilities are those requested.
    pub struct CreateQpResp = "vrdma_create_qp_resp" {
        /// Its number, 24 bits.
        qpn: U32,
        /// Written as zero.
        reserved: U32,
    }
}

open_enum! {
    /// [`CreateQpReq::qp_type`], with the numbers of enum ib_qp_type.
    pub enum QpType: u32 = "VRDMA_QPT" {
        /// General services QP (QP1): a UD QP of the kernel.
        GSI = 1,
        /// Reliable connection.
        RC = 2,
        /// Unreliable connection.
        UC = 3,
        /// Unreliable datagram.
        UD = 4,
        /// XRC initiator: the sending half of a reliable connection. Each request names a shared
        /// receive queue of the peer (`VRDMA_WQE_F_XRC`). The QP has no receives: `max_recv_wr` and
        /// `max_recv_sge` do not count, and `srqn` is `VRDMA_NONE`. Needs `VRDMA_CAP_XRC`.
        XRC_SEND = 9,
        /// XRC target: the receiving half of a reliable connection. It sends nothing:
        /// `max_send_wr`, `max_send_sge`, `max_inline`, `max_recv_wr` and `max_recv_sge` do not
        /// count, and `srqn` is `VRDMA_NONE`. The shared receive queue that a request names must be
        /// in the QP's XRC domain. Otherwise the request ends as `VRDMA_WC_REM_ACCESS_ERR`, and
        /// `VRDMA_EVENT_QP_ACCESS_ERR` is raised. The message takes its receive from that queue,
        /// and the receive completes at the queue's CQ. Keys in the request name memory of the
        /// queue's PD. Needs `VRDMA_CAP_XRC`.
        XRC_RECV = 10,
    }
}

open_enum! {
    /// State of a QP, with the numbers of enum ib_qp_state.
    pub enum QpState: u32 = "VRDMA_QPS" {
        /// Created; nothing can be posted.
        RESET = 0,
        /// Receives can be posted.
        INIT = 1,
        /// Ready to receive.
        RTR = 2,
        /// Ready to send.
        RTS = 3,
        /// Send queue drains.
        SQD = 4,
        /// Send queue in error.
        SQE = 5,
        /// Error. Everything posted is flushed.
        ERR = 6,
    }
}

consts! {
    /// Which fields of [`QpAttr`] a [`ModifyQpReq`] sets, with the numbers of enum
    /// ibv_qp_attr_mask.
    pub mod qp_attr: u32 = "VRDMA_QP" {
        /// `state`
        STATE = 1 << 0,
        /// `cur_state`: refuse the command unless the QP is in this state.
        CUR_STATE = 1 << 1,
        /// `en_sqd_async_notify`
        EN_SQD_ASYNC_NOTIFY = 1 << 2,
        /// `access`
        ACCESS_FLAGS = 1 << 3,
        /// `pkey_index`
        PKEY_INDEX = 1 << 4,
        /// `port`
        PORT = 1 << 5,
        /// `qkey`
        QKEY = 1 << 6,
        /// The address vector: `dgid` up to `vlan`
        AV = 1 << 7,
        /// `path_mtu`
        PATH_MTU = 1 << 8,
        /// `timeout`
        TIMEOUT = 1 << 9,
        /// `retry_cnt`
        RETRY_CNT = 1 << 10,
        /// `rnr_retry`
        RNR_RETRY = 1 << 11,
        /// `rq_psn`
        RQ_PSN = 1 << 12,
        /// `max_rd_atomic`
        MAX_RD_ATOMIC = 1 << 13,
        /// Alternate path: refused.
        ALT_PATH = 1 << 14,
        /// `min_rnr_timer`
        MIN_RNR_TIMER = 1 << 15,
        /// `sq_psn`
        SQ_PSN = 1 << 16,
        /// `max_dest_rd_atomic`
        MAX_DEST_RD_ATOMIC = 1 << 17,
        /// Path migration state: ignored. A QP is always MIGRATED; drivers refuse other states
        /// (EINVAL).
        PATH_MIG_STATE = 1 << 18,
        /// Capabilities: refused.
        CAP = 1 << 19,
        /// `dest_qpn`
        DEST_QPN = 1 << 20,
    }
}

layout! {
    /// Attributes of a QP, with the meaning, units and encodings of ibv_modify_qp(3).
    ///
    /// Only the low bits of `sl`, `flow_label`, the PSNs, `dest_qpn`, the retries and
    /// `min_rnr_timer` count (see [`crate::width`]).
    pub struct QpAttr = "vrdma_qp_attr" {
        /// `VRDMA_QPS_*`: the state.
        state: u8,
        /// `VRDMA_QPS_*`: the state that the driver assumes.
        cur_state: u8,
        /// 1: raise `VRDMA_EVENT_SQ_DRAINED` once the send queue is drained.
        en_sqd_async_notify: u8,
        /// 1 in a reply: the QP is in state SQD, and its send queue is still draining.
        sq_draining: u8,
        /// `VRDMA_ACCESS_*`: the most that peers may do. The region or window has to allow it too.
        /// Other bits are refused.
        access: U32,
        /// Index of the P_Key: 0.
        pkey_index: U16,
        /// Port: 1.
        port: u8,
        /// Path MTU as enum ibv_mtu: 1 (256 bytes) to 5 (4096 bytes).
        path_mtu: u8,
        /// Q_Key.
        qkey: U32,
        /// First PSN expected from the peer, 24 bits.
        rq_psn: U32,
        /// First PSN sent, 24 bits.
        sq_psn: U32,
        /// QPN of the peer, 24 bits.
        dest_qpn: U32,
        /// READs and atomics outstanding as requester.
        max_rd_atomic: u8,
        /// READs and atomics outstanding as responder.
        max_dest_rd_atomic: u8,
        /// RNR NAK timer code, 0..31 (IBTA table 45).
        min_rnr_timer: u8,
        /// Local ACK timeout code, 0..31: 4.096 us * 2^timeout; 0 is no timeout.
        timeout: u8,
        /// Retries, 0..7.
        retry_cnt: u8,
        /// RNR retries, 0..7; 7 means without limit.
        rnr_retry: u8,
        /// Service level.
        sl: u8,
        /// Index of the own GID.
        sgid_index: u8,
        /// GID of the peer, in network byte order.
        dgid: [u8; 16],
        /// MAC address to which frames for the peer are sent.
        dmac: [u8; 6],
        /// Hop limit.
        hop_limit: u8,
        /// Traffic class.
        traffic_class: u8,
        /// Flow label, 20 bits.
        flow_label: U32,
        /// UDP source port; 0 lets the device choose it.
        udp_sport: U16,
        /// VLAN of the own GID: 1..4094, or 0xffff for none.
        vlan: U16,
    }
}

layout! {
    /// Changes attributes or the state of a QP.
    pub struct ModifyQpReq = "vrdma_modify_qp_req" {
        /// The QP.
        qpn: U32,
        /// `VRDMA_QP_*`: the fields of `attr` that count.
        mask: U32,
        /// New values.
        attr: QpAttr,
    }
}
