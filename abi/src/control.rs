//! Commands and replies of the control virtqueue.
//!
//! # Shape
//!
//! A command is one descriptor chain: device-readable bytes, then device-writable bytes.
//!
//! The readable bytes are a [`ReqHeader`], then the command's request structure. Commands that
//! carry memory have [`ReqHeader::num_runs`] entries of [`Run`] behind it. The readable bytes may
//! be cut into descriptors anywhere.
//!
//! The writable bytes receive a [`RespHeader`]. If its status is [`Status::OK`], the command's
//! reply structure follows. The used length is the number of bytes written.
//!
//! A driver may have several commands outstanding. The device executes them in the order in which
//! they were made available. It answers each command exactly once:
//!
//! * A chain with fewer than [`RespHeader::SIZE`] writable bytes is not executed. It is returned
//!   with used length 0.
//! * A command whose reply would not lie in guest memory is not executed. If the reply's header
//!   lies in guest memory, its status is [`Status::FAULT`]. Otherwise the used length is 0.
//! * An unknown opcode gives [`Status::UNSUPPORTED`].
//! * [`Status::INVALID`] answers missing bytes, and a writable part that is too small for the
//!   reply. It also answers a reserved field that is not zero, and a number out of range.
//! * A command that did not give `OK` changed nothing.
//!
//! # Lengths, and versions that differ
//!
//! A structure keeps its size for good. A later minor version extends a request or a reply by a
//! longer structure that begins with the former one. For example, [`QueryDeviceExResp`] begins with
//! [`QueryDeviceResp`]. In an added field, zero has the meaning of the former version. So an old
//! driver works with a new device, and a new driver with an old device:
//!
//! * **Replies.** The device writes as much of the reply structure as there is room for. The used
//!   length tells how much. There must be room for the command's first reply structure; otherwise
//!   the device executes nothing and replies [`Status::INVALID`]. A driver provides room for what
//!   it knows, and takes bytes that the device did not write as zero.
//! * **Requests.** All bytes between the structure that the device knows and the extents must be
//!   zero, however many they are. Otherwise the request asks for something that the device does not
//!   have ([`Status::UNSUPPORTED`]). A field beyond the end of the request counts as zero. The
//!   command's first request structure must be there ([`Status::INVALID`]).
//! * **Version 1.0.** Such a device writes a reply only if there is room for all of it. It refuses
//!   any excess of a request ([`Status::INVALID`]). So a driver uses a longer request only if it
//!   needs something that the device announces ([`device_cap`]).
//!
//! # Memory in commands
//!
//! [`Run`]s name extents of guest memory. Together, in order, they are the object's memory. The sum
//! of their lengths must be exactly what the command says. An extent that is empty, wraps, or is
//! not wholly inside the guest's memory gives [`Status::FAULT`]. The device uses the memory until
//! it replies to the command that destroys the object, and not after that.
//!
//! # Ownership
//!
//! Every object belongs to a *user context*. Number 0 is the kernel's context, which always exists.
//! An object may only name objects of its own context ([`Status::DENIED`] otherwise).
//!
//! # Connections
//!
//! On a device of transport RoCE, the driver connects QPs by MODIFY_QP, as it agrees with its peer.
//! A device of transport iWARP connects QPs itself ("Connections of iWARP", at the end).
//!
//! # Driver requirements
//!
//! * The kernel MUST NOT let a process write to the control virtqueue, or to the memory that its
//!   descriptors name.
//! * The driver MUST write reserved fields as zero.
//! * Memory that a command named MUST remain the guest's, and in place. It MUST do so until the
//!   command that destroys the object has succeeded, or the device was reset. If such a command
//!   ends in [`Status::INTERNAL`], the memory MUST NOT be used for anything else before a reset.
//! * The driver MUST NOT give the number of a new object to a process before the command that made
//!   the object has ended.
//!
//! # Device requirements
//!
//! * The device MUST answer each command once. It MUST execute commands in the order in which they
//!   were made available.
//! * A command that does not end in [`Status::OK`] MUST NOT have changed anything.
//! * It MUST read each byte of a command once, and check what it read: the memory may change
//!   meanwhile.
//! * It MUST NOT touch an object's memory after it answered the command that destroyed the object.
//! * Before a command that changes or destroys a QP or a shared receive queue, it MUST take all
//!   earlier requests for it, from every channel. Earlier requests are those that were made
//!   available before the command. Before a command that resizes a CQ, it MUST take all earlier
//!   requests of the CQ's context.

