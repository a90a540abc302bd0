//! What commands say of queue pairs.

use zerocopy::little_endian::{U16, U32};

layout! {
    /// Creates a queue pair in state RESET.
    pub struct CreateQpReq = "vrdma_create_qp_req" {
        /// Context that owns it.
        context: U32,
        /// Protection domain; `VRDMA_NONE` of `VRDMA_QPT_XRC_RECV`.
        pdn: U32,
        /// `VRDMA_QPT_*`.
        qp_type: U32,
        /// CQ of send completions; `VRDMA_NONE` of `VRDMA_QPT_XRC_RECV`.
        send_cqn: U32,
        /// CQ of receive completions; may be the same. `VRDMA_NONE` of `VRDMA_QPT_XRC_SEND` and
        /// `VRDMA_QPT_XRC_RECV`.
        recv_cqn: U32,
        /// Shared receive queue of the same context, or `VRDMA_NONE`. With one, `max_recv_wr` and
        /// `max_recv_sge` do not count, and receives that the QP has taken and that did not
        /// complete are the first of the shared queue again when it is reset or destroyed.
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
        /// XRC domain of `VRDMA_QPT_XRC_RECV`; of others written as zero, and refused otherwise.
        xrcdn: U32,
    }
}

layout! {
    /// The new queue pair. Its capabilities are those asked for.
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
        /// General services (QP1), a UD QP of the kernel.
        GSI = 1,
        /// Reliable connection.
        RC = 2,
        /// Unreliable connection.
        UC = 3,
        /// Unreliable datagram.
        UD = 4,
        /// XRC initiator: the sending half of a reliable connection. Each request names a shared
        /// receive queue of the peer (`VRDMA_WQE_F_XRC`). It has no receives: `max_recv_wr` and
        /// `max_recv_sge` do not count, `srqn` is `VRDMA_NONE`. With `VRDMA_CAP_XRC`, as the next.
        XRC_SEND = 9,
        /// XRC target: the receiving half. It sends nothing: `max_send_wr`, `max_send_sge` and
        /// `max_inline` do not count either. The shared receive queue that a request names has to
        /// be in the QP's XRC domain: otherwise it ends as `VRDMA_WC_REM_ACCESS_ERR`, and
        /// `VRDMA_EVENT_QP_ACCESS_ERR` is raised. From it the message takes its receive, which
        /// completes at that queue's CQ; and memory of that queue's PD is what keys in the request
        /// name.
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
        /// Error; everything posted is flushed.
        ERR = 6,
    }
}

consts! {
    /// Which fields of [`QpAttr`] a [`ModifyQpReq`] sets, with the numbers of enum
    /// ibv_qp_attr_mask.
    pub mod qp_attr: u32 = "VRDMA_QP" {
        /// `state`
        STATE = 1 << 0,
        /// `cur_state`: refuse unless the QP is in it.
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
        /// Path migration state: ignored. A QP is MIGRATED always; drivers refuse other states
        /// (EINVAL).
        PATH_MIG_STATE = 1 << 18,
        /// Capabilities: refused.
        CAP = 1 << 19,
        /// `dest_qpn`
        DEST_QPN = 1 << 20,
    }
}

layout! {
    /// Attributes of a QP, with the meaning, units and encodings of ibv_modify_qp(3). Of `sl`,
    /// `flow_label`, the PSNs, `dest_qpn`, the retries and `min_rnr_timer` the low bits count (see
    /// [`crate::width`]).
    pub struct QpAttr = "vrdma_qp_attr" {
        /// `VRDMA_QPS_*`.
        state: u8,
        /// `VRDMA_QPS_*`.
        cur_state: u8,
        /// 1: raise `VRDMA_EVENT_SQ_DRAINED` once drained.
        en_sqd_async_notify: u8,
        /// 1 in a reply: in state SQD, the send queue is still draining.
        sq_draining: u8,
        /// `VRDMA_ACCESS_*`: what peers may use at all. Other bits are refused.
        access: U32,
        /// Index of the P_Key: 0.
        pkey_index: U16,
        /// Port: 1.
        port: u8,
        /// Path MTU as enum ibv_mtu: 1 (256 bytes) to 5 (4096 bytes).
        path_mtu: u8,
        /// Q_Key.
        qkey: U32,
        /// PSN expected first from the peer, 24 bits.
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
        /// Local ACK timeout code, 0..31: 4.096 us * 2^timeout, 0 is for ever.
        timeout: u8,
        /// Retries, 0..7.
        retry_cnt: u8,
        /// RNR retries, 0..7; 7 is for ever.
        rnr_retry: u8,
        /// Service level.
        sl: u8,
        /// Index of the own GID.
        sgid_index: u8,
        /// GID of the peer, in network byte order.
        dgid: [u8; 16],
        /// MAC address that leads to the peer.
        dmac: [u8; 6],
        /// Hop limit.
        hop_limit: u8,
        /// Traffic class.
        traffic_class: u8,
        /// Flow label, 20 bits.
        flow_label: U32,
        /// UDP source port, or 0 for the device's choice.
        udp_sport: U16,
        /// That of the own GID: 1..4094, or 0xffff for none.
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
