//! Commands about completion queues.

use zerocopy::little_endian::{U16, U32, U64};

layout! {
    /// Creates a completion queue.
    ///
    /// The extents hold the ring and, behind it, the record (see [`crate::cqe`]).
    pub struct CreateCqReq = "vrdma_create_cq_req" {
        /// Context that owns it.
        context: U32,
        /// Number of CQEs, a power of two.
        entries: U32,
        /// Completion vector of its events; less than `num_comp_vectors`.
        vector: U32,
        /// `VRDMA_CQ_F_*`. Other bits are refused.
        flags: U32,
    }
}

consts! {
    /// [`CreateCqReq::flags`] and [`ResizeCqReq::flags`].
    pub mod cq_flags: u32 = "VRDMA_CQ_F" {
        /// The device does not read [`CqRecord::consumer`](crate::cqe::CqRecord). It overwrites the
        /// oldest CQE if there is no room. Needs `VRDMA_CAP_CQ_IGNORE_OVERRUN`.
        IGNORE_OVERRUN = 1,
        /// CQEs have a time stamp, so the ring is one of [`TimedCqe`](crate::cqe::TimedCqe)s. Needs
        /// `VRDMA_CAP_CQ_TIMESTAMP`.
        TIMESTAMP = 2,
    }
}

layout! {
    /// The new completion queue.
    pub struct CreateCqResp = "vrdma_create_cq_resp" {
        /// Its CQN.
        cqn: U32,
        /// Written as zero.
        reserved: U32,
    }
}

layout! {
    /// Moves a completion queue to other memory.
    ///
    /// The extents hold the new ring and, behind it, its record (see "Resizing" in [`crate::cqe`]).
    pub struct ResizeCqReq = "vrdma_resize_cq_req" {
        /// The completion queue.
        cqn: U32,
        /// Number of CQEs of the new ring, a power of two.
        entries: U32,
        /// CQEs that the driver took out of former rings and nobody has polled yet. `entries` must
        /// be at least `held` plus the CQEs of the current ring that are not consumed (`INVALID`
        /// otherwise).
        held: U32,
        /// `VRDMA_CQ_F_TIMESTAMP` if the CQ was created with it, so that the CQEs have the same
        /// size (`INVALID` otherwise). Other bits are refused.
        flags: U32,
    }
}

layout! {
    /// The device's clock.
    pub struct ClockResp = "vrdma_clock_resp" {
        /// Nanoseconds (see "Time" in [`crate::cqe`]).
        clock: U64,
    }
}

layout! {
    /// Sets how many completions an event may wait for, and how long (see "Moderation" in
    /// [`crate::cqe`]).
    pub struct ModifyCqReq = "vrdma_modify_cq_req" {
        /// The completion queue.
        cqn: U32,
        /// Number of completions that make an event due; 0 if no number does.
        count: U16,
        /// Microseconds after the first of these completions at which the event is due at the
        /// latest. 0: events are not moderated.
        period: U16,
    }
}
