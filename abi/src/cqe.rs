//! Completion queues: a ring in guest memory, and a record of shared words behind it.
//!
//! The memory of a CQ with N entries (a power of two) is N [`Cqe`]s, then one [`CqRecord`]. All of
//! it is zero when [`crate::control::Opcode::CREATE_CQ`] is given. Extents begin at multiples of 8.
//! No CQE may straddle two extents, nor may the record. In a CQ created with `VRDMA_CQ_F_TIMESTAMP`
//! each entry is a [`TimedCqe`]; everything else is equal.
//!
//! # Polling
//!
//! The consumer keeps a free-running 32-bit index *c*, first 0. CQE *c mod N* is valid if bit 0 of
//! its [`Cqe::phase`] differs from bit log2(N) of *c*.
//!
//! 1. The device writes `phase` last (release).
//! 2. The driver reads `phase` first (acquire), then the rest of the CQE.
//! 3. After it consumed CQEs, the driver stores *c* to [`CqRecord::consumer`] (release).
//!
//! The device is never more than N CQEs ahead of that index. A completion that does not fit raises
//! `VRDMA_EVENT_CQ_ERR`. The CQ then takes no more completions, and the QPs that use it go to ERR.
//!
//! A CQ created with `VRDMA_CQ_F_IGNORE_OVERRUN` overwrites CQEs instead, and programs must prevent
//! that. If it happens, the driver may find no CQE at all, some CQEs twice, or a CQE that changes
//! while it is read.
//!
//! # Arming
//!
//! To ask for an event, the driver takes these steps:
//!
//! 1. It adds 1 to [`CqRecord::arm_next`] (any completion) or [`CqRecord::arm_solicited`] (a
//!    solicited or unsuccessful one).
//! 2. It makes a full barrier.
//! 3. It polls once more.
//!
//! The device makes CQEs visible, then makes a full barrier. Then it compares each word with the
//! word's value at the last event. If the word differs and a new CQE is of its kind, the device
//! posts one [`crate::event::Event`] to the event queue of the CQ's vector. With that event both
//! words count as seen. A request for solicited completions thus never cancels a request for all
//! completions.
//!
//! # Moderation
//!
//! [`crate::control::Opcode::MODIFY_CQ`] makes events of an armed CQ wait for more completions. The
//! device posts an event at the earlier of these two moments:
//!
//! * The CQ has received `count` CQEs since it was armed.
//! * `period` microseconds have passed since the first of these CQEs.
//!
//! A solicited or unsuccessful completion is not delayed: the sender of a solicited message, or the
//! poster of a failed request, expects an event. Moderation does not change arming: there is at
//! most one event for each time that the CQ is armed.
//!
//! # Time
//!
//! The device has a clock: nanoseconds of the host's monotonic clock, from an arbitrary moment. It
//! is never set, and does not go back while the device exists.
//! [`crate::control::Opcode::QUERY_CLOCK`] returns it.
//!
//! The device works in rounds. The time stamp of a [`TimedCqe`] is the clock's value at the first
//! completion of the round in which the request completed, or at the first one after a QUERY_CLOCK
//! in that round. So it has these properties:
//!
//! * It may be some microseconds older than the moment at which the CQE becomes visible. It is
//!   never after that moment.
//! * Requests that complete together may have equal time stamps.
//! * It is never before a value that QUERY_CLOCK returned before the request was posted.
//! * It is never before the time stamp of an earlier completion of the device.
//!
//! # Resizing
//!
//! [`crate::control::Opcode::RESIZE_CQ`] names a new ring and record. Their memory is zero, except
//! for the arm words, which start with the values of the former record. Between two completions,
//! the device turns to the new ring:
//!
//! * It starts there at index 0, as in a new CQ.
//! * It neither reads nor writes the former memory again.
//! * Its knowledge of the arm words remains valid.
//! * CQEs in the former ring stay there, for the driver to take.
//!
//! A driver that polls and arms meanwhile cannot know when the device turns to the new ring. So it
//! writes arm words to both records until it has the answer to the command. It polls as follows:
//!
//! 1. When the former ring has nothing new, it looks at CQE 0 of the new ring.
//! 2. If that CQE is valid (acquire), all CQEs of the former ring are visible. The driver polls the
//!    former ring again. When it finds nothing there, it has taken the last one.
//!
//! After the answer, the former ring gets no more CQEs. After a refusal, the new ring is not used.
//!
//! # Driver requirements
//!
//! * The memory MUST be zero when the CQ is created. The memory of a resize MUST be zero, except
//!   for the arm words.
//! * After that, the driver MUST NOT write to the memory, with two exceptions. It writes the words
//!   of [`CqRecord`]. It may mark CQEs that it has found valid and not consumed. Those are
//!   completions of a QP that is gone, whose number another QP may get.
//! * It MUST read a CQE after it has found it valid. It MUST release [`CqRecord::consumer`] after
//!   it has read what it consumed.
//! * Between a change of [`CqRecord::arm_next`] or [`CqRecord::arm_solicited`] and the poll after
//!   it, there MUST be a full barrier.
//! * It MUST treat an event only as a reason to poll. An event may come when there is no CQE left.
//!
//! # Device requirements
//!
//! * The device MUST write all of a CQE before it releases `phase`. That includes the time stamp,
//!   if the CQE has one.
//! * CQEs MUST lie in the order of completions. CQEs of completions that come together MAY become
//!   valid in any order, provided that the driver finds all of them once it finds the first.
//! * Before it writes the first CQE of a new ring, all CQEs of the former ring MUST be visible.
//! * It MUST NOT write a CQE to a slot that the driver has not consumed, except with
//!   `VRDMA_CQ_F_IGNORE_OVERRUN`. It MUST raise `VRDMA_EVENT_CQ_ERR` instead.
//! * What a peer or a request wrote to memory MUST be visible before the CQE that reports it.
//! * Whatever [`CqRecord`] contains, only this CQ and its QPs MAY suffer.

