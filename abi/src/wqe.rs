//! Work requests (WQEs), as 64-byte units in the slots of a channel.
//!
//! # Posting
//!
//! A channel is a split virtqueue of N entries (virtio specification, section 2.7) whose
//! descriptors are fixed. Descriptor *i* is slot *i*: 64 bytes, device-readable (see
//! [`crate::control::BindChannelReq`]). A request of *k* units is *k* consecutive entries of the
//! available ring. The first unit says *k* ([`WqeHeader::units`]). To post a request:
//!
//! 1. Wait until N - (avail.idx - used.idx) >= k.
//! 2. Fill the slots.
//! 3. Put their numbers into the available ring.
//! 4. Release avail.idx **past a whole request**, never past a part of one.
//! 5. Kick if the device asks for it: make a full barrier, then read `avail_event` (with
//!    VIRTIO_F_EVENT_IDX) or `used.flags` (without).
//!
//! The device copies an entry out and returns it through the used ring at once, in order. That says
//! nothing about the request's completion. The device never interrupts for a channel.
//!
//! Each of these breaks the channel:
//!
//! * a slot number that does not exist;
//! * `units` of 0, or beyond `max_wqe_units`;
//! * an `avail.idx` that cuts a request, or is more than N ahead.
//!
//! The device takes nothing from a broken channel until it is bound again, and raises
//! `VRDMA_EVENT_CHANNEL_ERR`.
//!
//! # Malformed requests
//!
//! * A request whose QP does not exist or belongs to another context is dropped and counted.
//! * Any other malformed request ends as `VRDMA_WC_LOC_QP_OP_ERR`, and the QP goes to ERR. Examples
//!   are an unknown opcode, a flag that is not defined, too many elements, and an AH that does not
//!   exist. Of a UC, UD or GSI QP, only the send queue goes to SQE.
//! * More requests than the QP's `max_send_wr` or `max_recv_wr` raise `VRDMA_EVENT_QP_FATAL`, and
//!   the QP goes to ERR.
//! * For a shared receive queue, a malformed receive raises `VRDMA_EVENT_SRQ_ERR`. So does one
//!   receive more than `max_wr`.
//! * A RECV for a QP that uses a shared receive queue is dropped and counted.
//!
//! # Lists
//!
//! The requests of a list (`VRDMA_WQE_F_LIST`) act as if each had been posted by itself, one after
//! the other. A malformed list is one malformed request, the first of the list.
//!
//! # Order
//!
//! The requests of a queue pair are executed in the order of the IBTA's specification (volume 1,
//! 9.5 and 10.8.3). A send queue's requests begin in turn. READs and atomics may end after later
//! requests have begun, unless those have [`flags::FENCE`].
//!
//! If two requests are in different channels, the first is the one that was made available first,
//! as far as anybody can know. The device looks for further receives before it decides that a
//! message finds no receive. It takes all entries that a channel held when the question arose, from
//! each channel that can hold receives of that queue.
//!
//! # Driver requirements
//!
//! * The poster MUST fill a slot, then write its number to the available ring, then release
//!   `avail.idx`. It MUST NOT change the slot until the entry is in the used ring.
//! * It MUST NOT release `avail.idx` past a part of a request.
//! * Between the store of `avail.idx` and the check whether the device asks for a kick, it MUST
//!   make a full barrier.
//! * It MUST NOT have more requests outstanding in a queue than the queue was made for. It MUST NOT
//!   have more completions outstanding than the CQ has entries.
//! * The kernel MUST NOT let a process write a channel's descriptor table. It MUST NOT map a
//!   channel into a process unless the channel is bound to that process's own context. Above all,
//!   it MUST NOT map a channel of the kernel's context into any process.
//! * A page list MUST stay as it is until its REG_MR has ended. The pages MUST stay the guest's,
//!   and in place, until the region was invalidated or deregistered.
//! * The kernel MUST check what a process gives it to post through a channel of the kernel's
//!   context. A request in that channel may name objects of any context.
//!
//! # Device requirements
//!
//! * The device MUST copy an entry before it checks it, and MUST NOT read it again.
//! * It MUST NOT read a descriptor of a channel except when the channel is bound.
//! * It MUST return the entries of a channel in order, and without waiting for the request's end.
//!   It MUST NOT interrupt for them.
//! * After it asked for kicks, it MUST check `avail.idx` again. Before it sleeps without a limit,
//!   it MUST check once more, when a store that was under way must have arrived. The poster's
//!   barrier may have no effect under an emulator.
//! * Each request that it took MUST end once: completed, failed, flushed, or dropped with its
//!   destroyed queue. Requests of a queue MUST end in order.
//! * It MUST read each entry of a page list once, and check what it read.
//! * It MUST NOT execute REG_MR for a QP of another context than the kernel's.
//! * It MUST NOT access memory except through a key. The region's context, PD, range and rights
//!   MUST allow the access at the moment when bytes move.
//!
//! # Layout
//!
//! ```text
//!  0        4        8        12       16                32                48                64
//!  | op/units/flags | object | wqe_id | sge_count,inline | body (16 bytes)  | element 0        | element 1        |
//!  | element 2 ...  (units 1 and on: 4 elements each, or 64 bytes of inline data)                                  |
//! ```
//! The layout depends on the request:
//!
//! * The body is a [`RdmaBody`] or a [`UdBody`]. RECV has none (zero), and a list has a
//!   [`ListBody`].
//! * From byte 32 on there are [`WqeHeader::sge_count`] elements ([`Sge`]). With [`flags::INLINE`]
//!   there are [`WqeHeader::inline_len`] bytes of payload instead.
//! * Atomics have an [`AtomicOperands`] at byte 32 and their one element at byte 48.
//! * ATOMIC WRITE returns nothing, so it is laid out as a WRITE.
//! * FLUSH has a [`FlushBody`], a [`FlushRange`] at byte 32 and no element.
//! * BIND_MW has a [`BindMwBody`], a [`BindMwRange`] at byte 32 and no element.
//! * REG_MR has a [`RegMrBody`], a [`RegMrMemory`] at byte 32 and no element.
//! * With `VRDMA_WQE_F_XRC` a [`XrcBody`] is at byte 32, and everything from byte 32 on moves by 16
//!   bytes. The one element of an atomic is then the first of a second unit.
//!
//! # Fast registration
//!
//! REG_MR sets the memory of a region that ALLOC_FAST_MR made. It is the only request with an
//! address in guest memory: that of its *page list*.
//!
//! * The list has the guest-physical address of each page, 8 bytes, little-endian.
//! * All pages have the same size and begin at a multiple of it.
//! * The region's offset in the first page equals the offset of its `iova` in a page.
//! * The list has exactly the pages that this offset and the length need, at most `max_pages` of
//!   ALLOC_FAST_MR.
//!
//! A list could name any memory of the guest. So the device takes REG_MR only for QPs of the
//! kernel's context, to which only channels of that context can post. For another QP it ends as
//! `VRDMA_WC_LOC_QP_OP_ERR`, and is counted.
//!
//! The device reads the list when it executes the request. If the request fails, nothing has
//! changed. It ends with one of these statuses:
//!
//! * `VRDMA_WC_LOC_PROT_ERR`: the list or a page is not guest memory, or a page does not begin at a
//!   multiple of the page size.
//! * `VRDMA_WC_MW_BIND_ERR` (memory management operation error): the region is not one of
//!   ALLOC_FAST_MR in the QP's PD, or is not free, or the request is impossible for it.

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
    Item::Struct(ListBody::INFO),
    Item::Struct(XrcBody::INFO),
    Item::Struct(UdBody::INFO),
    Item::Struct(FlushBody::INFO),
    Item::Consts(placement::INFO),
    Item::Consts(flush_level::INFO),
    Item::Struct(FlushRange::INFO),
    Item::Struct(AtomicOperands::INFO),
    Item::Struct(BindMwBody::INFO),
    Item::Struct(BindMwRange::INFO),
    Item::Consts(page_shift::INFO),
    Item::Struct(RegMrBody::INFO),
    Item::Struct(RegMrMemory::INFO),
    Item::Struct(Sge::INFO),
];

