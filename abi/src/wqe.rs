//! Work requests (WQEs), as 64-byte units in the slots of a channel.
//!
//! # Posting
//!
//! A channel is a split virtqueue of N entries (virtio specification, section 2.7) whose
//! descriptors are fixed: descriptor *i* is slot *i*, 64 bytes, device-readable (see
//! [`crate::control::BindChannelReq`]). A request of *k* units is *k* consecutive entries of the
//! available ring, the first of which says *k* ([`WqeHeader::units`]). To post: wait until N -
//! (avail.idx - used.idx) >= k; fill the slots; put their numbers into the available ring; release
//! avail.idx **past a whole request**, never past a part of one; then kick if the device asks for
//! it (full barrier, then `avail_event` with VIRTIO_F_EVENT_IDX, `used.flags` without). The device
//! copies an entry out and returns it through the used ring at once, in order; that says nothing
//! about the request's completion. It never interrupts for a channel.
//!
//! A slot number that does not exist, `units` of 0 or beyond `max_wqe_units`, or an `avail.idx`
//! that breaks a request or runs more than N ahead breaks the channel: nothing is taken from it
//! until it is bound again, and `VRDMA_EVENT_CHANNEL_ERR` is raised.
//!
//! # Requests that cannot be understood
//!
//! If the QP does not exist or is another context's the request is dropped and counted. Otherwise
//! an unknown opcode, a flag that is not defined, too many elements, an AH that is not there and
//! the like end as `VRDMA_WC_LOC_QP_OP_ERR`, and the QP goes to ERR (a UC, UD or GSI QP's send
//! queue alone to SQE). More requests than the QP's `max_send_wr` or `max_recv_wr` make
//! `VRDMA_EVENT_QP_FATAL`, and the QP goes to ERR. A receive that cannot be understood, or one more
//! than `max_wr`, makes `VRDMA_EVENT_SRQ_ERR` of a shared receive queue. A RECV for a QP that uses
//! one is dropped and counted.
//!
//! # Lists
//!
//! Requests of a list (`VRDMA_WQE_F_LIST`) are as if each had been posted by itself, one after the
//! other. A list that cannot be understood is one request that cannot be, the first of it.
//!
//! # Order
//!
//! The requests of a queue pair are carried out as the IBTA's specification orders them (volume 1,
//! 9.5 and 10.8.3): a send queue's in turn, of which READs and atomics may end after later ones
//! have begun, unless those have [`flags::FENCE`]. Of two requests in different channels the first
//! is the one that was made available first, as far as anybody can know it: before a message finds
//! no receive, the device takes what each channel that can hold receives of that queue held when
//! the question arose.
//!
//! # Driver requirements
//!
//! * The poster MUST fill a slot, then write its number to the available ring, then release
//!   `avail.idx`; it MUST NOT change the slot until the entry is in the used ring.
//! * It MUST NOT release `avail.idx` past a part of a request.
//! * Between the store of `avail.idx` and the look whether the device asks for a kick it MUST make
//!   a full barrier.
//! * It MUST NOT have more requests outstanding in a queue than the queue was made for, nor more
//!   completions than the CQ has entries.
//! * The kernel MUST NOT let a process write a channel's descriptor table, nor map a channel into a
//!   process that is bound to another's context.
//! * A page list MUST stay as it is until its REG_MR has ended. The pages MUST stay the guest's,
//!   and in place, until the region was invalidated, or deregistered.
//! * The kernel MUST check what a process gives it to post through a channel of the kernel's
//!   context, from which a request may name objects of any context.
//!
//! # Device requirements
//!
//! * It MUST copy an entry before it checks it, and MUST NOT read it again.
//! * It MUST NOT read a descriptor of a channel but when the channel is bound.
//! * It MUST return the entries of a channel in order and without waiting for the request's end,
//!   and MUST NOT interrupt for them.
//! * After it asked for kicks it MUST look at `avail.idx` again, and before it sleeps for good once
//!   more when a store that was under way must have arrived: the poster's barrier may be none under
//!   an emulator.
//! * Of all requests that it took each MUST end once: completed, failed, flushed, or dropped with
//!   its destroyed queue. Requests of a queue MUST end in order.
//! * It MUST read each entry of a page list once, and check what it read.
//! * It MUST NOT carry out REG_MR for a QP of another context than the kernel's.
//! * It MUST NOT reach memory but through a key, at the moment when bytes move, that the region's
//!   context, PD, range and rights allow.
//!
//! # Layout
//!
//! ```text
//!  0        4        8        12       16                32                48                64
//!  | op/units/flags | object | wqe_id | sge_count,inline | body (16 bytes)  | element 0        | element 1        |
//!  | element 2 ...  (units 1 and on: 4 elements each, or 64 bytes of inline data)                                  |
//! ```
//! The body is a [`RdmaBody`] or a [`UdBody`]; RECV has none (zero), and a list a [`ListBody`].
//! From byte 32 on there are [`WqeHeader::sge_count`] elements ([`Sge`]), or with [`flags::INLINE`]
//! [`WqeHeader::inline_len`] bytes of payload. Atomics have an [`AtomicOperands`] at byte 32 and
//! their one element at byte 48; ATOMIC WRITE, which brings nothing back, is laid out as a WRITE.
//! FLUSH has a [`FlushBody`], a [`FlushRange`] at byte 32 and no element. BIND_MW has a
//! [`BindMwBody`], a [`BindMwRange`] at byte 32 and no element; REG_MR a [`RegMrBody`], a
//! [`RegMrMemory`] at byte 32 and no element. With `VRDMA_WQE_F_XRC` a [`XrcBody`] is at byte 32,
//! and what is said to be there is 16 bytes further on: the one element of an atomic is the first
//! of a second unit.
//!
//! # Fast registration
//!
//! REG_MR says what memory a region names that ALLOC_FAST_MR made: it alone has an address in guest
//! memory, that of its *page list*. The list has the guest-physical address of each page, 8 bytes,
//! little-endian. All pages have the same size and begin at a multiple of it; the region begins as
//! far into the first page as its `iova` is into one, and the list has as many pages as that and
//! its length take: at most those of ALLOC_FAST_MR. A list could name any memory of the guest, so
//! the device takes REG_MR for QPs of the kernel's context alone, to which no channel but those of
//! that context can post. Of another QP it ends as `VRDMA_WC_LOC_QP_OP_ERR`, and is counted.
//!
//! The device reads the list when it carries the request out. It ends as `VRDMA_WC_LOC_PROT_ERR` if
//! the list or a page is not guest memory, or a page begins elsewhere; as `VRDMA_WC_MW_BIND_ERR`
//! (memory management operation error) if the region is not one of ALLOC_FAST_MR in the QP's PD, is
//! not free, or cannot be what the request says. Then nothing has changed.

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
        /// Bytes by which all from `DATA_OFFSET` on is further on with `VRDMA_WQE_F_XRC`.
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
        /// Makes a key of the own device name nothing: of a window of type 2B that the QP bound, or
        /// of a region of ALLOC_FAST_MR in its PD, which is free then (or was before). Of any other
        /// it ends with `VRDMA_WC_LOC_QP_OP_ERR`. Body: [`RdmaBody`] with `rkey` alone; no
        /// elements. RC and UC; as SEND_WITH_INV with `VRDMA_CAP_MEM_WINDOW_TYPE_2B` or
        /// `VRDMA_CAP_MEM_MGT_EXTENSIONS`. It begins when all requests before it are complete, and
        /// what comes later begins when it is.
        LOCAL_INV = 7,
        /// Binds a memory window, or with length 0 unbinds one of type 1. Body: [`BindMwBody`],
        /// behind it a [`BindMwRange`]. RC and UC. It begins when all requests before it are
        /// complete, and what comes later begins when it is; it ends with `VRDMA_WC_MW_BIND_ERR` if
        /// it cannot be. With `VRDMA_CAP_MEM_WINDOW` or `VRDMA_CAP_MEM_WINDOW_TYPE_2B`, of windows
        /// of that type.
        BIND_MW = 8,
        /// SEND that makes a key of the peer name nothing, [`RdmaBody::rkey`], before its receive
        /// completes. RC. If the peer's QP did not bind a window of type 2B with that key, and it
        /// is not of a region of ALLOC_FAST_MR in that QP's PD that is free or gives peers a right,
        /// it ends with `VRDMA_WC_REM_ACCESS_ERR`, the receive with `VRDMA_WC_REM_INV_REQ_ERR`.
        SEND_WITH_INV = 9,
        /// Fast registration: a region of ALLOC_FAST_MR that is free names memory from now on.
        /// Body: [`RegMrBody`], behind it a [`RegMrMemory`]; no elements. RC and UC, QPs of the
        /// kernel's context alone, with `VRDMA_CAP_MEM_MGT_EXTENSIONS`. It begins when all requests
        /// before it are complete, and what comes later begins when it is.
        REG_MR = 10,
        /// Ends when what the QP wrote before is placed in the peer's memory as
        /// [`FlushBody::placement`] says (IBTA annex A19). Body: [`FlushBody`], behind it a
        /// [`FlushRange`]. RC, of devices with `VRDMA_CAP_FLUSH_GLOBAL`. The peer's QP and region
        /// have to allow it. Counts among READs and atomics (`max_rd_atomic`, fences).
        FLUSH = 14,
        /// Store of 8 bytes at once, after all that came before; from inline data or from elements,
        /// 8 bytes together. RC only, of devices with `VRDMA_CAP_ATOMIC_WRITE`. Counts among READs
        /// and atomics (`max_rd_atomic`, fences).
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
        /// Between body and what follows it there is a `XrcBody`: of all requests of
        /// `VRDMA_QPT_XRC_SEND` but BIND_MW, LOCAL_INV and REG_MR, and of no others. With
        /// `VRDMA_CAP_XRC`.
        XRC = 16,
        /// Of RECV, SRQ_RECV, and SEND of RC and UC: each element is a request of its own, and
        /// there are 2 to `VRDMA_WQE_LIST_MAX` of them.
        /// [`WqeHeader::wqe_id`](crate::wqe::WqeHeader) is that of the first, the body a
        /// [`ListBody`](crate::wqe::ListBody); the other flags hold for each. Not with
        /// `VRDMA_WQE_F_INLINE` or `VRDMA_WQE_F_XRC`. With `VRDMA_CAP_WQE_LIST`.
        LIST = 32,
        /// All that are defined.
        ALL = 63,
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
        /// Key of the peer's region (WRITE, READ, atomics, ATOMIC WRITE); the key to invalidate
        /// (LOCAL_INV, SEND_WITH_INV); 0 otherwise.
        rkey: U32,
        /// Immediate data; the peer finds these 4 bytes in its CQE as they are.
        imm: big_endian::U32,
    }
}

