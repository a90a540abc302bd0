//! Shared receive queues with receives for waiting senders.
//!
//! Each call of [`Engine::poll`](crate::Engine::poll) wakes some of the senders. There may be many,
//! and all devices wait meanwhile.

use crate::base::id::SrqId;
use std::collections::VecDeque;

/// Most waiting senders that one call of [`Engine::poll`](crate::Engine::poll) handles.
pub(crate) const WOKEN: usize = 64;
/// Most waiting senders of one queue that are handled before the next queue has its turn.
pub(crate) const TURN: usize = 16;

/// Queues with senders to wake. Devices take turns, and so do the queues of each device.
#[derive(Default)]
pub(crate) struct Wakes {
    /// The queues of each device, by the device's index. A queue knows whether it is listed, and is
    /// in here once.
    devices: Vec<VecDeque<SrqId>>,
    /// Devices with queues, in the order of their turns.
    round: VecDeque<u32>,
    /// Number of queues of all devices.
    entries: usize,
}

impl Wakes {
    /// Adds a queue behind the others of its device.
    pub(crate) fn push(&mut self, device: u32, srq: SrqId) {
        let index = device as usize;
        if index >= self.devices.len() {
            self.devices.resize_with(index + 1, VecDeque::new);
        }
        let queues = &mut self.devices[index];
        if queues.is_empty() {
            self.round.push_back(device);
        }
        queues.push_back(srq);
        self.entries += 1;
    }

    /// Removes the queue whose turn it is, and returns it with its device. The queue may have been
    /// destroyed.
    pub(crate) fn pop(&mut self) -> Option<(u32, SrqId)> {
        let device = self.round.pop_front()?;
        let queues = &mut self.devices[device as usize];
        let srq = queues.pop_front().expect("a device in the round has a queue");
        if !queues.is_empty() {
            self.round.push_back(device);
        }
        self.entries -= 1;
        Some((device, srq))
    }

    /// Returns the number of queues.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// Whether there are any queues.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.entries > 0
    }

    /// Removes a device and its queues.
    pub(crate) fn forget(&mut self, device: u32) {
        self.round.retain(|&other| other != device);
        if let Some(queues) = self.devices.get_mut(device as usize) {
            self.entries -= queues.len();
            *queues = VecDeque::new();
        }
    }

    /// Returns all queues: devices in the order of their turns, each with its queues in order.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (u32, &VecDeque<SrqId>)> {
        self.round.iter().map(|&device| (device, &self.devices[device as usize]))
    }
}
