//! Commands about shared receive queues.

use zerocopy::little_endian::U32;

layout! {
    /// Creates a shared receive queue.
    ///
    /// Receives are posted to it by [`WrOpcode::SRQ_RECV`](crate::wqe::WrOpcode::SRQ_RECV). QPs
    /// that name it in [`CreateQpReq::srqn`](super::CreateQpReq) take their receives from it.
    pub struct CreateSrqReq = "vrdma_create_srq_req" {
        /// Context that owns it.
        context: U32,
        /// Protection domain of the memory that its receives name. The QPs may have other PDs.
        pdn: U32,
        /// Most receives outstanding: at least 1, at most `max_qp_wr`.
        max_wr: U32,
        /// Most elements of a receive: at most `max_recv_sge`.
        max_sge: U32,
        /// XRC domain of the queue (with `VRDMA_CAP_XRC`), or `VRDMA_NONE`. If it is in a domain,
        /// only `VRDMA_QPT_XRC_RECV` QPs of the domain take receives from it, if their peers name
        /// it.
        xrcdn: U32,
        /// With an XRC domain: the CQ where its receives complete, of the same context. Else
        /// `VRDMA_NONE`.
        cqn: U32,
    }
}

layout! {
    /// The new shared receive queue.
    pub struct CreateSrqResp = "vrdma_create_srq_resp" {
        /// Its number, 24 bits.
        srqn: U32,
        /// Written as zero.
        reserved: U32,
    }
}

consts! {
    /// Which fields a [`ModifySrqReq`] sets, with the numbers of enum ibv_srq_attr_mask.
    pub mod srq_attr: u32 = "VRDMA_SRQ" {
        /// `max_wr`. Must not be less than the number of outstanding receives (`INVALID`).
        MAX_WR = 1 << 0,
        /// `limit`
        LIMIT = 1 << 1,
    }
}

layout! {
    /// Changes the capacity of a shared receive queue, or arms its limit: ibv_modify_srq(3).
    pub struct ModifySrqReq = "vrdma_modify_srq_req" {
        /// The shared receive queue.
        srqn: U32,
        /// `VRDMA_SRQ_*`: the fields that count.
        mask: U32,
        /// Most receives outstanding.
        max_wr: U32,
        /// `VRDMA_EVENT_SRQ_LIMIT_REACHED` is raised once, as soon as fewer receives than this are
        /// left. If there are fewer already, it is raised at once. 0: never. At most `max_wr`.
        limit: U32,
    }
}

layout! {
    /// Capacity and limit of a shared receive queue.
    pub struct QuerySrqResp = "vrdma_query_srq_resp" {
        /// Most receives outstanding.
        max_wr: U32,
        /// Most elements of a receive.
        max_sge: U32,
        /// The limit that is armed; 0 if none is.
        limit: U32,
        /// Written as zero.
        reserved: U32,
    }
}