use crate::layout::Item;
// Beside the numbers of requests: one file has all numbers of an operation.
pub use crate::wqe::WcOpcode;
use zerocopy::big_endian;
use zerocopy::little_endian::{U16, U32, U64};

/// Declarations for the C header.
pub const ITEMS: &[Item] = &[
    Item::Consts(WcStatus::INFO),
    Item::Consts(WcOpcode::INFO),
    Item::Consts(flags::INFO),
    Item::Struct(Cqe::INFO),
    Item::Struct(TimedCqe::INFO),
    Item::Struct(CqRecord::INFO),
];

layout! {
    /// A completion.
    pub struct Cqe = "vrdma_cqe" {
        /// `wqe_id` of the request.
        wqe_id: U32,
        /// QPN of the own QP.
        qpn: U32,
        /// Bytes received (receives), bytes read (READ), or 8 (atomics); 0 for other requests.
        /// Undefined unless `VRDMA_WC_SUCCESS`.
        byte_len: U32,
        /// With `VRDMA_CQE_F_IMM`: immediate data, the 4 bytes as the peer posted them. With
        /// `VRDMA_CQE_F_INV`: the key that the peer invalidated.
        imm: big_endian::U32,
        /// QPN of the peer (receives). With `VRDMA_CQE_F_XRC`: SRQN of the own shared receive
        /// queue.
        src_qpn: U32,
        /// UD: MAC address of the sender.
        smac: [u8; 6],
        /// UD: VLAN id of the message, or 0xffff for none.
        vlan: U16,
        /// `VRDMA_WC_OP_*`.
        opcode: u8,
        /// `VRDMA_WC_*`.
        status: u8,
        /// `VRDMA_CQE_F_*`.
        flags: u8,
        /// Bit 0 distinguishes a new CQE from an old one. Written last. Other bits are zero.
        phase: u8,
    }
}

layout! {
    /// A completion with a time stamp, in CQs created with `VRDMA_CQ_F_TIMESTAMP`.
    pub struct TimedCqe = "vrdma_timed_cqe" {
        /// The fields of a CQE in other CQs, `phase` included.
        base: Cqe,
        /// The device's clock, nanoseconds (see "Time").
        timestamp: U64,
        /// Reserved; the device does not write it.
        reserved: [u8; 24],
    }
}

layout! {
    /// Words that driver and device share: one cache line for each direction.
    pub struct CqRecord = "vrdma_cq_record" {
        /// Number of requests for an event on the next completion.
        arm_next: U32,
        /// Number of requests for an event on the next solicited completion.
        arm_solicited: U32,
        /// Zero.
        reserved0: [u8; 56],
        /// Number of CQEs consumed, free-running.
        consumer: U32,
        /// Zero.
        reserved1: [u8; 60],
    }
}

consts! {
    /// [`Cqe::flags`].
    pub mod flags: u8 = "VRDMA_CQE_F" {
        /// `imm` is valid.
        IMM = 1,
        /// The first 40 bytes of the receive buffer hold a GRH.
        GRH = 2,
        /// The completion belongs to a receive request.
        RECV = 4,
        /// The sender asked for a solicited event.
        SOLICITED = 8,
        /// The message invalidated a key, and `imm` is that key.
        INV = 16,
        /// The receive was posted to an XRC shared receive queue. `src_qpn` is the SRQN, and
        /// `wqe_id` belongs to a request of that queue.
        XRC = 32,
    }
}

open_enum! {
    /// [`Cqe::status`], with the numbers and meanings of enum ibv_wc_status.
    pub enum WcStatus: u8 = "VRDMA_WC" {
        /// Success.
        SUCCESS = 0,
        /// Local length error.
        LOC_LEN_ERR = 1,
        /// Local QP operation error.
        LOC_QP_OP_ERR = 2,
        /// Local protection error. The device checks the local keys before it sends anything to the
        /// peer. So a READ or atomic with a bad local key and a bad remote key ends with this, and
        /// the peer's memory is unchanged. Hardware and rdma_rxe may check the local key only when
        /// the answer comes. There, such a request ends with REM_ACCESS_ERR, and an atomic with a
        /// bad local key is executed.
        LOC_PROT_ERR = 4,
        /// Flushed: the QP was in ERR, or went to ERR.
        WR_FLUSH_ERR = 5,
        /// A window could not be bound: its key, the region's key, its rights or its range are
        /// wrong. Or memory could not be registered (IBTA's memory management operation error).
        /// Then the region, its state, the rights, or the number or size of the pages are wrong.
        MW_BIND_ERR = 6,
        /// Bad response of the peer.
        BAD_RESP_ERR = 7,
        /// Local access error.
        LOC_ACCESS_ERR = 8,
        /// The peer refused the request as invalid.
        REM_INV_REQ_ERR = 9,
        /// The peer refused the access.
        REM_ACCESS_ERR = 10,
        /// The peer failed to execute the request.
        REM_OP_ERR = 11,
        /// The peer did not answer.
        RETRY_EXC_ERR = 12,
        /// The peer posted no receive in time.
        RNR_RETRY_EXC_ERR = 13,
        /// Anything else.
        GENERAL_ERR = 21,
    }
}
