//! What commands say of completion queues.

use zerocopy::little_endian::{U16, U32, U64};

layout! {
    /// Creates a completion queue. The runs hold the ring and, behind it, the record (see
    /// [`crate::cqe`]).
    pub struct CreateCqReq = "vrdma_create_cq_req" {
        /// Context that owns it.
        context: U32,
        /// Number of CQEs, a power of two.
        entries: U32,
        /// Completion vector of its events, less than `num_comp_vectors`.
        vector: U32,
        /// `VRDMA_CQ_F_*`; others are refused.
        flags: U32,
    }
}

consts! {
    /// [`CreateCqReq::flags`] and [`ResizeCqReq::flags`].
    pub mod cq_flags: u32 = "VRDMA_CQ_F" {
        /// With `VRDMA_CAP_CQ_IGNORE_OVERRUN`: the device does not look at
        /// [`CqRecord::consumer`](crate::cqe::CqRecord), and overwrites the oldest CQE where there
        /// is no room.
        IGNORE_OVERRUN = 1,
        /// With `VRDMA_CAP_CQ_TIMESTAMP`: CQEs have a time stamp, so the ring is one of
        /// [`TimedCqe`](crate::cqe::TimedCqe)s.
        TIMESTAMP = 2,
    }
}

layout! {
    /// The new completion queue.
    pub struct CreateCqResp = "vrdma_create_cq_resp" {
        /// Its number.
        cqn: U32,
        /// Written as zero.
        reserved: U32,
    }
}

layout! {
    /// Has a completion queue go on in other memory. The runs hold the new ring and, behind it, its
    /// record (see "Resizing" in [`crate::cqe`]).
    pub struct ResizeCqReq = "vrdma_resize_cq_req" {
        /// The completion queue.
        cqn: U32,
        /// Number of CQEs of the new ring, a power of two.
        entries: U32,
        /// CQEs that the driver took out of former rings and nobody has polled yet. They count as
        /// if they were in the ring: `entries` is at least these and what is not consumed of the
        /// ring together (`INVALID` otherwise).
        held: U32,
        /// `VRDMA_CQ_F_TIMESTAMP` if the CQ was created with it, so that the CQEs are of the same
        /// kind (`INVALID` otherwise); others are refused.
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
    /// Says how many completions an event may wait for, and how long (see "Moderation" in
    /// [`crate::cqe`]).
    pub struct ModifyCqReq = "vrdma_modify_cq_req" {
        /// The completion queue.
        cqn: U32,
        /// Number of completions that make an event due; 0: no number does.
        count: U16,
        /// Microseconds after the first of them in which it is due at the latest; 0: events are not
        /// moderated.
        period: U16,
    }
}
