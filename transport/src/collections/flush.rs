//! Requests that end without being carried out: those of QPs that go to ERR or SQE are flushed,
//! those of QPs that are reset or destroyed dropped. If they are many, some at a time, for all
//! devices wait meanwhile.

use crate::base::place::Place;
use crate::collections::pool::List;
use std::collections::VecDeque;
use vrdma_wire::num::Qpn;

/// Requests that end in this way from one call of [`Engine::poll`](crate::Engine::poll) to the
/// next,
pub(crate) const FLUSHED: usize = 256;
/// and those of one device before the next has its turn.
pub(crate) const TURN: usize = 64;

/// What of a QP is still to be flushed, the sends first. It has left the QP's queues.
#[derive(Default)]
pub(crate) struct Flush {
    pub(crate) sends: List,
    pub(crate) receives: List,
    /// The receive because of which the QP went to ERR, and how many are before it.
    pub(crate) broken: Option<(u32, u32)>,
}

impl Flush {
    /// Receives that are left.
    pub(crate) fn num_receives(&self) -> u32 {
        self.receives.len() + u32::from(self.broken.is_some())
    }

    /// Nothing is left.
    pub(crate) fn is_over(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty() && self.broken.is_none()
    }
}

/// What waits for its slice, by device.
pub(crate) struct Flushes {
    /// By the device's index: QPs with a [`Flush`], each at least once.
    pub(crate) devices: Vec<VecDeque<Qpn>>,
    /// Devices with something to do, in the order of their turns.
    pub(crate) round: VecDeque<u32>,
    /// Requests that may still end before the next [`Engine::poll`](crate::Engine::poll).
    pub(crate) left: usize,
}

impl Default for Flushes {
    fn default() -> Flushes {
        Flushes { devices: Vec::new(), round: VecDeque::new(), left: FLUSHED }
    }
}

impl Flushes {
    /// Gives a QP its slices.
    pub(crate) fn push(&mut self, place: Place) {
        let index = place.device as usize;
        if index >= self.devices.len() {
            self.devices.resize_with(index + 1, VecDeque::new);
        }
        self.devices[index].push_back(place.qpn);
        self.list(place.device);
    }

    /// Gives a device its turns.
    pub(crate) fn list(&mut self, device: u32) {
        if !self.round.contains(&device) {
            self.round.push_back(device);
        }
    }

    /// Whether anything is left to do.
    pub(crate) fn any(&self) -> bool {
        !self.round.is_empty()
    }

    /// Forgets a device.
    pub(crate) fn forget(&mut self, device: u32) {
        self.round.retain(|&other| other != device);
        if let Some(qpns) = self.devices.get_mut(device as usize) {
            *qpns = VecDeque::new();
        }
    }
}
