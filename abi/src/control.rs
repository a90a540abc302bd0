//! Commands and replies of the control virtqueue.
//!
//! # Shape
//!
//! A command is one descriptor chain: device-readable bytes, then device-writable bytes. The
//! readable bytes are a [`ReqHeader`], then the command's request structure, then, for commands
//! that carry memory, [`ReqHeader::num_runs`] entries of [`Run`]. They may be cut into descriptors
//! anywhere. The writable bytes receive a [`RespHeader`] and, if its status is [`Status::OK`], the
//! command's reply structure. The used length is the number of bytes written.
//!
//! A driver may have several commands outstanding; the device carries them out in the order in
//! which they were made available. Each command is answered exactly once:
//!
//! * a chain with fewer than [`RespHeader::SIZE`] writable bytes is returned with used length 0 and
//!   not carried out; so is one whose reply would not lie in guest memory, but for a header that
//!   does: it tells of [`Status::FAULT`];
//! * an unknown opcode gives [`Status::UNSUPPORTED`]; missing bytes, a writable part that is too
//!   small for the reply, a reserved field that is not zero or a number out of range give
//!   [`Status::INVALID`];
//! * a command that did not give `OK` changed nothing.
//!
//! # Lengths, and versions that differ
//!
//! A structure keeps its size for good. What a later minor version adds to a request or a reply is
//! a longer structure that begins with the former one, as [`QueryDeviceExResp`] begins with
//! [`QueryDeviceResp`]. Zero in a field that was added is what the former version means. So an old
//! driver works with a new device, and a new driver with an old device:
//!
//! * **Replies.** The device writes as much of the reply structure as there is room for; the used
//!   length tells how much. There has to be room for the command's first reply structure
//!   ([`Status::INVALID`] otherwise, and nothing is carried out). A driver gives room for what it
//!   knows, and takes what the device did not write as zero.
//! * **Requests.** What lies between the structure that the device knows and the runs has to be
//!   zero, however long it is; otherwise it asks for what the device does not have
//!   ([`Status::UNSUPPORTED`]). A field that the request is too short for is zero; the command's
//!   first request structure has to be there ([`Status::INVALID`]).
//! * Devices of version 1.0 write a reply only if there is room for all of it, and refuse any
//!   excess of a request ([`Status::INVALID`]). So a driver uses a longer request only where it has
//!   to: for what the device says that it has ([`device_cap`]).
//!
//! # Memory in commands
//!
//! [`Run`]s name guest memory. Together, in order, they are the object's memory, and the sum of
//! their lengths has to be exactly what the command says. A run that is empty, wraps, or is not
//! wholly inside the guest's memory gives [`Status::FAULT`]. The device touches the memory until
//! the reply to the command that destroys the object, not after.
//!
//! # Ownership
//!
//! Every object belongs to a *user context*; number 0 is the kernel's and always exists. An object
//! may only name objects of its own context ([`Status::DENIED`] otherwise).
//!
//! # Connections
//!
//! QPs of a device of transport RoCE are connected by MODIFY_QP, as the driver and its peer agree;
//! those of iWARP by the device ("Connections of iWARP", at the end).
//!
//! # Driver requirements
//!
//! * The kernel MUST NOT let a process write to the control virtqueue, or to what its descriptors
//!   name.
//! * It MUST write reserved fields as zero.
//! * Memory that a command named MUST stay the guest's, and in place, until the command that
//!   destroys the object has succeeded, or the device was reset. If such a command ends in
//!   [`Status::INTERNAL`], the memory MUST NOT be used for anything else before a reset.
//! * It MUST NOT give a number to a process as its own before the command that made it has ended.
//!
//! # Device requirements
//!
//! * It MUST answer each command once, and carry commands out in the order in which they were made
//!   available.
//! * A command that does not end in [`Status::OK`] MUST NOT have changed anything.
//! * It MUST read each byte of a command once, and check what it read: the memory may change
//!   meanwhile.
//! * It MUST NOT touch an object's memory after it answered the command that destroyed the object.
//! * Before it carries out a command that changes or destroys a QP or a shared receive queue, it
//!   MUST take the requests for it that were made available before the command, whatever channel
//!   they are in; the same for a command that resizes a CQ and requests of its context.

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
    /// [`ReqHeader::opcode`]. Beside each its request -> reply; `-` is none.
    pub enum Opcode: u16 = "VRDMA_CMD" {
        /// - -> [`QueryDeviceExResp`] ([`QueryDeviceResp`] in version 1.0)
        QUERY_DEVICE = 1,
        /// - -> [`QueryPortResp`] (there is one port, number 1)
        QUERY_PORT = 2,
        /// [`ObjectReq`] (GID index) -> [`QueryGidResp`]
        QUERY_GID = 3,
        /// [`AddGidReq`] -> -. Replaces the entry. `DENIED` if the host does not let this guest use
        /// the address in that VLAN, or another guest has it there.
        ADD_GID = 4,
        /// [`ObjectReq`] (GID index) -> -. An empty entry may be deleted.
        DEL_GID = 5,
        /// - -> [`ObjectResp`] (context)
        ALLOC_CONTEXT = 8,
        /// [`ObjectReq`] (context) -> -. `BUSY` while it owns anything.
        DEALLOC_CONTEXT = 9,
        /// [`BindChannelReq`], runs (the window) -> -
        BIND_CHANNEL = 10,
        /// [`ObjectReq`] (virtqueue number) -> -. Entries not taken yet are dropped.
        UNBIND_CHANNEL = 11,
        /// [`ObjectReq`] (context) -> [`ObjectResp`] (PDN)
        ALLOC_PD = 16,
        /// [`ObjectReq`] (PDN) -> -. `BUSY` while MRs, memory windows or QPs use it.
        DEALLOC_PD = 17,
        /// - -> [`ObjectResp`] (XRC domain). With `VRDMA_CAP_XRC`, as the next. It belongs to the
        ///   kernel's context: processes share it.
        ALLOC_XRCD = 18,
        /// [`ObjectReq`] (XRC domain) -> -. `BUSY` while QPs or shared receive queues are in it.
        DEALLOC_XRCD = 19,
        /// [`SetPortMtuReq`] -> -
        SET_PORT_MTU = 12,
        /// - -> [`CountersResp`]. With `VRDMA_CAP_HW_COUNTERS`.
        QUERY_COUNTERS = 13,
        /// - -> [`ClockResp`]. With `VRDMA_CAP_CQ_TIMESTAMP`.
        QUERY_CLOCK = 14,
        /// [`CreateCqReq`], runs (see [`crate::cqe`]) -> [`CreateCqResp`]
        CREATE_CQ = 24,
        /// [`ObjectReq`] (CQN) -> -. `BUSY` while QPs or XRC shared receive queues use it.
        DESTROY_CQ = 25,
        /// [`ResizeCqReq`], runs (the new ring and record, see [`crate::cqe`]) -> -. With
        /// `VRDMA_CAP_CQ_RESIZE`. Requests made available in a channel before the command are taken
        /// before it, and those that end without a peer's doing have ended, unless that takes 10
        /// ms. `INVALID` if what is not consumed does not fit, or the CQ failed.
        RESIZE_CQ = 26,
        /// [`ModifyCqReq`] -> -. With `VRDMA_CAP_CQ_MODERATION`.
        MODIFY_CQ = 27,
        /// [`RegMrReq`], runs (the region) -> [`RegMrResp`]
        REG_MR = 32,
        /// [`ObjectReq`] (lkey, of which the low 8 bits do not count if ALLOC_FAST_MR made it) ->
        /// -. `BUSY` while windows are bound to it.
        DEREG_MR = 33,
        /// [`DmaMrReq`] -> [`RegMrResp`]. All guest memory, iova = GPA. PDs of the kernel only.
        GET_DMA_MR = 34,
        /// [`AllocMwReq`] -> [`ObjectResp`] (its first rkey). With `VRDMA_CAP_MEM_WINDOW` or
        /// `VRDMA_CAP_MEM_WINDOW_TYPE_2B`, as the next.
        ALLOC_MW = 35,
        /// [`ObjectReq`] (rkey, of which the low 8 bits do not count) -> -. A window that is bound
        /// is unbound.
        DEALLOC_MW = 36,
        /// [`ReregMrReq`], with `VRDMA_REREG_TRANSLATION` runs (the region) -> [`RegMrResp`].
        /// `BUSY` while windows are bound to it. With `VRDMA_CAP_REREG_MR`.
        REREG_MR = 37,
        /// [`AllocFastMrReq`] -> [`RegMrResp`] (its first keys). PDs of the kernel only. With
        /// `VRDMA_CAP_MEM_MGT_EXTENSIONS`.
        ALLOC_FAST_MR = 38,
        /// [`CreateQpReq`] -> [`CreateQpResp`]
        CREATE_QP = 40,
        /// [`ModifyQpReq`] -> -. Requests made available in a channel before the command are taken
        /// before it.
        MODIFY_QP = 41,
        /// [`ObjectReq`] (QPN) -> [`QpAttr`]
        QUERY_QP = 42,
        /// [`ObjectReq`] (QPN) -> -. Pending requests end without a completion; those made
        /// available in a channel before the command are taken before it. It leaves its multicast
        /// groups: that a member is in use is what verbs say (EBUSY), and drivers for them.
        DESTROY_QP = 43,
        /// [`AhTableReq`], runs (see [`crate::ah`]) -> -. Once, before the first UD QP.
        SET_AH_TABLE = 48,
        /// [`CreateSrqReq`] -> [`CreateSrqResp`]. With `VRDMA_CAP_SRQ`, as the next three.
        CREATE_SRQ = 50,
        /// [`ModifySrqReq`] -> -. Receives made available in a channel before the command are taken
        /// before it.
        MODIFY_SRQ = 51,
        /// [`ObjectReq`] (SRQN) -> [`QuerySrqResp`]
        QUERY_SRQ = 52,
        /// [`ObjectReq`] (SRQN) -> -. `BUSY` while QPs use it, which no QP does for good with one
        /// of XRC: a message that has begun there is refused, but for a READ: that is answered, and
        /// answered again, as long as its region is there. Its receives end without a completion;
        /// those made available in a channel before the command are taken before it.
        DESTROY_SRQ = 53,
        /// [`McastReq`] -> -. With `VRDMA_CAP_MULTICAST`, as the next. A member may attach again,
        /// which changes nothing. `INVALID` for a QP that is not UD and an address that is none of
        /// a group, `NO_RESOURCES` beyond a limit.
        ATTACH_MCAST = 56,
        /// [`McastReq`] -> -. `INVALID` if the QP is no member.
        DETACH_MCAST = 57,
        /// [`CmListenReq`] -> [`ObjectResp`] (listener). Of transport iWARP, as the next. `DENIED`
        /// for an address that is not the guest's, `BUSY` if the port is in use.
        CM_LISTEN = 64,
        /// [`ObjectReq`] (listener) -> -. Connections of its that were not accepted end; those of
        /// which the driver was told keep their numbers until it rejects or releases them.
        CM_CLOSE_LISTENER = 65,
        /// [`CmConnectReq`] -> [`ObjectResp`] (connection). How it ends is an event. `DENIED` for
        /// addresses that the guest may not use.
        CM_CONNECT = 66,
        /// [`CmAcceptReq`] -> -. An event tells when the connection is established. `INVALID` if
        /// the peer has gone. See "Connections of iWARP", as for the next.
        CM_ACCEPT = 67,
        /// [`CmRejectReq`] -> -. Its number is free.
        CM_REJECT = 68,
        /// [`ObjectReq`] (QPN) -> -. The connection of a QP ends in order: no request begins any
        /// more, what has begun ends, then the QP goes to ERR, and its peer is told. To end it at
        /// once, the QP is modified to ERR or destroyed.
        CM_DISCONNECT = 69,
        /// [`ObjectReq`] (connection) -> -. Its number is free, and no event tells of it any more.
        /// One that is not over is ended at once.
        CM_RELEASE = 70,
        /// - -> [`CmEventResp`]. What happened next, in order.
        CM_GET_EVENT = 71,
    }
}

