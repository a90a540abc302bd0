//! Memory of packets that came ahead of gaps: who has how much of it, and who gives it back first.
//!
//! The limits are those of a device and of the engine. If one is reached, the oldest buffer of the
//! device gives way, or the oldest of the device that has most. So the peers of one guest cannot
//! keep the packets of another guest from being held.

use crate::base::qp_ref::QpRef;
use crate::objects::roce::reorder::Held;
use crate::save::Violation;
use std::collections::{BTreeMap, BTreeSet};
use vrdma_wire::num::Qpn;

/// Most bytes that the QPs of a device hold.
pub(crate) const DEVICE_BYTES: u64 = 8 << 20;
/// Most bytes that the QPs of all devices hold.
pub(crate) const ENGINE_BYTES: u64 = 64 << 20;

/// What the QPs of a device hold.
#[derive(Default)]
struct OfDevice {
    held: Held,
    /// QPs that hold packets, in the order in which they began.
    line: BTreeMap<u64, Qpn>,
}

/// What the QPs of all devices hold.
#[derive(Default)]
pub(crate) struct ReorderMemory {
    /// By the device's index.
    devices: Vec<OfDevice>,
    /// Devices by the bytes that they hold, without those that hold nothing.
    order: BTreeSet<(u64, u32)>,
    /// Sum of all devices.
    bytes: u64,
    /// Number of the last place in a line.
    last: u64,
}

/// Numbers in records are below this. So no engine comes to the last number.
const NUMBERS: u64 = 1 << 63;

impl ReorderMemory {
    /// Returns what the QPs of a device hold.
    pub(crate) fn of_device(&self, device: u32) -> Held {
        self.devices.get(device as usize).map_or(Held::default(), |it| it.held)
    }

    /// Whether a QP of the device may hold this many bytes more.
    pub(crate) fn has_room(&self, device: u32, bytes: u64) -> bool {
        self.of_device(device).bytes + bytes <= DEVICE_BYTES && self.bytes + bytes <= ENGINE_BYTES
    }

    /// Returns the QP that is to give back what it holds, so that the QP `asks` may hold more.
    ///
    /// There is none if the device that has to give way is that of `asks`, and no other QP of it
    /// holds anything.
    pub(crate) fn victim(&self, asks: QpRef, bytes: u64) -> Option<QpRef> {
        let device = match self.of_device(asks.device).bytes + bytes > DEVICE_BYTES {
            true => asks.device,
            false => self.order.last()?.1,
        };
        let line = &self.devices.get(device as usize)?.line;
        line.values().map(|&qpn| QpRef { device, qpn }).find(|&place| place != asks)
    }

    /// Records that a QP that held `before` holds `after`. `number` is that of its place in the
    /// line, and is updated.
    pub(crate) fn changed(&mut self, place: QpRef, number: &mut u64, before: Held, after: Held) {
        if before == after {
            return;
        }
        let index = place.device as usize;
        if index >= self.devices.len() {
            self.devices.resize_with(index + 1, OfDevice::default);
        }
        let OfDevice { held, line } = &mut self.devices[index];
        self.order.remove(&(held.bytes, place.device));
        held.packets = held.packets - before.packets + after.packets;
        held.bytes = held.bytes - before.bytes + after.bytes;
        if held.bytes > 0 {
            self.order.insert((held.bytes, place.device));
        }
        self.bytes = self.bytes - before.bytes + after.bytes;
        if before.packets == 0 {
            self.last += 1;
            *number = self.last;
            line.insert(self.last, place.qpn);
        } else if after.packets == 0 {
            line.remove(number);
            *number = 0;
        }
    }

    /// Whether a device holds what its QPs hold.
    pub(crate) fn is_sum(&self, device: u32, of_qps: impl Iterator<Item = Held>) -> bool {
        let (mut sum, mut count) = (Held::default(), 0);
        for held in of_qps.filter(|held| held.packets > 0) {
            sum = Held { packets: sum.packets + held.packets, bytes: sum.bytes + held.bytes };
            count += 1;
        }
        let line = self.devices.get(device as usize).map_or(0, |it| it.line.len());
        self.of_device(device) == sum && line == count
    }

    /// Records what a restored QP holds.
    pub(crate) fn restored(&mut self, place: QpRef, number: u64, held: Held) -> Result<(), Violation> {
        if held.packets == 0 {
            return Ok(());
        }
        if number == 0 || number >= NUMBERS || !self.has_room(place.device, held.bytes) {
            return Err(Violation::Frame);
        }
        let last = self.last;
        self.changed(place, &mut 0, Held::default(), held);
        let line = &mut self.devices[place.device as usize].line;
        line.remove(&self.last);
        self.last = last.max(number);
        match line.insert(number, place.qpn) {
            None => Ok(()),
            Some(_) => Err(Violation::Frame),
        }
    }

    /// Forgets a device, whose QPs are gone.
    pub(crate) fn forget(&mut self, device: u32) {
        if let Some(it) = self.devices.get_mut(device as usize) {
            self.bytes -= it.held.bytes;
            self.order.remove(&(it.held.bytes, device));
            *it = OfDevice::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(device: u32, qpn: u32) -> QpRef {
        QpRef { device, qpn: Qpn::new(qpn).unwrap() }
    }

    fn held(bytes: u64) -> Held {
        Held { packets: 1, bytes }
    }

    #[test]
    fn who_holds_most_and_has_no_other_buffer_gets_no_room() {
        let mut memory = ReorderMemory::default();
        assert_eq!(memory.victim(place(0, 2), 1), None);
        let mut number = 0;
        memory.changed(place(0, 2), &mut number, Held::default(), held(9));
        assert_eq!(memory.victim(place(0, 2), 1), None);
        assert_eq!(memory.victim(place(0, 3), 1), Some(place(0, 2)));
        memory.changed(place(0, 2), &mut number, held(9), Held::default());
        assert!(memory.order.is_empty() && memory.devices[0].line.is_empty());
    }

    #[test]
    fn numbers_of_records_leave_room_for_more() {
        for (number, done) in
            [(0, false), (1, true), (NUMBERS - 1, true), (NUMBERS, false), (u64::MAX, false)]
        {
            let mut memory = ReorderMemory::default();
            assert_eq!(memory.restored(place(0, 2), number, held(9)).is_ok(), done, "{number}");
        }
    }

    #[test]
    fn the_oldest_gives_way_in_a_full_device_and_the_largest_device_in_a_full_engine() {
        let mut memory = ReorderMemory::default();
        let mut numbers = BTreeMap::new();
        for device in 0..8 {
            for qpn in 2..10 {
                let number = numbers.entry((device, qpn)).or_insert(0);
                assert!(memory.has_room(device, 1 << 20));
                memory.changed(place(device, qpn), number, Held::default(), held(1 << 20));
            }
            assert!(!memory.has_room(device, 1));
            assert_eq!(memory.victim(place(device, 20), 1), Some(place(device, 2)));
            assert_eq!(memory.victim(place(device, 2), 1), Some(place(device, 3)), "not who asks");
        }
        let number = numbers.get_mut(&(3, 2)).unwrap();
        memory.changed(place(3, 2), number, held(1 << 20), held(1));
        assert_eq!(memory.victim(place(9, 2), 1 << 20), Some(place(7, 2)), "of those that have most");
        memory.forget(7);
        assert!(memory.has_room(9, 1 << 20) && memory.of_device(7) == Held::default());
        assert_eq!(memory.victim(place(9, 2), 1), Some(place(6, 2)));
    }
}
