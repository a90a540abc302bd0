//! Packets from the wire to multicast groups that not all members have had yet.

mod save;

use std::collections::{BTreeMap, VecDeque};
use vrdma_wire::num::Qpn;

/// Packets of one device that may wait, each of at most [`MAX_FRAME`](vrdma_wire::roce::MAX_FRAME)
/// bytes.
pub(crate) const MOST: usize = 32;

/// A packet, and which members of its group have had it.
pub(crate) struct FanOut {
    /// The last of them; they get it in the order of their numbers.
    pub(crate) served: Option<Qpn>,
    /// The packet, from the Ethernet header on; it was parsed when it came.
    pub(crate) frame: Box<[u8]>,
}

/// All such packets, by their members' devices, which take turns.
#[derive(Default)]
pub(crate) struct FanOuts {
    /// In the order in which they came; no queue is empty.
    waiting: BTreeMap<u32, VecDeque<FanOut>>,
    /// Whose turn is next, or that of the first after it.
    turn: u32,
}

impl FanOuts {
    /// A further packet; false if too many wait.
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

    /// Whether there is anything to do.
    pub(crate) fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the first packet of the device whose turn it is.
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

    /// Members are still to have a packet that was taken: it is its device's first again.
    pub(crate) fn put_back(&mut self, device: u32, fan_out: FanOut) {
        self.waiting.entry(device).or_default().push_front(fan_out);
    }

    /// A device has no members any more.
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