open_enum! {
    /// [`RespHeader::status`]. In brackets the errno that drivers make of it.
    pub enum Status: u32 = "VRDMA_STATUS" {
        /// Done.
        OK = 0,
        /// Unknown opcode, or an option this device does not have (EOPNOTSUPP).
        UNSUPPORTED = 1,
        /// A malformed request or a value that is never valid (EINVAL).
        INVALID = 2,
        /// No such object (ENOENT).
        NOT_FOUND = 3,
        /// The object is in use (EBUSY).
        BUSY = 4,
        /// Somebody else's object, or forbidden by the host (EPERM).
        DENIED = 5,
        /// A limit of the device or of this guest's quota is reached (ENOMEM).
        NO_RESOURCES = 6,
        /// A run that is not wholly in guest memory (EFAULT).
        FAULT = 7,
        /// The device failed, it is not the driver's fault (EIO).
        INTERNAL = 8,
        /// More runs than `max_mr_runs` (ENOMEM, as verbs have it for whatever the device has no
        /// room for).
        TOO_LARGE = 9,
    }
}

consts! {
    /// Fixed limits.
    pub mod limit: u32 = "VRDMA" {
        /// Context of the kernel.
        KERNEL_CONTEXT = 0,
        /// In fields that name an optional object: none.
        NONE = 0xffff_ffff,
        /// QPN of the general services QP (QP1).
        GSI_QPN = 1,
        /// Least bytes of a run of a region, but for the first and the last.
        MIN_RUN = 4096,
    }
}