layout! {
    /// Body of a list of requests.
    pub struct ListBody = "vrdma_wqe_list" {
        /// [`WqeHeader::wqe_id`] of the second request and on; those of requests that are not there
        /// are written as zero.
        wqe_ids: [U32; 4],
    }
}

layout! {
    /// Which shared receive queue of the peer a request of XRC names; at byte 32.
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
        /// Q_Key of the receiver; with the highest bit set, the sender's own is used.
        qkey: U32,
        /// Immediate data; the peer finds these 4 bytes in its CQE as they are.
        imm: big_endian::U32,
    }
}

layout! {
    /// Body of FLUSH.
    pub struct FlushBody = "vrdma_wqe_flush" {
        /// Address in the peer's region of the first byte that is flushed; without meaning with
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
    /// [`FlushBody::placement`], with the numbers of enum ibv_placement_type. The request cannot be
    /// understood without any of them, or with others.
    pub mod placement: u8 = "VRDMA_FLUSH" {
        /// Global visibility: all who access the memory see what was written.
        GLOBAL = 1,
        /// Persistence. The peer's memory may have it, whatever this device has.
        PERSISTENT = 2,
    }
}

consts! {
    /// [`FlushBody::level`], with the numbers of enum ibv_selectivity_level. With others the
    /// request cannot be understood.
    pub mod flush_level: u8 = "VRDMA_FLUSH_LEVEL" {
        /// So many bytes from an address on; none is allowed.
        RANGE = 0,
        /// All of the region.
        REGION = 1,
    }
}

layout! {
    /// How much is flushed; at byte 32 of FLUSH.
    pub struct FlushRange = "vrdma_wqe_flush_range" {
        /// Bytes; without meaning with `VRDMA_FLUSH_LEVEL_REGION`.
        length: U32,
        /// Written as zero.
        reserved: [u8; 12],
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
    /// Body of BIND_MW.
    pub struct BindMwBody = "vrdma_wqe_bind_mw" {
        /// The window's rkey before.
        rkey: U32,
        /// Its rkey afterwards: of this the low 8 bits, which are the poster's choice. The others
        /// stay those of `rkey`, whatever they are here.
        new_rkey: U32,
        /// Local key of the region.
        lkey: U32,
        /// `VRDMA_ACCESS_*` of `VRDMA_ACCESS_WINDOW`.
        access: U32,
    }
}

layout! {
    /// What a window shows of its region; at byte 32 of BIND_MW.
    pub struct BindMwRange = "vrdma_wqe_bind_mw_range" {
        /// iova of the first byte, as requests name it that use the region's local key.
        addr: U64,
        /// Length in bytes. 0: nothing, the window is unbound.
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
        /// Key of the region afterwards, local and remote: the low 8 bits are the poster's choice,
        /// the others say which region it is.
        key: U32,
        /// `VRDMA_ACCESS_*` of `VRDMA_ACCESS_V1_0`; remote write and atomics need local write too.
        access: U32,
        /// Size of a page, as a power of 2: from `VRDMA_PAGE_SHIFT_MIN` to `VRDMA_PAGE_SHIFT_MAX`.
        page_shift: u8,
        /// Written as zero; otherwise the request cannot be understood.
        reserved: [u8; 7],
    }
}

layout! {
    /// What memory a region is to name; at byte 32 of REG_MR.
    pub struct RegMrMemory = "vrdma_wqe_reg_mr_memory" {
        /// Address by which requests name the first byte. It is as far into its page as that byte
        /// is into the first of the list.
        iova: U64,
        /// Length in bytes; `iova + length` is at most 2^64.
        length: U64,
        /// The page list, a guest-physical address; of any alignment.
        page_list: U64,
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
