//! Completion queues: a ring in guest memory, and a record of shared words behind it.
//!
//! The memory of a CQ with N entries (a power of two) is N [`Cqe`]s, then one [`CqRecord`]; all of
//! it zero when [`crate::control::Opcode::CREATE_CQ`] is given. No CQE may straddle two runs, nor
//! may the record; runs begin at multiples of 8. In a CQ created with `VRDMA_CQ_F_TIMESTAMP` each
//! is a [`TimedCqe`]; all else is the same.
//!
//! # Polling
//!
//! The consumer keeps a free-running 32-bit index *c*, first 0. CQE *c mod N* is valid when bit 0
//! of its [`Cqe::phase`] differs from bit log2(N) of *c*; the driver reads `phase` first (acquire),
//! then the rest. The device writes `phase` last (release). Having consumed CQEs the driver stores
//! *c* to [`CqRecord::consumer`] (release). The device never gets N ahead of that: a completion
//! that does not fit raises `VRDMA_EVENT_CQ_ERR`, the CQ takes no more, and the QPs that use it go
//! to ERR. A CQ created with `VRDMA_CQ_F_IGNORE_OVERRUN` overwrites CQEs instead: the driver, whose
//! programs have to see to it that this does not happen, may then find none of what is there, some
//! twice, or one that changes while it is read.
//!
//! # Arming
//!
//! To ask for an event the driver adds 1 to [`CqRecord::arm_next`] (any completion) or
//! [`CqRecord::arm_solicited`] (a solicited or unsuccessful one), makes a full barrier and polls
//! once more. The device, after it made CQEs visible and a full barrier, compares each word with
//! its value at the last event; if it differs and a new CQE is of the kind, it posts one
//! [`crate::event::Event`] to the event queue of the CQ's vector, and both words count as seen. A
//! request to be told of solicited completions thus never takes back one to be told of all.
//!
//! # Moderation
//!
//! [`crate::control::Opcode::MODIFY_CQ`] has events of an armed CQ wait for more completions: the
//! device posts one once `count` CQEs came to it since it was armed, or `period` microseconds after
//! the first of them, whichever is earlier. A solicited or unsuccessful completion is not put off:
//! who sent it, or who waits for what failed, wants to be told. It changes nothing about arming:
//! there is one event for each time that the CQ is armed, at most.
//!
//! # Time
//!
//! The device has a clock: nanoseconds of the host's monotonic clock, from some moment on. It is
//! never set, and does not go back as long as the device is there.
//! [`crate::control::Opcode::QUERY_CLOCK`] tells it. A [`TimedCqe`] has what it was when the device
//! began to do what it did in one go, in which the request completed: a time stamp may be some
//! microseconds before the CQE is visible, and requests that complete together may have the same
//! one. It is never after the CQE is visible, never before what QUERY_CLOCK told before the request
//! was posted, and never before that of an earlier completion of the device.
//!
//! # Resizing
//!
//! [`crate::control::Opcode::RESIZE_CQ`] names a new ring and record. The memory is zero, but for
//! the arm words, which begin with the values that those of the former record have. Between two
//! completions the device turns to the new ring: it starts there at index 0, as in a new CQ, and
//! neither reads nor writes the former memory again; what it has seen of the arm words goes on to
//! count. CQEs in the former ring stay there, for the driver to take.
//!
//! A driver that polls and arms meanwhile cannot know when that moment is. It writes arm words to
//! both records until it has the answer. Once the former ring has nothing new it looks at CQE 0 of
//! the new one: if that is valid (acquire), all CQEs of the former ring are visible, and it has had
//! the last of them when it finds none there once more. After the answer the former ring gets no
//! more; after a refusal the new one is not used.
//!
//! # Driver requirements
//!
//! * The memory MUST be zero when the CQ is created, and that of a resize but for the arm words.
//!   Later the driver MUST NOT write to it, but for the words of [`CqRecord`], and for CQEs that it
//!   has found valid and not consumed, which it may mark: completions of a QP that is gone, whose
//!   number another may get.
//! * It MUST read a CQE after it has found it valid, and MUST release [`CqRecord::consumer`] after
//!   it has read what it consumed.
//! * Between a change of [`CqRecord::arm_next`] or [`CqRecord::arm_solicited`] and the poll after
//!   it there MUST be a full barrier.
//! * It MUST take an event for what it is: a reason to poll. It may come when nothing is there any
//!   more.
//!
//! # Device requirements
//!
//! * It MUST write all of a CQE before it releases `phase`. CQEs MUST lie in the order of
//!   completions; those of completions that come together MAY become valid in any order, so that
//!   the driver finds all of them once it finds the first.
//! * Before it writes the first CQE of a new ring, all those of the former one MUST be visible.
//! * It MUST write the time stamp of a CQE, where it has one, before it releases `phase`.
//! * It MUST NOT write a CQE whose place the driver has not consumed, but with
//!   `VRDMA_CQ_F_IGNORE_OVERRUN`; it MUST raise `VRDMA_EVENT_CQ_ERR` instead.
//! * What a peer or a request wrote to memory MUST be visible before the CQE that tells of it.
//! * Whatever is in [`CqRecord`], nothing but this CQ and its QPs MAY suffer.

