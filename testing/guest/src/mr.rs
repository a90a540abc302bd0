//! Memory regions.

use crate::control::{Answer, run};
use crate::guest::Guest;
use crate::memory::{Memory, PAGE};
use std::sync::Arc;
use vrdma_abi::control::Run;
use vrdma_verbs::{Remote, Sge};

/// A registered memory region, in one extent or scattered.
#[derive(Clone, Debug)]
pub struct Mr {
    /// Key of the region, both lkey and rkey.
    pub key: u32,
    /// Address of the first byte in requests.
    ///
    /// It differs from the guest-physical address, so that confusing the two fails.
    pub iova: u64,
    /// Length in bytes.
    pub len: u64,
    /// Extents of the region: guest-physical address and length.
    pub runs: Vec<(u64, u64)>,
    guest: Arc<Guest>,
}

impl Mr {
    /// Registers new pages in one extent.
    ///
    /// # Errors
    /// The device refuses.
    pub fn register(guest: &Arc<Guest>, pd: u32, access: u32, len: u64) -> Answer<Mr> {
        let gpa = guest.memory.alloc(len);
        Mr::register_runs(guest, pd, access, 0x7f00_0000_0000 + gpa, &[(gpa, len)])
    }

    /// Registers new pages that are neither contiguous nor ascending.
    ///
    /// The region begins `skip` bytes into its first page.
    ///
    /// # Errors
    /// The device refuses.
    pub fn register_scattered(guest: &Arc<Guest>, pd: u32, access: u32, len: u64, skip: u64) -> Answer<Mr> {
        let pages = (skip + len).div_ceil(PAGE);
        // Every other page, from the last to the first.
        let first = guest.memory.alloc(2 * pages * PAGE);
        let mut runs = Vec::new();
        let mut left = len;
        for page in (0..pages).rev() {
            let skip = if runs.is_empty() { skip } else { 0 };
            let now = left.min(PAGE - skip);
            runs.push((first + 2 * page * PAGE + skip, now));
            left -= now;
        }
        Mr::register_runs(guest, pd, access, 0x7f00_0000_0000 + first + skip, &runs)
    }

    /// Registers memory that the caller has chosen.
    ///
    /// # Errors
    /// The device refuses.
    pub fn register_runs(
        guest: &Arc<Guest>,
        pd: u32,
        access: u32,
        iova: u64,
        runs: &[(u64, u64)],
    ) -> Answer<Mr> {
        let len = runs.iter().map(|(_, len)| len).sum();
        let list: Vec<Run> = runs.iter().map(|&(gpa, len)| run(gpa, len)).collect();
        let keys = guest.reg_mr(pd, access, iova, len, &list)?;
        assert_eq!(keys.lkey, keys.rkey);
        Ok(Mr { key: keys.lkey.get(), iova, len, runs: runs.to_vec(), guest: guest.clone() })
    }

    /// Deregisters the region. Its pages stay allocated.
    ///
    /// # Errors
    /// The device refuses.
    pub fn deregister(&self) -> Answer<()> {
        self.guest.dereg_mr(self.key)
    }

    /// Returns a scatter/gather element of a request.
    #[inline]
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { addr: self.iova + offset, length, lkey: self.key }
    }

    /// Returns the address and rkey for requests of the peer.
    #[inline]
    pub fn remote(&self, offset: u64) -> Remote {
        Remote { addr: self.iova + offset, rkey: self.key }
    }

    /// Returns the guest-physical address of byte `offset`.
    pub fn gpa(&self, offset: u64) -> u64 {
        let mut before = 0;
        for &(gpa, len) in &self.runs {
            if offset < before + len {
                return gpa + offset - before;
            }
            before += len;
        }
        panic!("offset {offset} of {}", self.len);
    }

    /// Returns the memory that the region is part of.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.guest.memory
    }

    /// Copies bytes into the region.
    pub fn put(&self, offset: u64, bytes: &[u8]) {
        self.pieces(offset, bytes.len() as u64, |gpa, range| self.guest.memory.write(gpa, &bytes[range]));
    }

    /// Copies bytes out of the region.
    pub fn get(&self, offset: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.pieces(offset, len, |gpa, range| self.guest.memory.read(gpa, &mut bytes[range]));
        bytes
    }

    /// Sets all bytes of the region.
    pub fn fill(&self, byte: u8) {
        for &(gpa, len) in &self.runs {
            self.guest.memory.fill(gpa, len, byte);
        }
    }

    fn pieces(&self, offset: u64, len: u64, mut each: impl FnMut(u64, std::ops::Range<usize>)) {
        let (mut before, mut done) = (0, 0);
        for &(gpa, run) in &self.runs {
            let at = offset + done;
            if done < len && at < before + run {
                let now = (before + run - at).min(len - done);
                each(gpa + at - before, done as usize..(done + now) as usize);
                done += now;
            }
            before += run;
        }
        assert_eq!(done, len, "inside the region");
    }
}