consts! {
    /// Sizes and offsets in a request.
    pub mod unit: u32 = "VRDMA_WQE" {
        /// Bytes of a unit, and of a slot.
        UNIT_SIZE = 64,
        /// Most units of a request in version 1.0 (`max_wqe_units` may be less).
        MAX_UNITS = 8,
        /// Most units of a request. `max_wqe_units` is the limit of the device.
        MAX_UNITS_V1_1 = 9,
        /// Offset of the body.
        BODY_OFFSET = 16,
        /// Offset of elements, inline data or atomic operands.
        DATA_OFFSET = 32,
        /// Offset of the element of an atomic.
        ATOMIC_SGE_OFFSET = 48,
        /// With `VRDMA_WQE_F_XRC`, everything from `DATA_OFFSET` on is this many bytes further on.
        XRC_SHIFT = 16,
        /// Most elements that 8 units can hold.
        MAX_SGE = 30,
        /// Most elements of a request.
        MAX_SGE_V1_1 = 32,
        /// Most bytes of inline data that 8 units can hold.
        MAX_INLINE = 480,
        /// Most bytes of inline data.
        MAX_INLINE_V1_1 = 512,
        /// Most requests of a list (`VRDMA_WQE_F_LIST`).
        LIST_MAX = 5,
    }
}

