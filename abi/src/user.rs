//! What the rdma-core provider and the kernel driver say to each other through uverbs. The device
//! never sees it.
//!
//! Versions of the two mix, as those of driver and device do (see [`crate::control`]): a structure
//! keeps its size, and a longer one begins with the former.
//!
//! * **Replies.** The kernel writes as much of the reply as the provider has room for; the provider
//!   takes the rest of its own structure as zero. Zero in a field that was added is what the former
//!   version means.
//! * **Requests.** What a request of the provider lacks is zero; what lies behind the structure
//!   that the kernel knows has to be zero (EOPNOTSUPP otherwise).

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
        /// `uverbs_abi_ver` of the ib_device: the provider refuses another.
        ABI_VERSION = 1,
        /// Driver object (in the driver namespace of uverbs ioctls) that has the methods below.
        OBJECT_CHANNEL = 0x1000,
        /// Posts whole requests through the kernel's channel. Attribute [`ATTR_POST_UNITS`]. Fails
        /// with EINVAL, nothing posted, unless each request is well framed and names a QP or SRQ of
        /// the calling context; with EIO once the device is lost.
        METHOD_POST = 0x1000,
        /// Kicks the context's own channel, where the doorbell could not be mapped. No attribute.
        METHOD_KICK = 0x1001,
        /// Tells a process that imports a context of it what the reply of ibv_cmd_get_context told,
        /// but for the channel, which belongs to the process that opened the device. Attribute
        /// [`ATTR_QUERY_RESP`]: `vrdma_uctx_ex_resp`, all fields of the channel 0. An older kernel
        /// driver refuses this method and the next two.
        METHOD_QUERY_CONTEXT = 0x1002,
        /// Tells a process that imports a PD of it what the reply of ibv_cmd_alloc_pd told.
        /// Attributes [`ATTR_QUERY_HANDLE`], and [`ATTR_QUERY_RESP`]: `vrdma_upd_resp`. Fails with
        /// ENOENT if the context has no such PD.
        METHOD_QUERY_PD = 0x1003,
        /// Tells how to map device memory. Attributes [`ATTR_QUERY_HANDLE`], and
        /// [`ATTR_QUERY_RESP`]: `vrdma_udm_resp`. Fails with ENOENT if the context has no such
        /// memory.
        METHOD_QUERY_DM = 0x1004,
        /// Tells the device's clock. Attribute [`ATTR_QUERY_RESP`]: `vrdma_uclock_resp`. Fails with
        /// EOPNOTSUPP if the device has none, with EIO if it does not answer or did not the last
        /// time.
        METHOD_QUERY_CLOCK = 0x1005,
        /// Bytes in: one or more requests, in units of 64 bytes, at most [`POST_MAX_UNITS`] of
        /// them.
        ATTR_POST_UNITS = 0x1000,
        /// Bytes out: the structure that the method tells. If there is room for more, that is
        /// zeroed.
        ATTR_QUERY_RESP = 0x1000,
        /// Handle of the object that is asked about, of the kind that the method is for.
        ATTR_QUERY_HANDLE = 0x1001,
        /// Most units of one [`METHOD_POST`].
        POST_MAX_UNITS = 64,
    }
}

consts! {
    /// [`AllocContextReq::flags`] and [`AllocContextResp::flags`].
    pub mod context_flags: u32 = "VRDMA_CONTEXT_F" {
        /// Reply: the context has a channel of its own (the pool was not empty).
        CHANNEL = 1,
        /// Reply: kicks follow `avail_event` (VIRTIO_F_EVENT_IDX), not `used.flags`.
        EVENT_IDX = 2,
        /// Reply: the doorbell is mapped.
        DOORBELL = 4,
        /// Request: do not give the context a channel of its own, all posts go through the
        /// kernel's.
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
    /// Reply of ibv_cmd_get_context in version 1.0. Lengths are whole pages; offsets count from the
    /// start of the mapping.
    pub struct AllocContextResp = "vrdma_uctx_resp" {
        /// `VRDMA_CONTEXT_F_*`.
        flags: U32,
        /// Context number in the device, for messages.
        context: U32,
        /// No two living QPs have QPNs that are equal modulo this power of two.
        max_qp: U32,
        /// Most bytes of inline data.
        max_inline: U32,
        /// Entries of the channel, a power of two.
        entries: U16,
        /// Virtqueue number, which is what is written (16 bits, little-endian) to the doorbell.
        queue: U16,
        /// Most units of a request.
        max_wqe_units: U32,
        /// mmap offset of the pages with the available and the used ring.
        rings_mmap: U64,
        /// Their length.
        rings_len: U32,
        /// Where the available ring begins.
        avail_offset: U32,
        /// Where the used ring begins.
        used_offset: U32,
        /// Length of the slots.
        slots_len: U32,
        /// mmap offset of the slots; slot i is at 64 * i.
        slots_mmap: U64,
        /// mmap offset of the doorbell page, which is write-only.
        doorbell_mmap: U64,
        /// Length of the doorbell page.
        doorbell_len: U32,
        /// Where the doorbell is in it.
        doorbell_offset: U32,
    }
}

layout! {
    /// Reply of ibv_cmd_get_context since version 1.1.
    pub struct AllocContextExResp = "vrdma_uctx_ex_resp" {
        /// What version 1.0 tells.
        base: AllocContextResp,
        /// Functions that device and kernel driver have, `VRDMA_CAP_*`; 0 (a kernel driver of
        /// version 1.0) is `VRDMA_CAP_V1_0`.
        device_cap: U64,
        /// Zero.
        reserved: [u8; 56],
    }
}

layout! {
    /// Reply of ibv_cmd_alloc_pd.
    pub struct AllocPdResp = "vrdma_upd_resp" {
        /// PDN, for messages.
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
        /// Number of CQEs, a power of two, at least the `cqe` asked for.
        entries: U32,
        /// Zero.
        reserved: U32,
    }
}

layout! {
    /// Reply of ibv_cmd_create_cq.
    pub struct UserCreateCqResp = "vrdma_ucq_resp" {
        /// CQN, for messages.
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
        /// Number of CQEs, a power of two, at least the `cqe` asked for.
        entries: U32,
        /// As in [`ResizeCqReq`](crate::control::ResizeCqReq).
        held: U32,
    }
}

layout! {
    /// Reply of ibv_cmd_create_qp.
    pub struct UserCreateQpResp = "vrdma_uqp_resp" {
        /// QPN to name in requests.
        qpn: U32,
        /// Zero.
        reserved: U32,
    }
}

layout! {
    /// Reply of ibv_cmd_create_ah.
    pub struct UserCreateAhResp = "vrdma_uah_resp" {
        /// Index to name in UD requests.
        ah: U32,
        /// Zero.
        reserved: U32,
    }
}

layout! {
    /// Reply of ibv_cmd_create_srq.
    pub struct UserCreateSrqResp = "vrdma_usrq_resp" {
        /// SRQN to name in requests.
        srqn: U32,
        /// Zero.
        reserved: U32,
    }
}

layout! {
    /// Reply of `METHOD_QUERY_DM`.
    pub struct QueryDmResp = "vrdma_udm_resp" {
        /// mmap offset of the pages that hold it; it begins with the first byte of the first.
        mmap: U64,
        /// Their length.
        mmap_len: U64,
        /// Its length in bytes.
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
