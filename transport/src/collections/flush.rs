//! Requests that end without being executed.
//!
//! Requests of QPs that go to ERR or SQE are flushed. Requests of QPs that are reset or destroyed
//! are dropped. Many requests end in slices, because all devices wait meanwhile.

use crate::base::qp_ref::QpRef;
use crate::collections::pool::List;
use std::collections::VecDeque;
use vrdma_wire::num::Qpn;

/// Most requests that are flushed or dropped from one call of [`Engine::poll`](crate::Engine::poll)
/// to the next.
pub(crate) const FLUSHED: usize = 256;
/// Most requests of one device that are flushed or dropped before the next device has its turn.
pub(crate) const TURN: usize = 64;

/// The requests of a QP that are still to be flushed, sends first. They have left the QP's queues.
#[derive(Default)]
pub(crate) struct Flush {
    pub(crate) sends: List,
    pub(crate) receives: List,
    /// The receive because of which the QP went to ERR, and how many receives are before it.
    pub(crate) broken: Option<(u32, u32)>,
}

impl Flush {
    /// Returns the number of receives that are left.
    pub(crate) fn num_receives(&self) -> u32 {
        self.receives.len() + u32::from(self.broken.is_some())
    }

    /// Whether nothing is left.
    pub(crate) fn is_over(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty() && self.broken.is_none()
    }
}

/// QPs and devices that wait for their next slice.
pub(crate) struct Flushes {
    /// QPs with a [`Flush`], each at least once. Indexed by device.
    pub(crate) devices: Vec<VecDeque<Qpn>>,
    /// Devices with work, in the order of their turns.
    pub(crate) round: VecDeque<u32>,
    /// How many requests may still end before the next [`Engine::poll`](crate::Engine::poll).
    pub(crate) left: usize,
}

impl Default for Flushes {
    fn default() -> Flushes {
        Flushes { devices: Vec::new(), round: VecDeque::new(), left: FLUSHED }
    }
}

impl Flushes {
    /// Schedules a QP with a [`Flush`], and its device.
    pub(crate) fn push(&mut self, place: QpRef) {
        let index = place.device as usize;
        if index >= self.devices.len() {
            self.devices.resize_with(index + 1, VecDeque::new);
        }
        self.devices[index].push_back(place.qpn);
        self.list(place.device);
    }

    /// Adds a device to the round if it is not in it.
    pub(crate) fn list(&mut self, device: u32) {
        if !self.round.contains(&device) {
            self.round.push_back(device);
        }
    }

    /// Whether any device has work.
    pub(crate) fn any(&self) -> bool {
        !self.round.is_empty()
    }

    /// Removes a device and its QPs.
    pub(crate) fn forget(&mut self, device: u32) {
        self.round.retain(|&other| other != device);
        if let Some(qpns) = self.devices.get_mut(device as usize) {
            *qpns = VecDeque::new();
        }
    }
}