open_enum! {
    /// [`WqeHeader::opcode`].
    ///
    /// 0..127 are for send queues, 128 and higher for receive queues.
    pub enum WrOpcode: u8 = "VRDMA_WR" {
        /// RDMA WRITE.
        RDMA_WRITE = 0,
        /// RDMA WRITE with immediate data. Consumes a receive of the peer.
        RDMA_WRITE_WITH_IMM = 1,
        /// SEND.
        SEND = 2,
        /// SEND with immediate data.
        SEND_WITH_IMM = 3,
        /// RDMA READ. The data is written to the elements.
        RDMA_READ = 4,
        /// Compare and swap of 8 bytes. The old value is written to the element.
        ATOMIC_CMP_AND_SWP = 5,
        /// Fetch and add of 8 bytes. The old value is written to the element.
        ATOMIC_FETCH_AND_ADD = 6,
        /// Makes a key of the own device name nothing. The key is that of a type 2B window that the
        /// QP bound, or of a region of ALLOC_FAST_MR in the QP's PD. The region is free afterwards,
        /// and may have been free before. With any other key it ends with `VRDMA_WC_LOC_QP_OP_ERR`.
        /// Body: [`RdmaBody`] with only `rkey`; no elements. RC and UC. Needs
        /// `VRDMA_CAP_MEM_WINDOW_TYPE_2B` or `VRDMA_CAP_MEM_MGT_EXTENSIONS`. It begins when all
        /// earlier requests are complete, and later requests begin when it is complete.
        LOCAL_INV = 7,
        /// Binds a memory window. With length 0 it unbinds a window of type 1. Body:
        /// [`BindMwBody`], then a [`BindMwRange`]. RC and UC. It begins when all earlier requests
        /// are complete, and later requests begin when it is complete. It ends with
        /// `VRDMA_WC_MW_BIND_ERR` if the window cannot be bound. Windows of type 1 need
        /// `VRDMA_CAP_MEM_WINDOW`, those of type 2B `VRDMA_CAP_MEM_WINDOW_TYPE_2B`.
        BIND_MW = 8,
        /// SEND that makes a key of the peer, [`RdmaBody::rkey`], name nothing before its receive
        /// completes. RC. Needs `VRDMA_CAP_MEM_WINDOW_TYPE_2B` or `VRDMA_CAP_MEM_MGT_EXTENSIONS`.
        /// The key may be that of a type 2B window that the peer's QP bound. It may also be that of
        /// a region of ALLOC_FAST_MR in that QP's PD that is free or gives peers a right. With any
        /// other key, the request ends with `VRDMA_WC_REM_ACCESS_ERR` and the receive with
        /// `VRDMA_WC_REM_INV_REQ_ERR`.
        SEND_WITH_INV = 9,
        /// Fast registration: sets the memory of a free region of ALLOC_FAST_MR. Body:
        /// [`RegMrBody`], then a [`RegMrMemory`]; no elements. RC and UC, only QPs of the kernel's
        /// context. Needs `VRDMA_CAP_MEM_MGT_EXTENSIONS`. It begins when all earlier requests are
        /// complete, and later requests begin when it is complete.
        REG_MR = 10,
        /// Ends when the QP's earlier writes are placed in the peer's memory as
        /// [`FlushBody::placement`] says (IBTA annex A19). Body: [`FlushBody`], then a
        /// [`FlushRange`]. RC. Needs `VRDMA_CAP_FLUSH_GLOBAL`. The peer's QP and region must allow
        /// it. It counts as a READ or atomic (`max_rd_atomic`, fences).
        FLUSH = 14,
        /// Stores 8 bytes at once, after everything that came before. The bytes come from inline
        /// data or from elements, 8 bytes together. RC only. Needs `VRDMA_CAP_ATOMIC_WRITE`. It
        /// counts as a READ or atomic (`max_rd_atomic`, fences).
        ATOMIC_WRITE = 15,
        /// RECV.
        RECV = 128,
        /// RECV of a shared receive queue. `object` is its SRQN.
        SRQ_RECV = 129,
    }
}

impl WrOpcode {
    /// Returns whether the operation is an atomic.
    ///
    /// Such a request has an [`AtomicOperands`], and one element for the value that it finds.
    #[inline]
    pub const fn is_atomic(self) -> bool {
        matches!(self, WrOpcode::ATOMIC_CMP_AND_SWP | WrOpcode::ATOMIC_FETCH_AND_ADD)
    }