mod channel;
mod cm;
mod counters;
mod cq;
mod key;
mod mcast;
mod port;
mod qp;
mod srq;
pub use channel::*;
pub use cm::*;
pub use counters::*;
pub use cq::*;
pub use key::*;
pub use mcast::*;
pub use port::*;
pub use qp::*;
pub use srq::*;

use crate::layout::Item;
use zerocopy::little_endian::{U16, U32, U64};

/// Declarations for the C header.
pub const ITEMS: &[Item] = &[
    Item::Consts(Opcode::INFO),
    Item::Consts(Status::INFO),
    Item::Consts(limit::INFO),
    Item::Struct(ReqHeader::INFO),
    Item::Struct(RespHeader::INFO),
    Item::Struct(Run::INFO),
    Item::Struct(ObjectReq::INFO),
    Item::Struct(ObjectResp::INFO),
    Item::Struct(QueryDeviceResp::INFO),
    Item::Struct(QueryDeviceExResp::INFO),
    Item::Consts(device_cap::INFO),
    Item::Struct(QueryPortResp::INFO),
    Item::Consts(port_state::INFO),
    Item::Struct(SetPortMtuReq::INFO),
    Item::Struct(CountersResp::INFO),
    Item::Struct(ClockResp::INFO),
    Item::Struct(AddGidReq::INFO),
    Item::Struct(QueryGidResp::INFO),
    Item::Consts(gid_type::INFO),
    Item::Struct(BindChannelReq::INFO),
    Item::Struct(CreateCqReq::INFO),
    Item::Consts(cq_flags::INFO),
    Item::Struct(CreateCqResp::INFO),
    Item::Struct(ResizeCqReq::INFO),
    Item::Struct(ModifyCqReq::INFO),
    Item::Struct(RegMrReq::INFO),
    Item::Struct(RegMrResp::INFO),
    Item::Consts(access::INFO),
    Item::Struct(DmaMrReq::INFO),
    Item::Struct(AllocFastMrReq::INFO),
    Item::Struct(AllocMwReq::INFO),
    Item::Consts(mw_type::INFO),
    Item::Consts(rereg::INFO),
    Item::Struct(ReregMrReq::INFO),
    Item::Struct(CreateQpReq::INFO),
    Item::Struct(CreateQpResp::INFO),
    Item::Consts(QpType::INFO),
    Item::Consts(QpState::INFO),
    Item::Consts(qp_attr::INFO),
    Item::Struct(QpAttr::INFO),
    Item::Struct(ModifyQpReq::INFO),
    Item::Struct(AhTableReq::INFO),
    Item::Struct(CreateSrqReq::INFO),
    Item::Struct(CreateSrqResp::INFO),
    Item::Consts(srq_attr::INFO),
    Item::Struct(ModifySrqReq::INFO),
    Item::Struct(QuerySrqResp::INFO),
    Item::Struct(McastReq::INFO),
    Item::Consts(cm_limit::INFO),
    Item::Struct(CmListenReq::INFO),
    Item::Consts(cm_flags::INFO),
    Item::Struct(CmConnectReq::INFO),
    Item::Struct(CmAcceptReq::INFO),
    Item::Struct(CmRejectReq::INFO),
    Item::Consts(CmEventKind::INFO),
    Item::Consts(CmStatus::INFO),
    Item::Struct(CmEventResp::INFO),
];

