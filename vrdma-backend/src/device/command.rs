//! Control commands and replies, as types: what a command means once its bytes are understood.

use super::ah::AhTable;
use crate::memory::MrMemory;
use crate::queue::channel::Channel;
use crate::queue::cq::CqRing;
use vrdma_abi::control::{ObjectResp, QpAttr, QueryDeviceResp, QueryGidResp, QueryPortResp, RegMrResp};
use vrdma_abi::zerocopy::IntoBytes;
use vrdma_transport as transport;
use vrdma_wire::num::{Mtu, Qpn};

/// A command. Memory in it is resolved, numbers are in the range of their type; whether they name anything is not known yet.
#[derive(Debug)]
#[allow(missing_docs)] // The commands are documented where their layout is: vrdma_abi::control.
pub enum Command {
    QueryDevice,
    QueryPort,
    QueryGid { index: u32 },
    AddGid { index: u32, entry: transport::GidEntry },
    DelGid { index: u32 },
    SetPortMtu { mtu: Mtu },
    AllocContext,
    DeallocContext { context: u32 },
    BindChannel { context: u32, channel: Box<Channel> },
    UnbindChannel { queue: u32 },
    AllocPd { context: u32 },
    DeallocPd { pdn: u32 },
    CreateCq { context: u32, vector: u16, ring: Box<CqRing> },
    DestroyCq { cqn: u32 },
    RegMr { pdn: u32, access: transport::Access, iova: u64, length: u64, memory: MrMemory, runs: u64 },
    DeregMr { key: u32 },
    DmaMr { pdn: u32, access: transport::Access },
    CreateQp { context: u32, init: transport::QpInit },
    ModifyQp { qpn: Qpn, mask: transport::AttrMask, attr: Box<transport::QpAttr> },
    QueryQp { qpn: Qpn },
    DestroyQp { qpn: Qpn },
    SetAhTable { table: AhTable },
}

/// What a successful command returns.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Reply {
    Done,
    Device(QueryDeviceResp),
    Port(QueryPortResp),
    Gid(QueryGidResp),
    Object(ObjectResp),
    Keys(RegMrResp),
    Qp(QpAttr),
}

impl Reply {
    /// The reply structure as it goes to the guest.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Reply::Done => &[],
            Reply::Device(resp) => resp.as_bytes(),
            Reply::Port(resp) => resp.as_bytes(),
            Reply::Gid(resp) => resp.as_bytes(),
            Reply::Object(resp) => resp.as_bytes(),
            Reply::Keys(resp) => resp.as_bytes(),
            Reply::Qp(resp) => resp.as_bytes(),
        }
    }

    /// Names a new object. CQs and QPs have reply structures of the same shape.
    pub fn object(number: u32) -> Reply {
        Reply::Object(ObjectResp { object: number.into(), reserved: 0.into() })
    }
}
