//! What a device keeps of its objects.

use super::moderation::{Moderation, Waiting};
use crate::queue::cq::CqRing;
use vrdma_transport::{OwnerId, SrqId};
use vrdma_wire::num::Qpn;

/// A user context.
#[derive(Debug, Default)]
pub(super) struct UserContext {
    /// Channels, PDs, CQs and QPs that belong to it.
    pub objects: u32,
}

/// Whose requests complete at a CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqUser {
    /// Those of a QP.
    Qp(Qpn),
    /// Those of an XRC shared receive queue.
    Srq(SrqId),
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct Cq {
    pub owner: OwnerId,
    /// Completion vector of its events.
    pub vector: u16,
    pub ring: CqRing,
    pub runs: u64,
    /// Who uses it; a QP that does for both directions is there twice.
    pub users: Vec<CqUser>,
    /// New CQEs have not been checked against the arm words,
    pub dirty: bool,
    /// so many.
    pub new: u32,
    /// One of those is solicited or tells of an error.
    pub solicited: bool,
    /// CQEs were published since the last event or second look, without an event.
    pub quiet: bool,
    /// One of those is solicited or tells of an error.
    pub quiet_solicited: bool,
    /// What its events wait for, if they do.
    pub moderation: Option<Moderation>,
    /// Its event that may be waiting.
    pub waiting: Waiting,
    /// It overran, or its memory is gone.
    pub failed: bool,
}