    /// Returns whether operands of 16 bytes precede the elements.
    ///
    /// REG_MR is not among them: its [`RegMrMemory`] is longer.
    #[inline]
    pub const fn has_operands(self) -> bool {
        self.is_atomic() || matches!(self, WrOpcode::BIND_MW | WrOpcode::FLUSH)
    }

    /// Returns whether the request's [`RdmaBody`] names memory of the peer.
    #[inline]
    pub const fn names_memory(self) -> bool {
        self.is_atomic()
            || matches!(
                self,
                WrOpcode::RDMA_WRITE
                    | WrOpcode::RDMA_WRITE_WITH_IMM
                    | WrOpcode::RDMA_READ
                    | WrOpcode::ATOMIC_WRITE
            )
    }
}

open_enum! {
    /// [`Cqe::opcode`](crate::cqe::Cqe), with the numbers of enum ibv_wc_opcode.
    ///
    /// It is valid if the status is `VRDMA_WC_SUCCESS`.
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
        /// REG_MR, with the number of enum ib_wc_opcode. Processes have no such request.
        REG_MR = 10,
        /// A message received.
        RECV = 128,
        /// A WRITE with immediate data received.
        RECV_RDMA_WITH_IMM = 129,
    }
}

consts! {
    /// [`WqeHeader::flags`].
    pub mod flags: u16 = "VRDMA_WQE_F" {
        /// Make a CQE on success too. Errors and RECVs always make a CQE.
        SIGNALED = 1,
        /// Ask the receiver for a solicited event.
        SOLICITED = 2,
        /// Start only after all earlier READs and atomics are complete.
        FENCE = 4,
        /// The payload is in the request.
        INLINE = 8,
        /// A `XrcBody` follows the body. All requests of `VRDMA_QPT_XRC_SEND` have it, except
        /// BIND_MW, LOCAL_INV and REG_MR; no other request has it. Needs `VRDMA_CAP_XRC`.
        XRC = 16,
        /// Each element is a request of its own; there are 2 to `VRDMA_WQE_LIST_MAX` of them. For
        /// RECV, SRQ_RECV, and SEND of RC and UC. [`WqeHeader::wqe_id`](crate::wqe::WqeHeader) is
        /// that of the first request. The body is a [`ListBody`](crate::wqe::ListBody). The other
        /// flags hold for each request. Not with `VRDMA_WQE_F_INLINE` or `VRDMA_WQE_F_XRC`. Needs
        /// `VRDMA_CAP_WQE_LIST`.
        LIST = 32,
        /// All defined flags.
        ALL = 63,
    }
}

layout! {
    /// The first 16 bytes of a request.
    pub struct WqeHeader = "vrdma_wqe" {
        /// `VRDMA_WR_*`.
        opcode: u8,
        /// Number of 64-byte units of the request, this one included: the smallest number that
        /// holds it.
        units: u8,
        /// `VRDMA_WQE_F_*`.
        flags: U16,
        /// QPN; for a SRQ_RECV the SRQN.
        object: U32,
        /// Returned in the CQE. The device gives it no meaning.
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
        /// Key of the peer's region (WRITE, READ, atomics, ATOMIC WRITE); the key to invalidate
        /// (LOCAL_INV, SEND_WITH_INV); 0 otherwise.
        rkey: U32,
        /// Immediate data. The peer finds these 4 bytes unchanged in its CQE.
        imm: big_endian::U32,
    }
}

layout! {
    /// Body of a list of requests.
    pub struct ListBody = "vrdma_wqe_list" {
        /// [`WqeHeader::wqe_id`] of the second and later requests. Zero for requests that do not
        /// exist.
        wqe_ids: [U32; 4],
    }
}

layout! {
    /// Names the peer's shared receive queue of an XRC request; at byte 32.
    pub struct XrcBody = "vrdma_wqe_xrc" {
        /// SRQN of the peer; the low 24 bits count.
        remote_srqn: U32,
        /// Written as zero.
        reserved: [u8; 12],
    }
}

layout! {
    /// Body of UD requests.
    pub struct UdBody = "vrdma_wqe_ud" {
        /// Index in the AH table.
        ah: U32,
        /// QPN of the receiver; the low 24 bits count.
        remote_qpn: U32,
        /// Q_Key of the receiver. If the highest bit is set, the sender's own Q_Key is used.
        qkey: U32,
        /// Immediate data. The peer finds these 4 bytes unchanged in its CQE.
        imm: big_endian::U32,
    }
}

