//! One guest's RDMA function: its objects, and what its driver may do with them.

pub mod ah;
pub mod command;
pub mod cqe;
mod execute;
mod function;
pub mod outputs;
pub mod remap;
mod table;
pub mod wqe;

use crate::config::GuestConfig;
use crate::memory::GuestMemory;
use crate::queue::cq::CqRing;
use crate::queue::event::EventQueue;
use ah::AhTable;
use std::sync::Arc;
use table::Table;
use vrdma_transport::{DeviceId, OwnerId};
use vrdma_wire::num::Qpn;

pub use execute::Limits;
pub use function::RdmaFunction;

/// What the worker keeps of a guest beside its queue pairs and regions, which the engine has.
#[derive(Debug)]
pub struct Device {
    /// What the host says of the guest.
    pub guest: GuestConfig,
    /// Its number in the engine.
    pub id: DeviceId,
    memory: Arc<GuestMemory>,
    limits: Limits,
    contexts: Table<Context>,
    cqs: Table<Cq>,
    ah_table: Option<AhTable>,
    comp_events: Box<[EventQueue]>,
    async_events: EventQueue,
    /// Runs of memory in use, against the quota.
    runs: u64,
    /// Requests that all queue pairs may have outstanding, against the quota.
    requests: u64,
    /// What happened.
    pub counters: DeviceCounters,
}

#[derive(Debug, Default)]
struct Context {
    /// Channels, PDs, CQs and QPs that belong to it.
    objects: u32,
}

#[derive(Debug)]
struct Cq {
    owner: OwnerId,
    vector: u16,
    ring: CqRing,
    runs: u64,
    /// QPs that use it; one that uses it for both directions is there twice.
    qps: Vec<Qpn>,
    /// New CQEs have not been checked against the arm words.
    dirty: bool,
    /// One of those is solicited or tells of an error.
    solicited: bool,
    /// CQEs were published since the last event or second look, without an event.
    quiet: bool,
    /// One of those is solicited or tells of an error.
    quiet_solicited: bool,
    /// It overran, or its memory is gone.
    failed: bool,
}

/// What happened at the border between guest and device; each answers a question that an operator may ask.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct DeviceCounters {
    /// Requests taken from channels.
    pub requests: u64,
    /// Requests dropped: they named no QP, or one of another context.
    pub stray_requests: u64,
    /// Requests dropped: the QP's state does not allow them.
    pub untimely_requests: u64,
    /// Requests that could not be understood.
    pub invalid_requests: u64,
    /// Datagrams that named no address handle that is in use and makes sense.
    pub bad_address_handles: u64,
    /// QPs that had more outstanding than they may.
    pub overflows: u64,
    /// Channels that broke the rules.
    pub broken_channels: u64,
    /// Completions made.
    pub completions: u64,
    /// CQs that overran.
    pub cq_overruns: u64,
    /// Times that the worker was woken by a kick.
    pub kicks: u64,
    /// Events handed over, or waiting for a buffer.
    pub events: u64,
    /// Control commands answered with success.
    pub commands: u64,
    /// Control commands refused.
    pub refused_commands: u64,
}

/// Objects that exist, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[allow(missing_docs)]
pub struct ObjectCounts {
    pub contexts: u32,
    pub channels: u32,
    pub pds: u32,
    pub cqs: u32,
    pub mrs: u32,
    pub qps: u32,
    pub gids: u32,
    pub ahs: u32,
    pub runs: u64,
    pub pending_requests: u64,
}
