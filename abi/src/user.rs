//! Messages between the rdma-core provider and the kernel driver, through uverbs.
//!
//! The device never sees them. Versions of the two may differ, as those of driver and device may
//! (see [`crate::control`]). A structure keeps its size, and a longer one begins with the former
//! one.
//!
//! * **Replies.** The kernel writes as much of the reply as the provider has room for. The provider
//!   takes the rest of its own structure as zero. In an added field, zero has the meaning of the
//!   former version.
//! * **Requests.** Fields that the provider's request lacks are zero. Bytes behind the structure
//!   that the kernel knows must be zero (EOPNOTSUPP otherwise).

use crate::layout::Item;
use zerocopy::little_endian::{U16, U32, U64};

/// Declarations for the C header.
pub const ITEMS: &[Item] = &[
    Item::Consts(uverbs::INFO),
    Item::Consts(context_flags::INFO),
    Item::Struct(AllocContextReq::INFO),
    Item::Struct(AllocContextResp::INFO),
    Item::Struct(AllocContextExResp::INFO),
    Item::Struct(AllocPdResp::INFO),
    Item::Struct(UserCreateCqReq::INFO),
    Item::Struct(UserCreateCqResp::INFO),
    Item::Struct(UserResizeCqReq::INFO),
    Item::Struct(UserCreateQpResp::INFO),
    Item::Struct(UserCreateAhResp::INFO),
    Item::Struct(UserCreateSrqResp::INFO),
    Item::Struct(QueryDmResp::INFO),
    Item::Struct(UserClockResp::INFO),
];

consts! {
    /// Numbers for uverbs.
    pub mod uverbs: u32 = "VRDMA_UVERBS" {
        /// `uverbs_abi_ver` of the ib_device. The provider refuses any other.
        ABI_VERSION = 1,
        /// Driver object of the methods below, in the driver namespace of uverbs ioctls.
        OBJECT_CHANNEL = 0x1000,
        /// Posts whole requests through the kernel's channel. Attribute [`ATTR_POST_UNITS`]. Fails
        /// with EINVAL, nothing posted, unless each request is well framed and names a QP or SRQ of
        /// the calling context. Fails with EIO once the device is lost.
        METHOD_POST = 0x1000,
        /// Kicks the context's own channel, if the doorbell could not be mapped. No attribute.
        METHOD_KICK = 0x1001,
        /// For a process that imports a context: returns the reply of ibv_cmd_get_context. The
        /// fields of the channel are 0, because the channel belongs to the process that opened the
        /// device. Attribute [`ATTR_QUERY_RESP`]: `vrdma_uctx_ex_resp`. An older kernel driver
        /// refuses this method, `METHOD_QUERY_PD` and `METHOD_QUERY_DM`.
        METHOD_QUERY_CONTEXT = 0x1002,
        /// For a process that imports a PD: returns the reply of ibv_cmd_alloc_pd. Attributes
        /// [`ATTR_QUERY_HANDLE`], and [`ATTR_QUERY_RESP`]: `vrdma_upd_resp`. Fails with ENOENT if
        /// the context has no such PD.
        METHOD_QUERY_PD = 0x1003,
        /// Returns how to map device memory. Attributes [`ATTR_QUERY_HANDLE`], and
        /// [`ATTR_QUERY_RESP`]: `vrdma_udm_resp`. Fails with ENOENT if the context has no such
        /// memory.
        METHOD_QUERY_DM = 0x1004,
        /// Returns the device's clock. Attribute [`ATTR_QUERY_RESP`]: `vrdma_uclock_resp`. Fails
        /// with EOPNOTSUPP if the device has no clock. Fails with EIO if the device does not
        /// answer, or did not answer the last time.
        METHOD_QUERY_CLOCK = 0x1005,
        /// Bytes in: one or more requests in units of 64 bytes, at most [`POST_MAX_UNITS`] units.
        ATTR_POST_UNITS = 0x1000,
        /// Bytes out: the structure that the method returns. The kernel zeroes the rest of a larger
        /// buffer.
        ATTR_QUERY_RESP = 0x1000,
        /// Handle of the queried object. The method determines the kind of the object.
        ATTR_QUERY_HANDLE = 0x1001,
        /// Most units of one [`METHOD_POST`].
        POST_MAX_UNITS = 64,
    }
}

consts! {
    /// [`AllocContextReq::flags`] and [`AllocContextResp::flags`].
    pub mod context_flags: u32 = "VRDMA_CONTEXT_F" {
        /// Reply: the context has a channel of its own, because the pool was not empty.
        CHANNEL = 1,
        /// Reply: kicks follow `avail_event` (VIRTIO_F_EVENT_IDX), not `used.flags`.
        EVENT_IDX = 2,
        /// Reply: the doorbell is mapped.
        DOORBELL = 4,
        /// Request: give the context no channel of its own. All posts go through the kernel's
        /// channel.
        NO_CHANNEL = 8,
    }
}

