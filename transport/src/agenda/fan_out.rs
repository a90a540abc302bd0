//! Packets from the wire to multicast groups that some members have not received yet.

mod save;

use std::collections::{BTreeMap, VecDeque};
use vrdma_wire::num::Qpn;

/// Most packets of one device that may wait. Each has at most
/// [`MAX_FRAME`](vrdma_wire::roce::MAX_FRAME) bytes.
pub(crate) const MOST: usize = 32;

/// A packet to a multicast group, and which members have received it.
pub(crate) struct FanOut {
    /// The last member that has received it. Members receive it in the order of their QPNs.
    pub(crate) served: Option<Qpn>,
    /// The packet, from the Ethernet header on. It was parsed successfully when it arrived.
    pub(crate) frame: Box<[u8]>,
}

/// All such packets by their members' device. Devices take turns.
#[derive(Default)]
pub(crate) struct FanOuts {
    /// Packets in the order of arrival. No queue is empty.
    waiting: BTreeMap<u32, VecDeque<FanOut>>,
    /// The device that is next, or else the first one after it.
    turn: u32,
}

impl FanOuts {
    /// Adds a packet. Returns false if too many wait.
    pub(crate) fn push(&mut self, device: u32, fan_out: FanOut) -> bool {
        if self.waiting.get(&device).is_some_and(|queue| queue.len() >= MOST) {
            return false;
        }
        self.waiting.entry(device).or_default().push_back(fan_out);
        true
    }

    /// Whether packets wait for a device's members.
    pub(crate) fn waits(&self, device: u32) -> bool {
        self.waiting.contains_key(&device)
    }

    /// Whether any packet waits.
    pub(crate) fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Removes the first packet of the device whose turn it is, and returns both.
    pub(crate) fn take(&mut self) -> Option<(u32, FanOut)> {
        let next = self.waiting.range(self.turn..).next().or_else(|| self.waiting.iter().next());
        let device = *next?.0;
        let queue = self.waiting.get_mut(&device)?;
        let first = queue.pop_front()?;
        if queue.is_empty() {
            self.waiting.remove(&device);
        }
        self.turn = device.wrapping_add(1);
        Some((device, first))
    }

    /// Puts a packet that not all members have received back to the front of its device's queue.
    pub(crate) fn put_back(&mut self, device: u32, fan_out: FanOut) {
        self.waiting.entry(device).or_default().push_front(fan_out);
    }

    /// Removes a device.
    pub(crate) fn forget(&mut self, device: u32) {
        self.waiting.remove(&device);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fan_out(byte: u8) -> FanOut {
        FanOut { served: None, frame: [byte].into() }
    }

    #[test]
    fn devices_take_turns_and_each_has_a_limit() {
        let mut all = FanOuts::default();
        for (device, byte) in [(5, 1), (2, 2), (5, 3), (9, 4)] {
            assert!(all.push(device, fan_out(byte)));
        }
        let mut next = || all.take().map(|(device, first)| (device, first.frame[0]));
        assert_eq!([(); 5].map(|()| next()), [Some((2, 2)), Some((5, 1)), Some((9, 4)), Some((5, 3)), None]);
        for byte in 0..MOST as u8 {
            assert!(all.push(1, fan_out(byte)));
        }
        assert!(!all.push(1, fan_out(99)) && all.push(3, fan_out(100)));
        let (device, first) = all.take().unwrap();
        all.put_back(device, first);
        assert_eq!(all.take().map(|(device, first)| (device, first.frame[0])), Some((3, 100)));
        assert_eq!(all.take().map(|(device, first)| (device, first.frame[0])), Some((1, 0)));
        all.forget(1);
        assert!(!all.any() && !all.waits(1));
    }
}
