//! The memory of a guest, and how its driver accesses it.

use crate::memory::{GuestMemory, RegionSpec};
use crate::queue::VirtqueueSetup;
use rustix::fs::MemfdFlags;
use std::cell::RefCell;
use std::fmt::Display;
use std::fs::File;
use std::sync::Arc;
use vm_memory::{Bytes, GuestAddress};

/// Regions, each in a file of its own: two adjacent ones, a gap, and a third one.
const REGIONS: [(u64, u64); 3] = [(0, 0x4000), (0x4000, 0x4000), (0x10000, 0x1000)];
/// The maximum number of guests.
const GUESTS: usize = 3;
/// The address of guest-physical address 0 in the front-end's address space.
pub const FRONT_END: u64 = 1 << 40;

/// The memory of one guest.
///
/// It is mapped once for a whole run of the fuzzer, which allows thousands of executions per
/// second.
#[derive(Clone)]
pub struct Ram {
    pub memory: Arc<GuestMemory>,
    /// The memory without the middle region, which a front-end may announce later.
    pub less: Arc<GuestMemory>,
    files: Arc<[File; 3]>,
}

thread_local! {
    static RAMS: RefCell<Vec<Ram>> = const { RefCell::new(Vec::new()) };
}

impl Ram {
    /// Returns the memory of a guest, zeroed.
    pub fn of(guest: usize) -> Ram {
        let ram = RAMS.with_borrow_mut(|rams| {
            if rams.is_empty() {
                rams.extend((0..GUESTS).map(|_| Ram::new()));
            }
            rams[guest].clone()
        });
        for (gpa, len) in REGIONS {
            ram.write(gpa, &[0; 0x4000][..len as usize]);
        }
        ram
    }

    fn new() -> Ram {
        let files = REGIONS.map(|(_, len)| {
            let file = File::from(rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd"));
            file.set_len(len).expect("a small file");
            file
        });
        let map = |wanted: &[usize]| {
            let spec = |&index: &usize| RegionSpec {
                gpa: REGIONS[index].0,
                len: REGIONS[index].1,
                front_end_addr: FRONT_END + REGIONS[index].0,
                file_offset: 0,
                file: files[index].try_clone().expect("a descriptor"),
            };
            let specs = wanted.iter().map(spec).collect();
            Arc::new(GuestMemory::default().map_anew(specs).expect("regions that fit"))
        };
        let (memory, less) = (map(&[0, 1, 2]), map(&[0, 2]));
        Ram { memory, less, files: Arc::new(files) }
    }

    /// Returns the first address, the length and the file of a region.
    pub fn region(&self, index: usize) -> (u64, u64, &File) {
        (REGIONS[index].0, REGIONS[index].1, &self.files[index])
    }

    /// Writes bytes where there is memory.
    pub fn write(&self, gpa: u64, bytes: &[u8]) {
        let _ = self.memory.mmap().write(bytes, GuestAddress(gpa));
    }

    /// Reads bytes where there is memory; the rest is zero.
    pub fn read<const N: usize>(&self, gpa: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.read_to(gpa, &mut bytes);
        bytes
    }

    pub fn read_to(&self, gpa: u64, bytes: &mut [u8]) {
        let _ = self.memory.mmap().read(bytes, GuestAddress(gpa));
    }

    pub fn put16(&self, gpa: u64, value: u16) {
        self.write(gpa, &value.to_le_bytes());
    }

    pub fn get16(&self, gpa: u64) -> u16 {
        u16::from_le_bytes(self.read(gpa))
    }

    pub fn get32(&self, gpa: u64) -> u32 {
        u32::from_le_bytes(self.read(gpa))
    }

    /// Returns a copy of all of it.
    pub fn image(&self) -> Image {
        Image(REGIONS.map(|(gpa, len)| {
            let mut bytes = vec![0; len as usize];
            self.read_to(gpa, &mut bytes);
            bytes
        }))
    }

    /// Panics if anything differs from `before`, except in the allowed ranges (address, length).
    pub fn assert_same_but(&self, before: &Image, allowed: &[(u64, u64)], what: impl Display) {
        let now = self.image();
        for ((base, _), (was, is)) in REGIONS.iter().zip(before.0.iter().zip(&now.0)) {
            if was == is {
                continue;
            }
            // Whole regions are compared. The fuzzer instruments each comparison of a byte in a
            // loop, which would take all of its time.
            let mut expected = was.clone();
            for &(from, len) in allowed {
                let place = |gpa: u64| (gpa.saturating_sub(*base) as usize).min(is.len());
                let range = place(from)..place(from + len);
                expected[range.clone()].copy_from_slice(&is[range]);
            }
            if expected != *is {
                let at = (0..is.len()).find(|&at| expected[at] != is[at]).expect("they differ");
                panic!("{what} changed {:#x} from {:#x} to {:#x}", base + at as u64, was[at], is[at]);
            }
        }
    }
}

/// A copy of a guest's memory.
pub struct Image([Vec<u8>; 3]);

/// A virtqueue, as its driver sees it.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    pub index: u16,
    pub size: u16,
    pub desc: u64,
    pub avail: u64,
    pub used: u64,
    pub event_idx: bool,
}