layout! {
    /// Body of FLUSH.
    pub struct FlushBody = "vrdma_wqe_flush" {
        /// Address of the first flushed byte in the peer's region. No meaning with
        /// `VRDMA_FLUSH_LEVEL_REGION`.
        remote_addr: U64,
        /// Key of the peer's region.
        rkey: U32,
        /// `VRDMA_FLUSH_*`, one or both.
        placement: u8,
        /// `VRDMA_FLUSH_LEVEL_*`.
        level: u8,
        /// Written as zero.
        reserved: U16,
    }
}

consts! {
    /// [`FlushBody::placement`], with the numbers of enum ibv_placement_type.
    ///
    /// A request without any of these bits, or with others, is malformed.
    pub mod placement: u8 = "VRDMA_FLUSH" {
        /// Global visibility: everyone with access to the memory sees what was written.
        GLOBAL = 1,
        /// Persistence. The peer's memory may have it, even if this device has none.
        PERSISTENT = 2,
    }
}

consts! {
    /// [`FlushBody::level`], with the numbers of enum ibv_selectivity_level.
    ///
    /// A request with another value is malformed.
    pub mod flush_level: u8 = "VRDMA_FLUSH_LEVEL" {
        /// A number of bytes from an address on; 0 bytes are allowed.
        RANGE = 0,
        /// All of the region.
        REGION = 1,
    }
}

layout! {
    /// Length of the flushed range; at byte 32 of FLUSH.
    pub struct FlushRange = "vrdma_wqe_flush_range" {
        /// Length in bytes. No meaning with `VRDMA_FLUSH_LEVEL_REGION`.
        length: U32,
        /// Written as zero.
        reserved: [u8; 12],
    }
}

layout! {
    /// Operands of an atomic.
    pub struct AtomicOperands = "vrdma_wqe_atomic" {
        /// Compare and swap: the value to compare with. Fetch and add: the addend.
        compare_add: U64,
        /// Compare and swap: the value to store if equal.
        swap: U64,
    }
}

layout! {
    /// Body of BIND_MW.
    pub struct BindMwBody = "vrdma_wqe_bind_mw" {
        /// The window's current rkey.
        rkey: U32,
        /// The window's new rkey. Only its low 8 bits count; the poster chooses them. The other
        /// bits stay those of `rkey`, whatever they are here.
        new_rkey: U32,
        /// Local key of the region.
        lkey: U32,
        /// `VRDMA_ACCESS_*` out of `VRDMA_ACCESS_WINDOW`.
        access: U32,
    }
}

layout! {
    /// The part of its region that a window shows; at byte 32 of BIND_MW.
    pub struct BindMwRange = "vrdma_wqe_bind_mw_range" {
        /// iova of the first byte, as in requests that use the region's local key.
        addr: U64,
        /// Length in bytes. 0 unbinds the window.
        length: U64,
    }
}

consts! {
    /// [`RegMrBody::page_shift`].
    pub mod page_shift: u32 = "VRDMA_PAGE_SHIFT" {
        /// 4 KiB.
        MIN = 12,
        /// 2 GiB.
        MAX = 31,
    }
}

layout! {
    /// Body of REG_MR.
    pub struct RegMrBody = "vrdma_wqe_reg_mr" {
        /// New key of the region, local and remote. The poster chooses the low 8 bits. The other
        /// bits identify the region.
        key: U32,
        /// `VRDMA_ACCESS_*` out of `VRDMA_ACCESS_V1_0`. Remote write and atomics need local write
        /// too.
        access: U32,
        /// Size of a page, as a power of 2: `VRDMA_PAGE_SHIFT_MIN` to `VRDMA_PAGE_SHIFT_MAX`.
        page_shift: u8,
        /// Written as zero; otherwise the request is malformed.
        reserved: [u8; 7],
    }
}

layout! {
    /// The memory that a region will name; at byte 32 of REG_MR.
    pub struct RegMrMemory = "vrdma_wqe_reg_mr_memory" {
        /// Address by which requests name the first byte. Its offset in a page is that of the
        /// region's first byte in the first page of the list.
        iova: U64,
        /// Length in bytes; `iova + length` is at most 2^64.
        length: U64,
        /// Guest-physical address of the page list, of any alignment.
        page_list: U64,
    }
}

layout! {
    /// A scatter/gather element.
    pub struct Sge = "vrdma_sge" {
        /// iova of the first byte.
        addr: U64,
        /// Length in bytes. 0 means no bytes; the key is not checked then.
        length: U32,
        /// Local key of the region.
        lkey: U32,
    }
}