layout! {
    /// Driver data of ibv_cmd_get_context.
    pub struct AllocContextReq = "vrdma_uctx_req" {
        /// `VRDMA_CONTEXT_F_NO_CHANNEL` or 0.
        flags: U32,
        /// Zero.
        reserved: U32,
    }
}

layout! {
    /// Reply of ibv_cmd_get_context in version 1.0.
    ///
    /// Lengths are whole pages. Offsets count from the start of the mapping.
    pub struct AllocContextResp = "vrdma_uctx_resp" {
        /// `VRDMA_CONTEXT_F_*`.
        flags: U32,
        /// Context number in the device, for log messages.
        context: U32,
        /// A power of two. No two existing QPs have QPNs that are equal modulo this number.
        max_qp: U32,
        /// Most bytes of inline data.
        max_inline: U32,
        /// Entries of the channel, a power of two.
        entries: U16,
        /// Virtqueue number. It is the value that is written to the doorbell (16 bits,
        /// little-endian).
        queue: U16,
        /// Most units of a request.
        max_wqe_units: U32,
        /// mmap offset of the pages with the available and the used ring.
        rings_mmap: U64,
        /// Length of the rings.
        rings_len: U32,
        /// Offset of the available ring.
        avail_offset: U32,
        /// Offset of the used ring.
        used_offset: U32,
        /// Length of the slots.
        slots_len: U32,
        /// mmap offset of the slots. Slot i is at 64 * i.
        slots_mmap: U64,
        /// mmap offset of the doorbell page, which is write-only.
        doorbell_mmap: U64,
        /// Length of the doorbell page.
        doorbell_len: U32,
        /// Offset of the doorbell in its page.
        doorbell_offset: U32,
    }
}

layout! {
    /// Reply of ibv_cmd_get_context since version 1.1.
    pub struct AllocContextExResp = "vrdma_uctx_ex_resp" {
        /// The fields of version 1.0.
        base: AllocContextResp,
        /// Functions that both device and kernel driver have, `VRDMA_CAP_*`. 0 (a kernel driver of
        /// version 1.0) means `VRDMA_CAP_V1_0`.
        device_cap: U64,
        /// Zero.
        reserved: [u8; 56],
    }
}

layout! {
    /// Reply of ibv_cmd_alloc_pd.
    pub struct AllocPdResp = "vrdma_upd_resp" {
        /// PDN, for log messages.
        pdn: U32,
        /// Zero.
        reserved: U32,
    }
}

layout! {
    /// Driver data of ibv_cmd_create_cq.
    pub struct UserCreateCqReq = "vrdma_ucq_req" {
        /// User address of the CQ's memory (see [`crate::cqe`]), page aligned.
        buf: U64,
        /// Number of CQEs: a power of two, at least the requested `cqe`.
        entries: U32,
        /// Zero.
        reserved: U32,
    }
}

layout! {
    /// Reply of ibv_cmd_create_cq.
    pub struct UserCreateCqResp = "vrdma_ucq_resp" {
        /// CQN, for log messages.
        cqn: U32,
        /// Zero.
        reserved: U32,
    }
}

layout! {
    /// Driver data of ibv_cmd_resize_cq.
    pub struct UserResizeCqReq = "vrdma_uresize_cq_req" {
        /// User address of the new ring and record (see [`crate::cqe`]), page aligned.
        buf: U64,
        /// Number of CQEs: a power of two, at least the requested `cqe`.
        entries: U32,
        /// Number of CQEs that were taken out and not polled, as in
        /// [`ResizeCqReq`](crate::control::ResizeCqReq).
        held: U32,
    }
}

layout! {
    /// Reply of ibv_cmd_create_qp.
    pub struct UserCreateQpResp = "vrdma_uqp_resp" {
        /// QPN for use in requests.
        qpn: U32,
        /// Zero.
        reserved: U32,
    }
}

layout! {
    /// Reply of ibv_cmd_create_ah.
    pub struct UserCreateAhResp = "vrdma_uah_resp" {
        /// Index for use in UD requests.
        ah: U32,
        /// Zero.
        reserved: U32,
    }
}

layout! {
    /// Reply of ibv_cmd_create_srq.
    pub struct UserCreateSrqResp = "vrdma_usrq_resp" {
        /// SRQN for use in requests.
        srqn: U32,
        /// Zero.
        reserved: U32,
    }
}

layout! {
    /// Reply of `METHOD_QUERY_DM`.
    pub struct QueryDmResp = "vrdma_udm_resp" {
        /// mmap offset of the pages that hold the device memory. It begins at the start of the
        /// first page.
        mmap: U64,
        /// Length of these pages in bytes.
        mmap_len: U64,
        /// Length of the device memory in bytes.
        length: U64,
    }
}

layout! {
    /// Reply of `METHOD_QUERY_CLOCK`.
    pub struct UserClockResp = "vrdma_uclock_resp" {
        /// Nanoseconds, as in [`ClockResp`](crate::control::ClockResp).
        clock: U64,
    }
}
