//! Address handles.

use crate::control::{Answer, run};
use crate::guest::Guest;
use crate::memory::Memory;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use vrdma_abi::ah::AhEntry;
use vrdma_abi::zerocopy::IntoBytes;

/// The table of address handles of a guest, which the kernel's driver keeps.
#[derive(Debug)]
pub struct AhTable {
    /// Where it lies.
    pub gpa: u64,
    /// Its entries.
    pub entries: u32,
    generation: AtomicU32,
    memory: Arc<Memory>,
}

impl AhTable {
    /// A table in new pages, of which the device is told.
    ///
    /// # Errors
    /// The device refuses.
    pub fn new(guest: &Arc<Guest>, entries: u32) -> Answer<AhTable> {
        let len = u64::from(entries) * AhEntry::SIZE as u64;
        let gpa = guest.memory.alloc(len);
        guest.set_ah_table(entries, &[run(gpa, len)])?;
        Ok(AhTable { gpa, entries, generation: AtomicU32::new(1), memory: guest.memory.clone() })
    }

    /// Writes an entry as a driver does; its `valid` is set here.
    pub fn put(&self, index: u32, entry: &AhEntry) {
        assert!(index < self.entries);
        let at = self.gpa + u64::from(index) * AhEntry::SIZE as u64;
        self.remove(index);
        fence(Ordering::SeqCst);
        self.memory.write(at + 4, &entry.as_bytes()[4..]);
        let generation = self.generation.fetch_add(1, Ordering::Relaxed);
        self.memory.word32(at).store(generation.to_le(), Ordering::Release);
    }

    /// Empties an entry.
    pub fn remove(&self, index: u32) {
        let at = self.gpa + u64::from(index) * AhEntry::SIZE as u64;
        self.memory.word32(at).store(0, Ordering::Release);
    }
}

/// An entry of PD `pdn` that leads to a GID from GID 0.
pub fn entry(pdn: u32, dgid: [u8; 16]) -> AhEntry {
    AhEntry {
        pdn: pdn.into(),
        dgid,
        // As daemon::guest_config() gives them to those whose GIDs are guest::gid()'s.
        dmac: [0x52, 0x54, 0, 0, 0, dgid[15]],
        vlan: 0xffff.into(),
        hop_limit: 64,
        ..AhEntry::default()
    }
}
