//! The objects of a device.

use super::moderation::{Moderation, Waiting};
use crate::queue::cq::CqRing;
use vrdma_transport::{OwnerId, SrqId};
use vrdma_wire::num::Qpn;

/// A user context.
#[derive(Debug, Default)]
pub(super) struct UserContext {
    /// Number of channels, PDs, CQs, QPs and shared receive queues that belong to it.
    pub objects: u32,
}

/// A user of a CQ, whose requests complete there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqUser {
    /// A QP.
    Qp(Qpn),
    /// An XRC shared receive queue.
    Srq(SrqId),
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct Cq {
    pub owner: OwnerId,
    /// Completion vector of its events.
    pub vector: u16,
    pub ring: CqRing,
    pub extents: u64,
    /// The users. A QP that uses the CQ in both directions is listed twice.
    pub users: Vec<CqUser>,
    /// New CQEs have not been checked against the arm words.
    pub dirty: bool,
    /// Number of these CQEs.
    pub new: u32,
    /// One of these CQEs is solicited or reports an error.
    pub solicited: bool,
    /// CQEs were published since the last event or second look, without an event.
    pub quiet: bool,
    /// One of these CQEs is solicited or reports an error.
    pub quiet_solicited: bool,
    /// The moderation of its events, if any.
    pub moderation: Option<Moderation>,
    /// Its event, which may be waiting.
    pub waiting: Waiting,
    /// It overran, or its memory is gone.
    pub failed: bool,
}
