//! Work requests (WQEs), as 64-byte units in the slots of a channel.
//!
//! # Posting
//!
//! A channel is a split virtqueue of N entries (virtio specification, section 2.7) whose descriptors are fixed:
//! descriptor *i* is slot *i*, 64 bytes, device-readable (see [`crate::control::BindChannelReq`]). A request of *k*
//! units is *k* consecutive entries of the available ring, the first of which says *k* ([`WqeHeader::units`]).
//! To post: wait until N - (avail.idx - used.idx) >= k; fill the slots; put their numbers into the available ring;
//! release avail.idx **past a whole request**, never past a part of one; then kick if the device asks for it (full barrier, then
//! `avail_event` with VIRTIO_F_EVENT_IDX, `used.flags` without).
//! The device copies an entry out and returns it through the used ring at once, in order; that says nothing about the
//! request's completion. It never interrupts for a channel.
//!
//! A slot number that does not exist, `units` of 0 or beyond `max_wqe_units`, or an `avail.idx` that breaks a request or runs more
//! than N ahead breaks the channel: nothing is taken from it until it is bound again, and `VRDMA_EVENT_CHANNEL_ERR` is raised.
//!
//! # Requests that cannot be understood
//!
//! If the QP does not exist or is another context's the request is dropped and counted. Otherwise an unknown opcode, a flag
//! that is not defined, too many elements, an AH that is not there and the like end as `VRDMA_WC_LOC_QP_OP_ERR`, and the QP goes to ERR
//! (a UC, UD or GSI QP's send queue alone to SQE).
//! More requests than the QP's `max_send_wr` or `max_recv_wr` make `VRDMA_EVENT_QP_FATAL`, and the QP goes to ERR.
//! A receive that cannot be understood, or one more than `max_wr`, makes `VRDMA_EVENT_SRQ_ERR` of a shared receive queue. A RECV for a QP that uses one
//! is dropped and counted.
//!
//! # Order
//!
//! The requests of a queue pair are carried out as the IBTA's specification orders them (volume 1, 9.5 and 10.8.3): a send queue's in turn, of which READs and
//! atomics may end after later ones have begun, unless those have [`flags::FENCE`]. Of two requests in different channels the first is the one
//! that was made available first, as far as anybody can know it: before a message finds no receive, the device takes what each channel that can hold
//! receives of that queue held when the question arose.
//!
//! # Driver requirements
//!
//! * The poster MUST fill a slot, then write its number to the available ring, then release `avail.idx`; it MUST NOT change the slot
//!   until the entry is in the used ring.
//! * It MUST NOT release `avail.idx` past a part of a request.
//! * Between the store of `avail.idx` and the look whether the device asks for a kick it MUST make a full barrier.
//! * It MUST NOT have more requests outstanding in a queue than the queue was made for, nor more completions than the CQ has entries.
//! * The kernel MUST NOT let a process write a channel's descriptor table, nor map a channel into a process that is bound to another's context.
//! * The kernel MUST check what a process gives it to post through a channel of the kernel's context, from which a request may name objects of any context.
//!
//! # Device requirements
//!
//! * It MUST copy an entry before it checks it, and MUST NOT read it again.
//! * It MUST NOT read a descriptor of a channel but when the channel is bound.
//! * It MUST return the entries of a channel in order and without waiting for the request's end, and MUST NOT interrupt for them.
//! * After it asked for kicks it MUST look at `avail.idx` again, and before it sleeps for good once more when a store that was under way must have arrived:
//!   the poster's barrier may be none under an emulator.
//! * Of all requests that it took each MUST end once: completed, failed, flushed, or dropped with its destroyed queue. Requests of a queue MUST end in order.
//! * It MUST NOT reach memory but through a key, at the moment when bytes move, that the region's context, PD, range and rights allow.
//!
//! # Layout
//!
//! ```text
//!  0        4        8        12       16                32                48                64
//!  | op/units/flags | object | wqe_id | sge_count,inline | body (16 bytes)  | element 0        | element 1        |
//!  | element 2 ...  (units 1 and on: 4 elements each, or 64 bytes of inline data)                                  |
//! ```
//! The body is a [`RdmaBody`] or a [`UdBody`]; RECV has none (zero). From byte 32 on there are [`WqeHeader::sge_count`] elements
//! ([`Sge`]), or with [`flags::INLINE`] [`WqeHeader::inline_len`] bytes of payload. Atomics have an [`AtomicOperands`] at byte 32 and their one element at byte 48;
//! ATOMIC WRITE, which brings nothing back, is laid out as a WRITE.

use crate::layout::Item;
use zerocopy::big_endian;
use zerocopy::little_endian::{U16, U32, U64};

/// Declarations for the C header.
pub const ITEMS: &[Item] = &[
    Item::Consts(unit::INFO),
    Item::Consts(WrOpcode::INFO),
    Item::Consts(flags::INFO),
    Item::Struct(WqeHeader::INFO),
    Item::Struct(RdmaBody::INFO),
    Item::Struct(UdBody::INFO),
    Item::Struct(AtomicOperands::INFO),
    Item::Struct(Sge::INFO),
];

