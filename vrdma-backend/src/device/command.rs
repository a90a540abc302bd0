//! Control commands and what they come to, as types.

use super::ah::AhTable;
use super::moderation::Moderation;
use crate::config::{GuestLimits, Transport};
use crate::memory::MrMemory;
use crate::queue::channel::Channel;
use crate::queue::cq::CqRing;
use crate::tcp::{Doors, Way};
use crate::translate::cm::{Accept, CmEvent, Connect};
use crate::translate::counters::Border;
use crate::translate::port::PortAttr;
use vrdma_transport::{
    Access, AttrMask, Counters, Error, GidEntry, Instant, MwType, QpAttr, QpInit, SrqAttr, SrqInit,
};
use vrdma_wire::num::{Gid, Mac, Mtu, Qpn};

/// A command. Memory in it is resolved, numbers are in the range of their type; whether they name anything is not known yet.
#[derive(Debug)]
#[allow(missing_docs, reason = "commands are documented where their layout is, in abi/src/control.rs")]
pub enum Command {
    QueryDevice,
    QueryPort,
    QueryCounters,
    QueryClock,
    QueryGid { index: u32 },
    AddGid { index: u32, entry: GidEntry },
    DelGid { index: u32 },
    SetPortMtu { mtu: Mtu },
    AllocContext,
    DeallocContext { context: u32 },
    BindChannel { context: u32, channel: Box<Channel> },
    UnbindChannel { queue: u32 },
    AllocPd { context: u32 },
    DeallocPd { pdn: u32 },
    AllocXrcd,
    DeallocXrcd { xrcdn: u32 },
    CreateCq { context: u32, vector: u16, ring: Box<CqRing> },
    ModifyCq { cqn: u32, moderation: Option<Moderation> },
    DestroyCq { cqn: u32 },
    ResizeCq { cqn: u32, held: u32, ring: Box<CqRing> },
    RegMr { pdn: u32, access: Access, iova: u64, length: u64, memory: MrMemory, runs: u64 },
    DeregMr { key: u32 },
    ReregMr { key: u32, pdn: Option<u32>, access: Option<Access>, memory: Option<NewMemory> },
    AllocFastMr { pdn: u32, max_pages: u32 },
    AllocMw { pdn: u32, mw_type: MwType },
    DeallocMw { key: u32 },
    DmaMr { pdn: u32, access: Access },
    CreateQp { init: QpInit },
    ModifyQp { qpn: Qpn, mask: AttrMask, attr: Box<QpAttr> },
    QueryQp { qpn: Qpn },
    DestroyQp { qpn: Qpn },
    SetAhTable { table: AhTable },
    CreateSrq { init: SrqInit },
    ModifySrq { srqn: u32, max_wr: Option<u32>, limit: Option<u32> },
    QuerySrq { srqn: u32 },
    DestroySrq { srqn: u32 },
    AttachMcast { qpn: Qpn, mgid: Gid },
    DetachMcast { qpn: Qpn, mgid: Gid },
    CmListen { doors: Doors, backlog: usize },
    CmCloseListener { listener: u32 },
    CmConnect { way: Way, connect: Box<Connect> },
    CmAccept { accept: Box<Accept> },
    CmReject { connection: u32, private_data: Vec<u8> },
    CmDisconnect { qpn: Qpn },
    CmRelease { connection: u32 },
    CmGetEvent,
}

/// Memory that a region is to have.
#[derive(Debug)]
pub struct NewMemory {
    /// Address by which requests name its first byte.
    pub iova: u64,
    /// Length in bytes.
    pub length: u64,
    /// Where it is.
    pub memory: MrMemory,
    /// Runs of memory that it has, for the quota.
    pub runs: u64,
}

/// What a successful command returns.
#[derive(Debug)]
pub enum Reply {
    /// Nothing but that it succeeded.
    Done,
    /// What the device may have, and its MAC address.
    Device {
        /// The guest's quota.
        limits: Box<GuestLimits>,
        /// From which its GUID is made.
        mac: Mac,
        /// What its connections are made of.
        transport: Transport,
        /// Commands to connect have to say the next hop.
        wants_next_hop: bool,
    },
    /// The port.
    Port(PortAttr),
    /// What was counted, by the engine and at the border to the guest.
    Counters(Box<(Counters, Border)>),
    /// The device's clock.
    Clock(Instant),
    /// An entry of the GID table.
    Gid(GidEntry),
    /// Number of a new object.
    Object(u32),
    /// Key of a new region, local and remote.
    Key(u32),
    /// Attributes of a QP.
    Qp(Box<QpAttr>),
    /// Attributes of a shared receive queue.
    Srq(SrqAttr),
    /// What happened to a connection, if anything.
    CmEvent(Option<Box<CmEvent>>),
}

/// Why a command was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// It may not be; nothing has changed.
    Refused(Error),
    /// The device failed, it is not the driver's fault.
    Internal,
}

impl From<Error> for CommandError {
    fn from(error: Error) -> CommandError {
        CommandError::Refused(error)
    }
}