use crate::layout::Item;
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
        /// Bytes received (receives), read (READ) or 8 (atomics); 0 for others. Undefined unless
        /// `VRDMA_WC_SUCCESS`.
        byte_len: U32,
        /// Immediate data with `VRDMA_CQE_F_IMM`: the 4 bytes as the peer posted them. With
        /// `VRDMA_CQE_F_INV` the key that the peer invalidated.
        imm: big_endian::U32,
        /// QPN of the peer (receives); with `VRDMA_CQE_F_XRC` the SRQN of the own shared receive
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
        /// Bit 0 tells a new CQE from an old one; written last. Other bits are zero.
        phase: u8,
    }
}

layout! {
    /// A completion with a time stamp, in CQs created with `VRDMA_CQ_F_TIMESTAMP`.
    pub struct TimedCqe = "vrdma_timed_cqe" {
        /// What other CQs have, `phase` included.
        base: Cqe,
        /// The device's clock, nanoseconds (see "Time").
        timestamp: U64,
        /// Reserved; the device does not write it.
        reserved: [u8; 24],
    }
}

layout! {
    /// Words that driver and device share; a cache line each way.
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
        /// The completion is of a receive request.
        RECV = 4,
        /// The sender asked for a solicited event.
        SOLICITED = 8,
        /// The message invalidated a key: `imm` is it.
        INV = 16,
        /// The receive was posted to an XRC shared receive queue: `src_qpn` is its SRQN, `wqe_id`
        /// of a request to that.
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
        /// Local protection error. The own keys are looked at before anything is asked of the peer:
        /// a READ or atomic whose local and remote key are both bad ends with this, and the peer's
        /// memory is as it was. (Where hardware and rdma_rxe look at the local key when the answer
        /// comes, it ends with REM_ACCESS_ERR, and an atomic with a bad local key is carried out.)
        LOC_PROT_ERR = 4,
        /// Flushed: the QP was in ERR, or went there.
        WR_FLUSH_ERR = 5,
        /// A window could not be bound: its key, the region's, its rights or its range are wrong.
        /// Or memory could not be registered (IBTA's memory management operation error): the
        /// region, its state, the rights, or number or size of the pages are wrong.
        MW_BIND_ERR = 6,
        /// Bad response of the peer.
        BAD_RESP_ERR = 7,
        /// Local access error.
        LOC_ACCESS_ERR = 8,
        /// The peer refused the request as invalid.
        REM_INV_REQ_ERR = 9,
        /// The peer refused the access.
        REM_ACCESS_ERR = 10,
        /// The peer failed to carry the request out.
        REM_OP_ERR = 11,
        /// The peer did not answer.
        RETRY_EXC_ERR = 12,
        /// The peer posted no receive in time.
        RNR_RETRY_EXC_ERR = 13,
        /// Anything else.
        GENERAL_ERR = 21,
    }
}

open_enum! {
    /// [`Cqe::opcode`], with the numbers of enum ibv_wc_opcode. Valid if the status is
    /// `VRDMA_WC_SUCCESS`.
    pub enum WcOpcode: u8 = "VRDMA_WC_OP" {
        /// SEND, with or without immediate data.
        SEND = 0,
        /// WRITE, with or without immediate data.
        RDMA_WRITE = 1,
        /// READ.
        RDMA_READ = 2,
        /// Compare and swap.
        COMP_SWAP = 3,
        /// Fetch and add.
        FETCH_ADD = 4,
        /// BIND_MW.
        BIND_MW = 5,
        /// LOCAL_INV.
        LOCAL_INV = 6,
        /// FLUSH.
        FLUSH = 8,
        /// ATOMIC WRITE.
        ATOMIC_WRITE = 9,
        /// REG_MR, with the number of enum ib_wc_opcode: processes have no such request.
        REG_MR = 10,
        /// A message received.
        RECV = 128,
        /// A WRITE with immediate data received.
        RECV_RDMA_WITH_IMM = 129,
    }
}
