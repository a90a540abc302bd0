//! Shared receive queues with receives for senders that wait: some are woken in each call of
//! [`Engine::poll`](crate::Engine::poll), for there may be many, and all devices wait meanwhile.

use crate::base::id::SrqId;
use std::collections::VecDeque;

/// Waiting senders that one call of [`Engine::poll`](crate::Engine::poll) attends to,
pub(crate) const WOKEN: usize = 64;
/// and those of one queue before the next has its turn.
pub(crate) const TURN: usize = 16;

/// Queues that are to be attended to. Devices take turns, and the queues of each.
#[derive(Default)]
pub(crate) struct Wakes {
    /// By the device's index: its queues, each once, which knows that it is listed.
    devices: Vec<VecDeque<SrqId>>,
    /// Devices with queues, in the order of their turns.
    round: VecDeque<u32>,
    /// Queues of all devices.
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

    /// Takes the queue whose turn it is, and its device; it may have been destroyed.
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

    /// How many queues there are.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// Whether there are any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.entries > 0
    }

    /// Forgets a device.
    pub(crate) fn forget(&mut self, device: u32) {
        self.round.retain(|&other| other != device);
        if let Some(queues) = self.devices.get_mut(device as usize) {
            self.entries -= queues.len();
            *queues = VecDeque::new();
        }
    }

    /// All queues: devices in the order of their turns, and the queues of each.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (u32, &VecDeque<SrqId>)> {
        self.round.iter().map(|&device| (device, &self.devices[device as usize]))
    }
}
