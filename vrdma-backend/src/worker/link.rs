//! The uplink, and the port that guests see of it.

use crate::port::{Burst, External, Port};
use crate::ratelimit::RateLimit;
use std::time::Duration;
use vrdma_transport as transport;
use vrdma_wire::num::Mtu;

/// The port of all RDMA functions, as guests see it.
#[derive(Debug)]
pub struct PortState {
    /// Whether it is up. Without an uplink it is, because it leads to the other guests.
    pub up: bool,
    /// The largest path MTU that fits its frames.
    pub mtu: Mtu,
    /// The uplink's speed, in Mb/s.
    pub speed: u32,
}

/// The speed that guests see if no link reports one, in Mb/s.
///
/// There may be no uplink, or its driver does not report a speed.
pub(super) const USUAL_SPEED: u32 = 100_000;

impl Default for PortState {
    fn default() -> PortState {
        PortState { up: true, mtu: Mtu::M4096, speed: USUAL_SPEED }
    }
}

/// A port to other hosts, with the worker's state for it.
#[derive(Debug)]
pub struct Uplink {
    pub(super) port: Port,
    pub(super) burst: Burst,
    /// When the link is to be checked again.
    pub(super) link_due: transport::Instant,
    /// Limits log messages about its link.
    pub(super) changes: RateLimit,
    /// Scratch space for a packet.
    pub(super) scratch: Vec<u8>,
    /// External memory for the packet at hand.
    pub(super) pinned: Vec<External>,
    pub(super) pin_state: LoanState,
}

/// Whether packets carry guests' memory without a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoanState {
    /// Whether they may.
    pub(super) may: bool,
    /// Whether they may carry only memory that is mapped for the uplink's device.
    pub(super) only_mapped: bool,
    /// Whether any packet did.
    pub(super) has_begun: bool,
}

impl Uplink {
    pub(super) fn new(mut port: Port) -> Uplink {
        port.adopt();
        let (may, only_mapped) = (port.capabilities().external, port.dma().is_some());
        let pin_state = LoanState { may, only_mapped, has_begun: false };
        Uplink {
            pin_state,
            port,
            burst: Burst::default(),
            link_due: transport::Instant(0),
            changes: RateLimit::default(),
            scratch: Vec::new(),
            pinned: Vec::new(),
        }
    }

    /// Has the uplink release guests' memory.
    pub(super) fn reclaim(&mut self) {
        self.port.reclaim();
    }

    /// Whether any guest's memory was passed to the uplink, and may still be there.
    pub(super) fn has_pinned(&self) -> bool {
        self.pin_state.has_begun
    }

    /// Makes packets copies from here on, because the driver does not release memory in time.
    pub(super) fn stop_pinning(&mut self) {
        if std::mem::take(&mut self.pin_state.may) {
            log::warn!("uplink: its driver keeps memory of guests: from now on packets are copied");
        }
    }

    /// Prepares for a sleep, and returns how long it may last.
    pub fn arm(&mut self) -> Duration {
        self.port.arm()
    }

    /// Returns when the next frame is due that the driver holds back, from now.
    pub fn held(&self) -> Option<Duration> {
        self.port.held()
    }

    /// Ends the preparations for a sleep.
    pub fn disarm(&mut self) {
        self.port.disarm();
    }
}
