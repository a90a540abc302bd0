//! The registered memory of a reference peer.

use crate::memory::Mem;
use vrdma_transport::{Access, Region, Sge};

/// All regions of a peer. Their keys are for local and remote use.
#[derive(Default)]
pub struct Regions(Vec<Registered>);

struct Registered {
    iova: u64,
    access: Access,
    memory: Mem,
}

/// The low byte of each key.
const TAG: u32 = 0x5a;

impl Regions {
    /// Adds a region. Returns its key.
    pub fn add(&mut self, access: Access, iova: u64, memory: Mem) -> u32 {
        self.0.push(Registered { iova, access, memory });
        (self.0.len() as u32) << 8 | TAG
    }

    /// Returns the memory of a range, and the offset there, if the key allows the access.
    pub fn find(&self, key: u32, va: u64, length: u64, right: Access) -> Option<(&Mem, u64)> {
        let index = (key >> 8).checked_sub(1).filter(|_| key & 0xff == TAG)?;
        let region = self.0.get(index as usize)?;
        let offset = va.checked_sub(region.iova)?;
        let fits = offset.checked_add(length)? <= region.memory.len() as u64;
        (fits && region.access.contains(right)).then_some((&region.memory, offset))
    }

    pub fn read(&self, key: u32, va: u64, length: usize, right: Access) -> Option<Vec<u8>> {
        if length == 0 {
            return Some(Vec::new());
        }
        let (memory, offset) = self.find(key, va, length as u64, right)?;
        Some(memory.bytes(offset as usize, length))
    }

    pub fn write(&self, key: u32, va: u64, bytes: &[u8], right: Access) -> Option<()> {
        if bytes.is_empty() {
            return Some(());
        }
        let (memory, offset) = self.find(key, va, bytes.len() as u64, right)?;
        memory.write(offset, bytes).ok()
    }

    /// Reads `length` bytes of a list of elements, from offset `from` on.
    pub fn gather(&self, sges: &[Sge], from: u32, length: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for (sge, skipped, taken) in pieces(sges, from, length) {
            bytes.extend(self.read(sge.lkey.0, sge.addr + skipped, taken, Access::NONE)?);
        }
        (bytes.len() == length).then_some(bytes)
    }

    /// Writes to a list of elements, from offset `from` on.
    pub fn scatter(&self, sges: &[Sge], from: u32, bytes: &[u8]) -> Option<()> {
        let mut rest = bytes;
        for (sge, skipped, taken) in pieces(sges, from, bytes.len()) {
            let (now, later) = rest.split_at(taken);
            self.write(sge.lkey.0, sge.addr + skipped, now, Access::LOCAL_WRITE)?;
            rest = later;
        }
        rest.is_empty().then_some(())
    }
}

/// Returns the elements of a part of a list, each with the bytes that are skipped and taken.
fn pieces(sges: &[Sge], from: u32, length: usize) -> Vec<(&Sge, u64, usize)> {
    let (mut skip, mut rest, mut pieces) = (from as usize, length, Vec::new());
    for sge in sges {
        let skipped = skip.min(sge.length as usize);
        let taken = (sge.length as usize - skipped).min(rest);
        skip -= skipped;
        rest -= taken;
        if taken > 0 {
            pieces.push((sge, skipped as u64, taken));
        }
    }
    pieces
}

/// Returns the length of a list of elements.
pub fn length(sges: &[Sge]) -> u32 {
    sges.iter().map(|sge| sge.length).sum()
}