consts! {
    /// Sizes and offsets in a request.
    pub mod unit: u32 = "VRDMA_WQE" {
        /// Bytes of a unit, and of a slot.
        UNIT_SIZE = 64,
        /// Most units of a request of version 1.0 (`max_wqe_units` may be less).
        MAX_UNITS = 8,
        /// Most units of a request; `max_wqe_units` tells what the device takes.
        MAX_UNITS_V1_1 = 9,
        /// Where the body begins.
        BODY_OFFSET = 16,
        /// Where elements, inline data or atomic operands begin.
        DATA_OFFSET = 32,
        /// Where the element of an atomic is.
        ATOMIC_SGE_OFFSET = 48,
        /// Most elements that 8 units can hold.
        MAX_SGE = 30,
        /// Most elements of a request.
        MAX_SGE_V1_1 = 32,
        /// Most bytes of inline data that 8 units can hold.
        MAX_INLINE = 480,
        /// Most bytes of inline data.
        MAX_INLINE_V1_1 = 512,
    }
}

open_enum! {
    /// [`WqeHeader::opcode`]. 0..127 are for send queues, 128 and on for receive queues.
    pub enum WrOpcode: u8 = "VRDMA_WR" {
        /// RDMA WRITE.
        RDMA_WRITE = 0,
        /// RDMA WRITE with immediate data: consumes a receive of the peer.
        RDMA_WRITE_WITH_IMM = 1,
        /// SEND.
        SEND = 2,
        /// SEND with immediate data.
        SEND_WITH_IMM = 3,
        /// RDMA READ; the elements are written.
        RDMA_READ = 4,
        /// Compare and swap of 8 bytes; the element receives the value before.
        ATOMIC_CMP_AND_SWP = 5,
        /// Fetch and add of 8 bytes; the element receives the value before.
        ATOMIC_FETCH_AND_ADD = 6,
        /// Store of 8 bytes at once, after all that came before; from inline data or from elements, 8 bytes together. RC only,
        /// of devices with `VRDMA_CAP_ATOMIC_WRITE`. Counts among READs and atomics (`max_rd_atomic`, fences).
        ATOMIC_WRITE = 15,
        /// RECV.
        RECV = 128,
        /// RECV of a shared receive queue; `object` is its SRQN.
        SRQ_RECV = 129,
    }
}

consts! {
    /// [`WqeHeader::flags`].
    pub mod flags: u16 = "VRDMA_WQE_F" {
        /// Make a CQE on success too (errors always make one). RECVs always make one.
        SIGNALED = 1,
        /// Ask the receiver for a solicited event.
        SOLICITED = 2,
        /// Start only after all READs and atomics before it are complete.
        FENCE = 4,
        /// The payload is in the request.
        INLINE = 8,
        /// All that are defined.
        ALL = 15,
    }
}

layout! {
    /// The first 16 bytes of a request.
    pub struct WqeHeader = "vrdma_wqe" {
        /// `VRDMA_WR_*`.
        opcode: u8,
        /// Number of 64-byte units of the request, this one included: the least that hold it.
        units: u8,
        /// `VRDMA_WQE_F_*`.
        flags: U16,
        /// QPN; of a SRQ_RECV the SRQN.
        object: U32,
        /// Returned in the CQE; the device gives it no meaning.
        wqe_id: U32,
        /// Number of elements.
        sge_count: u8,
        /// Written as zero.
        reserved: u8,
        /// Bytes of inline data; 0 without `VRDMA_WQE_F_INLINE`.
        inline_len: U16,
    }
}

layout! {
    /// Body of RC and UC requests.
    pub struct RdmaBody = "vrdma_wqe_rdma" {
        /// Address in the peer's region (WRITE, READ, atomics, ATOMIC WRITE); 0 otherwise.
        remote_addr: U64,
        /// Key of the peer's region (WRITE, READ, atomics, ATOMIC WRITE); 0 otherwise.
        rkey: U32,
        /// Immediate data; the peer finds these 4 bytes in its CQE as they are.
        imm: big_endian::U32,
    }
}

layout! {
    /// Body of UD requests.
    pub struct UdBody = "vrdma_wqe_ud" {
        /// Index in the AH table.
        ah: U32,
        /// QPN of the receiver; the low 24 bits count.
        remote_qpn: U32,
        /// Q_Key of the receiver; with the highest bit set, the sender's own is used.
        qkey: U32,
        /// Immediate data; the peer finds these 4 bytes in its CQE as they are.
        imm: big_endian::U32,
    }
}

layout! {
    /// Operands of an atomic.
    pub struct AtomicOperands = "vrdma_wqe_atomic" {
        /// Compare and swap: the value compared with. Fetch and add: the addend.
        compare_add: U64,
        /// Compare and swap: the value stored when equal.
        swap: U64,
    }
}

layout! {
    /// A scatter/gather element.
    pub struct Sge = "vrdma_sge" {
        /// iova of the first byte.
        addr: U64,
        /// Length in bytes; 0 is nothing at all (the key is not looked at).
        length: U32,
        /// Local key of the region.
        lkey: U32,
    }
}