open_enum! {
    /// [`ReqHeader::opcode`]. Each entry names its request -> reply; `-` is none.
    pub enum Opcode: u16 = "VRDMA_CMD" {
        /// - -> [`QueryDeviceExResp`] ([`QueryDeviceResp`] in version 1.0)
        QUERY_DEVICE = 1,
        /// - -> [`QueryPortResp`]. There is one port, number 1.
        QUERY_PORT = 2,
        /// [`ObjectReq`] (GID index) -> [`QueryGidResp`]
        QUERY_GID = 3,
        /// [`AddGidReq`] -> -. Replaces the entry. `DENIED` if the host does not let this guest use
        /// the address in that VLAN, or if another guest has the address there.
        ADD_GID = 4,
        /// [`ObjectReq`] (GID index) -> -. An empty entry may be deleted.
        DEL_GID = 5,
        /// - -> [`ObjectResp`] (context)
        ALLOC_CONTEXT = 8,
        /// [`ObjectReq`] (context) -> -. `BUSY` while it owns anything.
        DEALLOC_CONTEXT = 9,
        /// [`BindChannelReq`], extents (the window) -> -
        BIND_CHANNEL = 10,
        /// [`ObjectReq`] (virtqueue number) -> -. Drops the entries that the device has not taken
        /// yet.
        UNBIND_CHANNEL = 11,
        /// [`ObjectReq`] (context) -> [`ObjectResp`] (PDN)
        ALLOC_PD = 16,
        /// [`ObjectReq`] (PDN) -> -. `BUSY` while MRs, memory windows or QPs use it.
        DEALLOC_PD = 17,
        /// - -> [`ObjectResp`] (XRC domain). Needs `VRDMA_CAP_XRC`. The domain belongs to the
        ///   kernel's context, because processes share it.
        ALLOC_XRCD = 18,
        /// [`ObjectReq`] (XRC domain) -> -. Needs `VRDMA_CAP_XRC`. `BUSY` while QPs or shared
        /// receive queues are in it.
        DEALLOC_XRCD = 19,
        /// [`SetPortMtuReq`] -> -
        SET_PORT_MTU = 12,
        /// - -> [`CountersResp`]. Needs `VRDMA_CAP_HW_COUNTERS`.
        QUERY_COUNTERS = 13,
        /// - -> [`ClockResp`]. Needs `VRDMA_CAP_CQ_TIMESTAMP`.
        QUERY_CLOCK = 14,
        /// [`CreateCqReq`], extents (see [`crate::cqe`]) -> [`CreateCqResp`]
        CREATE_CQ = 24,
        /// [`ObjectReq`] (CQN) -> -. `BUSY` while QPs or XRC shared receive queues use it.
        DESTROY_CQ = 25,
        /// [`ResizeCqReq`], extents (the new ring and record, see [`crate::cqe`]) -> -. Needs
        /// `VRDMA_CAP_CQ_RESIZE`. The device first takes all requests that were made available in a
        /// channel before the command. It also waits, for at most 10 ms, until those that need no
        /// peer have ended. `INVALID` if the CQEs not yet consumed do not fit, or the CQ failed.
        RESIZE_CQ = 26,
        /// [`ModifyCqReq`] -> -. Needs `VRDMA_CAP_CQ_MODERATION`.
        MODIFY_CQ = 27,
        /// [`RegMrReq`], extents (the region) -> [`RegMrResp`]
        REG_MR = 32,
        /// [`ObjectReq`] (lkey) -> -. `BUSY` while windows are bound to the region. If
        /// ALLOC_FAST_MR made the region, the low 8 bits of the lkey do not count.
        DEREG_MR = 33,
        /// [`DmaMrReq`] -> [`RegMrResp`]. Registers all guest memory, with iova = GPA. For PDs of
        /// the kernel only.
        GET_DMA_MR = 34,
        /// [`AllocMwReq`] -> [`ObjectResp`] (the window's first rkey). Needs `VRDMA_CAP_MEM_WINDOW`
        /// or `VRDMA_CAP_MEM_WINDOW_TYPE_2B`.
        ALLOC_MW = 35,
        /// [`ObjectReq`] (rkey, without its low 8 bits) -> -. Needs `VRDMA_CAP_MEM_WINDOW` or
        /// `VRDMA_CAP_MEM_WINDOW_TYPE_2B`. Unbinds the window if it is bound.
        DEALLOC_MW = 36,
        /// [`ReregMrReq`], with `VRDMA_REREG_TRANSLATION` extents (the region) -> [`RegMrResp`].
        /// Needs `VRDMA_CAP_REREG_MR`. `BUSY` while windows are bound to the region.
        REREG_MR = 37,
        /// [`AllocFastMrReq`] -> [`RegMrResp`] (the region's first keys). Needs
        /// `VRDMA_CAP_MEM_MGT_EXTENSIONS`. For PDs of the kernel only.
        ALLOC_FAST_MR = 38,
        /// [`CreateQpReq`] -> [`CreateQpResp`]
        CREATE_QP = 40,
        /// [`ModifyQpReq`] -> -. The device first takes all requests that were made available in a
        /// channel before the command.
        MODIFY_QP = 41,
        /// [`ObjectReq`] (QPN) -> [`QpAttr`]
        QUERY_QP = 42,
        /// [`ObjectReq`] (QPN) -> -. The device first takes all requests that were made available
        /// in a channel before the command. Pending requests end without a completion. The QP
        /// leaves its multicast groups: the device does not refuse to destroy a member. Verbs
        /// refuse that (EBUSY), and drivers enforce it.
        DESTROY_QP = 43,
        /// [`AhTableReq`], extents (see [`crate::ah`]) -> -. Given once, before the first UD QP.
        SET_AH_TABLE = 48,
        /// [`CreateSrqReq`] -> [`CreateSrqResp`]. Needs `VRDMA_CAP_SRQ`.
        CREATE_SRQ = 50,
        /// [`ModifySrqReq`] -> -. Needs `VRDMA_CAP_SRQ`. The device first takes all receives that
        /// were made available in a channel before the command.
        MODIFY_SRQ = 51,
        /// [`ObjectReq`] (SRQN) -> [`QuerySrqResp`]. Needs `VRDMA_CAP_SRQ`.
        QUERY_SRQ = 52,
        /// [`ObjectReq`] (SRQN) -> -. Needs `VRDMA_CAP_SRQ`. `BUSY` while QPs use the queue. The
        /// device first takes all receives that were made available in a channel before the
        /// command. Receives of the queue end without a completion. No XRC QP keeps a shared
        /// receive queue in use: a message that has begun there is refused. A READ that has begun
        /// there is still answered, also repeatedly, as long as its region exists.
        DESTROY_SRQ = 53,
        /// [`McastReq`] -> -. Needs `VRDMA_CAP_MULTICAST`. Attaching a member again changes
        /// nothing. `INVALID` if the QP is not UD, or the address is not one of a group.
        /// `NO_RESOURCES` beyond a limit.
        ATTACH_MCAST = 56,
        /// [`McastReq`] -> -. Needs `VRDMA_CAP_MULTICAST`. `INVALID` if the QP is not a member.
        DETACH_MCAST = 57,
        /// [`CmListenReq`] -> [`ObjectResp`] (listener). Transport iWARP only. `DENIED` for an
        /// address that is not the guest's, `BUSY` if the port is in use.
        CM_LISTEN = 64,
        /// [`ObjectReq`] (listener) -> -. Transport iWARP only. Ends the listener's connections
        /// that were not accepted. Those reported to the driver keep their numbers until it rejects
        /// or releases them.
        CM_CLOSE_LISTENER = 65,
        /// [`CmConnectReq`] -> [`ObjectResp`] (connection). Transport iWARP only. An event reports
        /// the result. `DENIED` for addresses that the guest may not use. See "Connections of
        /// iWARP".
        CM_CONNECT = 66,
        /// [`CmAcceptReq`] -> -. Transport iWARP only. An event reports when the connection is
        /// established. `INVALID` if the peer has gone. See "Connections of iWARP".
        CM_ACCEPT = 67,
        /// [`CmRejectReq`] -> -. Transport iWARP only. Releases the connection's number. See
        /// "Connections of iWARP".
        CM_REJECT = 68,
        /// [`ObjectReq`] (QPN) -> -. Transport iWARP only. Ends the connection of a QP in order: no
        /// further request begins, and those that have begun end. Then the QP goes to ERR, and its
        /// peer is told. To end the connection at once, modify the QP to ERR or destroy it.
        CM_DISCONNECT = 69,
        /// [`ObjectReq`] (connection) -> -. Transport iWARP only. Releases the connection's number;
        /// no later event names it. A connection that is not over is ended at once.
        CM_RELEASE = 70,
        /// - -> [`CmEventResp`]. Transport iWARP only. Returns the next event, in order.
        CM_GET_EVENT = 71,
    }
}

