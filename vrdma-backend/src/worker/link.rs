//! The uplink, and the port that guests see of it.

use crate::port::{Burst, External, Port};
use crate::ratelimit::RateLimit;
use std::time::Duration;
use vrdma_transport as transport;
use vrdma_wire::num::Mtu;

/// The port of all RDMA functions, as guests see it.
#[derive(Debug)]
pub struct PortState {
    /// Whether it leads anywhere. Without an uplink it does: to the other guests.
    pub up: bool,
    /// Largest path MTU that fits its frames.
    pub mtu: Mtu,
    /// Speed in Mb/s: the uplink's.
    pub speed: u32,
}

/// What guests are told where no link says how fast it is: without an uplink, or with one that does
/// not tell.
pub(super) const USUAL_SPEED: u32 = 100_000;

impl Default for PortState {
    fn default() -> PortState {
        PortState { up: true, mtu: Mtu::M4096, speed: USUAL_SPEED }
    }
}

/// A port to the outside, and what the worker keeps of it.
#[derive(Debug)]
pub struct Uplink {
    pub(super) port: Port,
    pub(super) burst: Burst,
    /// When to look at the link again.
    pub(super) link_due: transport::Instant,
    /// Messages about its link.
    pub(super) changes: RateLimit,
    /// Room for a packet.
    pub(super) scratch: Vec<u8>,
    /// Memory that a packet takes with it.
    pub(super) loaned: Vec<External>,
    pub(super) loan_state: LoanState,
}

/// Whether packets take guests' memory with them.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoanState {
    /// They may.
    pub(super) may: bool,
    /// Only memory that the uplink's device was told of.
    pub(super) only_mapped: bool,
    /// Some did.
    pub(super) has_begun: bool,
}

impl Uplink {
    pub(super) fn new(mut port: Port) -> Uplink {
        port.adopt();
        let (may, only_mapped) = (port.capabilities().external, port.dma().is_some());
        let loan_state = LoanState { may, only_mapped, has_begun: false };
        Uplink {
            loan_state,
            port,
            burst: Burst::default(),
            link_due: transport::Instant(0),
            changes: RateLimit::default(),
            scratch: Vec::new(),
            loaned: Vec::new(),
        }
    }

    /// Has memory given back that was loaned to it.
    pub(super) fn reclaim(&mut self) {
        self.port.reclaim();
    }

    /// Whether any memory was loaned to it that may be out still.
    pub(super) fn has_loaned(&self) -> bool {
        self.loan_state.has_begun
    }

    /// It does not give memory back in time: from now on it gets copies.
    pub(super) fn stop_loans(&mut self) {
        if std::mem::take(&mut self.loan_state.may) {
            log::warn!("uplink: its driver keeps memory of guests: from now on packets are copied");
        }
    }

    /// Before a sleep: how long it may be.
    pub fn arm(&mut self) -> Duration {
        self.port.arm()
    }

    /// After it.
    pub fn disarm(&mut self) {
        self.port.disarm();
    }
}