/// Descriptor flags (virtio 1.2, 2.7.5).
pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

impl Ring {
    /// Returns a virtqueue of up to 16 entries at `base`.
    ///
    /// Descriptors are at `base`, the available ring at 0x100 after it, and the used ring at 0x180.
    pub fn at(index: u16, size: u16, base: u64) -> Ring {
        Ring { index, size, desc: base, avail: base + 0x100, used: base + 0x180, event_idx: true }
    }

    pub fn setup(&self) -> VirtqueueSetup {
        let Ring { index, size, desc, avail, used, event_idx } = *self;
        VirtqueueSetup { index, size, desc, avail, used, event_idx, kick: None, call: None }
    }

    /// Returns the first address and the length of the used ring.
    pub fn used_part(&self) -> (u64, u64) {
        (self.used, 6 + 8 * u64::from(self.size))
    }

    pub fn put_descriptor(&self, ram: &Ram, index: u16, (gpa, len, flags, next): (u64, u32, u16, u16)) {
        ram.write(self.desc + 16 * u64::from(index), &descriptor(gpa, len, flags, next));
    }

    /// Makes a chain available.
    pub fn offer(&self, ram: &Ram, head: u16) {
        let index = ram.get16(self.avail + 2);
        ram.put16(self.avail + 4 + 2 * u64::from(index % self.size), head);
        ram.put16(self.avail + 2, index.wrapping_add(1));
    }

    pub fn avail_idx(&self, ram: &Ram) -> u16 {
        ram.get16(self.avail + 2)
    }

    pub fn used_idx(&self, ram: &Ram) -> u16 {
        ram.get16(self.used + 2)
    }

    /// Returns head and length of the used entry with this free-running index.
    pub fn used_entry(&self, ram: &Ram, index: u16) -> (u32, u32) {
        let at = self.used + 4 + 8 * u64::from(index % self.size);
        (ram.get32(at), ram.get32(at + 4))
    }
}

/// Returns a descriptor as it is in memory.
pub fn descriptor(gpa: u64, len: u32, flags: u16, next: u16) -> [u8; 16] {
    let words = u128::from(gpa) | u128::from(len) << 64 | u128::from(flags) << 96 | u128::from(next) << 112;
    words.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn what_changed_where_nothing_may_is_found() {
        let ram = Ram::of(0);
        let (first, length) = REGIONS[0];
        let end = first + length;
        // One range extends into the next region, and one is empty.
        let allowed = [(end - 8, 0x1000), (first + 16, 4), (first + 64, 0)];
        let holds = |at: u64| {
            let before = ram.image();
            ram.write(at, &[!ram.read::<1>(at)[0]]);
            catch_unwind(AssertUnwindSafe(|| ram.assert_same_but(&before, &allowed, "a test"))).is_ok()
        };
        for (at, may) in [(15, false), (16, true), (19, true), (20, false), (64, false)] {
            assert_eq!(holds(first + at), may, "{at}");
        }
        let places = [end - 9, end - 8, end - 1, end, end + 0xff7, end + 0xff8];
        assert_eq!(places.map(holds), [false, true, true, true, true, false]);
    }
}