open_enum! {
    /// [`RespHeader::status`]. The errno that drivers make of it is in brackets.
    pub enum Status: u32 = "VRDMA_STATUS" {
        /// Done.
        OK = 0,
        /// Unknown opcode, or an option that this device does not have (EOPNOTSUPP).
        UNSUPPORTED = 1,
        /// A malformed request, or a value that is never valid (EINVAL).
        INVALID = 2,
        /// No such object (ENOENT).
        NOT_FOUND = 3,
        /// The object is in use (EBUSY).
        BUSY = 4,
        /// The object belongs to somebody else, or the host forbids it (EPERM).
        DENIED = 5,
        /// A limit of the device or of this guest's quota is reached (ENOMEM).
        NO_RESOURCES = 6,
        /// An extent that is not wholly in guest memory (EFAULT).
        FAULT = 7,
        /// The device failed, through no fault of the driver (EIO).
        INTERNAL = 8,
        /// More extents than `max_mr_runs`. Drivers return ENOMEM, as verbs do when the device
        /// lacks room.
        TOO_LARGE = 9,
    }
}

consts! {
    /// Fixed limits.
    pub mod limit: u32 = "VRDMA" {
        /// Number of the kernel's context.
        KERNEL_CONTEXT = 0,
        /// Means "none" in a field that names an optional object.
        NONE = 0xffff_ffff,
        /// QPN of the general services QP (QP1).
        GSI_QPN = 1,
        /// Least bytes of an extent of a region, except for the first and the last extent.
        MIN_RUN = 4096,
    }
}

