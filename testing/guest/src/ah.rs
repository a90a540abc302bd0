//! Address handles.

use crate::control::{Answer, run};
use crate::guest::Guest;
use crate::memory::Memory;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use vrdma_abi::ah::AhEntry;
use vrdma_abi::zerocopy::IntoBytes;

/// The guest kernel's table of address handles.
#[derive(Debug)]
pub struct AhTable {
    /// Guest-physical address of the table.
    pub gpa: u64,
    /// Number of entries.
    pub entries: u32,
    generation: AtomicU32,
    memory: Arc<Memory>,
}

impl AhTable {
    /// Allocates a table in new pages and reports it to the device.
    ///
    /// # Errors
    /// The device refuses the table.
    pub fn new(guest: &Arc<Guest>, entries: u32) -> Answer<AhTable> {
        let len = u64::from(entries) * AhEntry::SIZE as u64;
        let gpa = guest.memory.alloc(len);
        guest.set_ah_table(entries, &[run(gpa, len)])?;
        Ok(AhTable { gpa, entries, generation: AtomicU32::new(1), memory: guest.memory.clone() })
    }

    /// Writes an entry as a driver does.
    ///
    /// This function sets `valid`, to a new generation each time, and stores it last.
    pub fn put(&self, index: u32, entry: &AhEntry) {
        assert!(index < self.entries);
        let at = self.gpa + u64::from(index) * AhEntry::SIZE as u64;
        self.remove(index);
        fence(Ordering::SeqCst);
        self.memory.write(at + 4, &entry.as_bytes()[4..]);
        let generation = self.generation.fetch_add(1, Ordering::Relaxed);
        self.memory.word32(at).store(generation.to_le(), Ordering::Release);
    }

    /// Invalidates an entry.
    pub fn remove(&self, index: u32) {
        let at = self.gpa + u64::from(index) * AhEntry::SIZE as u64;
        self.memory.word32(at).store(0, Ordering::Release);
    }
}

/// Returns an entry of PD `pdn` whose destination is `dgid` and whose source is GID index 0.
pub fn entry(pdn: u32, dgid: [u8; 16]) -> AhEntry {
    AhEntry {
        pdn: pdn.into(),
        dgid,
        // The MAC addresses that `daemon::guest_config()` gives to guests with GIDs of
        // `guest::gid()`.
        dmac: [0x52, 0x54, 0, 0, 0, dgid[15]],
        vlan: 0xffff.into(),
        hop_limit: 64,
        ..AhEntry::default()
    }
}
