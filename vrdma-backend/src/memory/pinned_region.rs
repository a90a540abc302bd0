//! Pinned ranges of regions, from which engines of other workers copy.
//!
//! The holder keeps the memory mapped, and asks before each copy whether it still may. A guest may
//! reuse memory once its request has ended, so the pin ends then. If the request succeeded, the
//! memory was copied before. Before any other end is reported, all pins of the device are revoked
//! ([`PinGate::revoke`](super::PinGate::revoke)). A holder then finds the memory gone. To
//! its connection this looks like a lost packet.

use super::gate::PinGate;
use super::region::{Stretch, piece_of};
use super::{GuestMemory, HostExtent, MrMemory, copy::copy, reap};
use crate::cycles::{self, Stage};
use std::sync::Arc;
use vrdma_transport::{Fault, PinnedRegion};

/// A pinned range of a region.
#[derive(Debug)]
pub struct Pinned {
    stretch: Stretch,
    len: u32,
    /// Generation of the gate at the time of pinning.
    number: u64,
    gate: Arc<PinGate>,
    /// Keeps the range mapped.
    _memory: Arc<GuestMemory>,
}

impl MrMemory {
    /// Pins a range for an engine of another worker, until it is dropped or the gate's pins are
    /// revoked.
    ///
    /// `None` if the range does not exist, if [`MrMemory::may_pin`] is false, or if the gate
    /// refuses.
    pub fn pin(&self, offset: u64, len: u32, gate: &Arc<PinGate>) -> Option<Pinned> {
        let (stretch, memory) = self.stretch(offset, len)?;
        Some(Pinned { stretch, len, number: gate.pin()?, gate: gate.clone(), _memory: memory })
    }
}

impl Pinned {
    /// Returns its length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns the piece at `offset`, at most `len` bytes.
    fn piece(&self, offset: u64, len: u64) -> Result<HostExtent, Fault> {
        match &self.stretch {
            Stretch::One(ptr) => {
                // SAFETY: `copy_to` has checked that this is within the range.
                Ok(HostExtent { ptr: unsafe { ptr.add(offset as usize) }, len })
            }
            Stretch::Many(extents, first) => piece_of(extents, first + offset, len),
        }
    }
}

impl PinnedRegion<MrMemory> for Pinned {
    fn copy_to(&self, offset: u64, dst: &MrMemory, dst_offset: u64, len: u64) -> Result<(), Fault> {
        if offset.checked_add(len).is_none_or(|end| end > self.len.into()) {
            return Err(Fault);
        }
        let _mark = cycles::enter(Stage::Copy);
        let copied = self.gate.copying(self.number, || {
            #[cfg(feature = "hooks")]
            crate::hooks::copies();
            let mut done = 0;
            while done < len {
                let from = self.piece(offset + done, len - done)?;
                let to = dst.piece(dst_offset.checked_add(done).ok_or(Fault)?, from.len)?;
                // SAFETY: `from` and `to` are mapped for `to.len` bytes, which is at most
                // `from.len`. `_memory` keeps the one mapped, and `dst` the other.
                unsafe { copy(from.ptr, to.ptr, to.len as usize) };
                done += to.len;
            }
            Ok(())
        });
        copied.unwrap_or(Err(Fault))
    }

    fn is_there(&self) -> bool {
        self.gate.copying(self.number, || ()).is_some()
    }
}

/// The reaper drops lists of more pieces than this.
const MANY: usize = 1024;