layout! {
    /// Header of each command.
    pub struct ReqHeader = "vrdma_cmd_req" {
        /// `VRDMA_CMD_*`.
        opcode: U16,
        /// Written as zero; refused otherwise.
        reserved: U16,
        /// Number of `struct vrdma_run` behind the request structure; 0 for commands without
        /// memory.
        num_runs: U32,
        /// Returned in the reply. The device gives it no meaning.
        cookie: U64,
    }
}

layout! {
    /// Header of each reply.
    pub struct RespHeader = "vrdma_cmd_resp" {
        /// `VRDMA_STATUS_*`.
        status: U32,
        /// Written as zero.
        reserved: U32,
        /// The request's cookie.
        cookie: U64,
    }
}

layout! {
    /// An extent: contiguous bytes of guest memory. It needs no alignment.
    pub struct Run = "vrdma_run" {
        /// First byte, a guest-physical address.
        addr: U64,
        /// Length in bytes, not 0.
        len: U64,
    }
}

layout! {
    /// Request that names one object.
    pub struct ObjectReq = "vrdma_object_req" {
        /// Number of the object. The opcode determines its kind.
        object: U32,
        /// Written as zero; refused otherwise.
        reserved: U32,
    }
}

layout! {
    /// Reply that names a new object.
    pub struct ObjectResp = "vrdma_object_resp" {
        /// Number of the object. The opcode determines its kind.
        object: U32,
        /// Written as zero.
        reserved: U32,
    }
}

layout! {
    /// Registers memory. Extents other than the first and the last have at least `VRDMA_MIN_RUN`
    /// bytes.
    pub struct RegMrReq = "vrdma_reg_mr_req" {
        /// Protection domain.
        pdn: U32,
        /// `VRDMA_ACCESS_*`. Remote write and atomics need local write too.
        access: U32,
        /// Address by which requests name the first byte. Any value.
        iova: U64,
        /// Length in bytes, the sum of the extents. `iova + length` is at most 2^64. A region of
        /// length 0 has no extents: it has keys, but no byte is reachable through them.
        length: U64,
    }
}

layout! {
    /// Registers all guest memory for the kernel.
    pub struct DmaMrReq = "vrdma_dma_mr_req" {
        /// Protection domain of the kernel's context.
        pdn: U32,
        /// `VRDMA_ACCESS_*`.
        access: U32,
    }
}

layout! {
    /// Keys of a new region.
    pub struct RegMrResp = "vrdma_reg_mr_resp" {
        /// Local key.
        lkey: U32,
        /// Remote key.
        rkey: U32,
    }
}

layout! {
    /// Tells the device where the AH table is: one extent, aligned to 64 bytes.
    pub struct AhTableReq = "vrdma_ah_table_req" {
        /// Number of entries (see [`crate::ah`]), at most `max_ah`.
        entries: U32,
        /// Written as zero; refused otherwise.
        reserved: U32,
    }
}