layout! {
    /// Begins each command.
    pub struct ReqHeader = "vrdma_cmd_req" {
        /// `VRDMA_CMD_*`.
        opcode: U16,
        /// Written as zero; refused otherwise.
        reserved: U16,
        /// Number of `struct vrdma_run` behind the request structure; 0 for commands without
        /// memory.
        num_runs: U32,
        /// Returned in the reply; the device gives it no meaning.
        cookie: U64,
    }
}

layout! {
    /// Begins each reply.
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
    /// A run of guest memory. Needs no alignment.
    pub struct Run = "vrdma_run" {
        /// First byte, a guest-physical address.
        addr: U64,
        /// Length in bytes, not 0.
        len: U64,
    }
}

layout! {
    /// Names one object.
    pub struct ObjectReq = "vrdma_object_req" {
        /// Number of the object; the opcode says of which kind.
        object: U32,
        /// Written as zero; refused otherwise.
        reserved: U32,
    }
}

layout! {
    /// Names a new object.
    pub struct ObjectResp = "vrdma_object_resp" {
        /// Number of the object; the opcode says of which kind.
        object: U32,
        /// Written as zero.
        reserved: U32,
    }
}

layout! {
    /// Registers memory. Runs other than the first and the last have at least `VRDMA_MIN_RUN`
    /// bytes.
    pub struct RegMrReq = "vrdma_reg_mr_req" {
        /// Protection domain.
        pdn: U32,
        /// `VRDMA_ACCESS_*`; remote write and atomics need local write too.
        access: U32,
        /// Address by which requests name the first byte; any.
        iova: U64,
        /// Length in bytes, the sum of the runs; `iova + length` is at most 2^64. A region of
        /// length 0 has no runs: it has keys, and no byte can be reached by them.
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
    /// Tells the device where the AH table is: one run, aligned to 64 bytes.
    pub struct AhTableReq = "vrdma_ah_table_req" {
        /// Number of entries (see [`crate::ah`]), at most `max_ah`.
        entries: U32,
        /// Written as zero; refused otherwise.
        reserved: U32,
    }
}