impl Drop for Pinned {
    fn drop(&mut self) {
        // Mostly the region still holds the list.
        if let Stretch::Many(extents, _) = &self.stretch
            && extents.len() > MANY
            && Arc::strong_count(extents) == 1
        {
            reap(std::mem::replace(&mut self.stretch, Stretch::One(std::ptr::null_mut())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Extent;
    use super::super::tests::memory;
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use vrdma_transport::Region;

    fn region(memory: &Arc<GuestMemory>, extents: &[(u64, u64)]) -> MrMemory {
        let extents: Vec<_> = extents.iter().map(|&(gpa, len)| Extent { gpa, len }).collect();
        MrMemory::new(memory, &extents).unwrap()
    }

    #[test]
    fn what_was_lent_is_copied_once_more_though_its_region_is_gone() {
        for extents in [&[(0x1000, 0x1000)][..], &[(0x3000, 5), (0x100, 1), (0x2000, 0xffa)]] {
            let (from, to) = (memory(&[(0, 0x4000)]), memory(&[(0, 0x4000)]));
            let (source, target) = (region(&from, extents), region(&to, &[(0x2000, 3), (0x1000, 0x100)]));
            let data: Vec<u8> = (0..100).collect();
            source.write(2, &data).unwrap();
            let gate = Arc::default();
            let pinned = source.pin(2, 100, &gate).unwrap();
            assert!(source.pin(0xfff, 2, &gate).is_none() && source.pin(u64::MAX, 2, &gate).is_none());
            drop((source, from));
            pinned.copy_to(10, &target, 1, 90).unwrap();
            let mut found = [0; 90];
            target.read(1, &mut found).unwrap();
            assert_eq!(found, data[10..]);
            assert_eq!(pinned.copy_to(10, &target, 0, 91), Err(Fault), "no more than was pinned");
            assert_eq!(pinned.copy_to(0, &target, 0x100, 4), Err(Fault), "nothing beyond its target");
        }
    }

    #[test]
    fn what_is_not_its_guest_s_to_lend_is_not_lent() {
        let memory = memory(&[(0, 0x4000)]);
        let gate = Arc::default();
        assert!(MrMemory::all(&memory).pin(0, 16, &gate).is_none());
        assert!(MrMemory::pages(&memory, 4).pin(0, 16, &gate).is_none());
    }

    #[test]
    fn what_was_taken_back_is_not_copied_and_what_is_lent_then_is() {
        let memory = memory(&[(0, 0x4000)]);
        let (source, target) = (region(&memory, &[(0, 0x100)]), region(&memory, &[(0x1000, 0x100)]));
        source.write(0, &[7; 0x100]).unwrap();
        let gate = Arc::default();
        let (first, second) =
            (source.pin(0, 0x100, &gate).unwrap(), source.pin(0, 0x100, &Arc::default()).unwrap());
        assert!(first.is_there());
        assert!(gate.revoke());
        assert!(!first.is_there() && second.is_there(), "another device's stay");
        assert_eq!(first.copy_to(0, &target, 0, 0x100), Err(Fault));
        let mut found = [1; 0x100];
        target.read(0, &mut found).unwrap();
        assert_eq!(found, [0; 0x100]);
        let third = source.pin(0, 0x100, &gate).unwrap();
        assert_eq!((third.copy_to(0, &target, 0, 0x100), first.is_there()), (Ok(()), false));
    }

    #[test]
    fn who_takes_loans_back_waits_for_a_copy_in_progress() {
        let gate = Arc::new(PinGate::default());
        let number = gate.pin().unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let (copied, done) = (Arc::new(AtomicBool::new(false)), gate.clone());
        let seen = copied.clone();
        let copier = std::thread::spawn(move || {
            done.copying(number, || {
                begun.send(()).unwrap();
                may_go_on.recv().unwrap();
                copied.store(true, Ordering::Relaxed);
            })
        });
        has_begun.recv().unwrap();
        let receiver = std::thread::spawn(move || gate.revoke() && seen.load(Ordering::Relaxed));
        go_on.send(()).unwrap();
        assert!(receiver.join().unwrap(), "the copy was over");
        assert_eq!(copier.join().unwrap(), Some(()));
    }

    #[test]
    fn who_takes_loans_back_does_not_wait_for_ever_and_lends_nothing_while_they_are_used() {
        let gate = Arc::new(PinGate::default());
        let number = gate.pin().unwrap();
        let ((begun, has_begun), (go_on, may_go_on)) = (mpsc::channel(), mpsc::channel::<()>());
        let its = gate.clone();
        let copier = std::thread::spawn(move || {
            its.copying(number, || {
                begun.send(()).unwrap();
                may_go_on.recv().unwrap();
            })
        });
        has_begun.recv().unwrap();
        assert!(!gate.revoke() && !gate.revoke());
        assert_eq!((gate.pin(), gate.copying(number, || ())), (None, None));
        go_on.send(()).unwrap();
        assert_eq!(copier.join().unwrap(), Some(()));
        assert!(gate.revoke());
        assert_ne!(gate.pin().unwrap(), number);
    }

    #[test]
    fn a_copy_that_panics_is_waited_for_by_nobody() {
        let gate = PinGate::default();
        let number = gate.pin().unwrap();
        let copy = std::panic::AssertUnwindSafe(|| gate.copying(number, || panic!("on purpose")));
        assert!(std::panic::catch_unwind(copy).is_err());
        assert!(gate.revoke());
    }
}
