//! A split virtqueue in guest memory, word by word. Nothing here enforces the rules of virtio.

use crate::memory::{Memory, PAGE};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Descriptor flag: another descriptor follows.
pub const NEXT: u16 = 1;
/// Descriptor flag: the device writes the buffer.
pub const WRITE: u16 = 2;
/// Descriptor flag: the buffer is a table of descriptors.
pub const INDIRECT: u16 = 4;

/// The addresses of a virtqueue's parts in guest memory.
#[derive(Clone, Debug)]
pub struct Ring {
    /// The guest's memory.
    pub memory: Arc<Memory>,
    /// Number of entries.
    pub size: u16,
    /// Guest-physical address of the descriptor table.
    pub desc: u64,
    /// Guest-physical address of the available ring.
    pub avail: u64,
    /// Guest-physical address of the used ring.
    pub used: u64,
}

impl Ring {
    /// Allocates a virtqueue in new pages.
    ///
    /// The descriptor table has pages of its own, as for channels.
    pub fn new(memory: &Arc<Memory>, size: u16) -> Ring {
        let desc = memory.alloc(16 * u64::from(size));
        let avail_len = (6 + 2 * u64::from(size)).next_multiple_of(64);
        let avail = memory.alloc(avail_len + 6 + 8 * u64::from(size));
        Ring { memory: memory.clone(), size, desc, avail, used: avail + avail_len }
    }

    /// Zeroes the whole virtqueue, as a driver does before it starts the queue.
    pub fn clear(&self) {
        self.memory.fill(self.desc, 16 * u64::from(self.size), 0);
        let end = self.used + 6 + 8 * u64::from(self.size);
        self.memory.fill(self.avail, end - self.avail, 0);
    }

    /// Zeroes the available and the used ring.
    pub fn clear_indices(&self) {
        let end = self.used + 6 + 8 * u64::from(self.size);
        self.memory.fill(self.avail, end - self.avail, 0);
    }

    /// Returns the pages of both rings, which a process would map: address and length.
    ///
    /// They do not include the descriptor table.
    pub fn mapped_pages(&self) -> (u64, u64) {
        (self.avail, (self.used + 6 + 8 * u64::from(self.size) - self.avail).next_multiple_of(PAGE))
    }

    /// Writes a descriptor.
    pub fn set_desc(&self, index: u16, addr: u64, len: u32, flags: u16, next: u16) {
        let at = self.desc + 16 * u64::from(index);
        let rest = u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48;
        self.memory.word64(at).store(addr.to_le(), Ordering::Relaxed);
        self.memory.word64(at + 8).store(rest.to_le(), Ordering::Relaxed);
    }

    /// Writes the available ring's entry for the free-running index `index`.
    pub fn set_avail_entry(&self, index: u16, head: u16) {
        let at = self.avail + 4 + 2 * u64::from(index & (self.size - 1));
        self.memory.word16(at).store(head.to_le(), Ordering::Relaxed);
    }

    /// Publishes the available index.
    pub fn set_avail_idx(&self, index: u16) {
        self.memory.word16(self.avail + 2).store(index.to_le(), Ordering::SeqCst);
    }

    /// Returns the available index.
    pub fn avail_idx(&self) -> u16 {
        u16::from_le(self.memory.word16(self.avail + 2).load(Ordering::SeqCst))
    }

    /// Writes `avail.flags`.
    pub fn set_avail_flags(&self, flags: u16) {
        self.memory.word16(self.avail).store(flags.to_le(), Ordering::SeqCst);
    }

    /// Writes `used_event`, at the end of the available ring.
    pub fn set_used_event(&self, index: u16) {
        let at = self.avail + 4 + 2 * u64::from(self.size);
        self.memory.word16(at).store(index.to_le(), Ordering::SeqCst);
    }

    /// Returns the used index.
    pub fn used_idx(&self) -> u16 {
        u16::from_le(self.memory.word16(self.used + 2).load(Ordering::SeqCst))
    }

    /// Returns `used.flags`.
    pub fn used_flags(&self) -> u16 {
        u16::from_le(self.memory.word16(self.used).load(Ordering::SeqCst))
    }

    /// Returns the used ring's entry for the free-running index `index`: head and length.
    pub fn used_entry(&self, index: u16) -> (u32, u32) {
        let at = self.used + 4 + 8 * u64::from(index & (self.size - 1));
        let word = |at| u32::from_le(self.memory.word32(at).load(Ordering::Acquire));
        (word(at), word(at + 4))
    }

    /// Returns `avail_event`, at the end of the used ring.
    pub fn avail_event(&self) -> u16 {
        let at = self.used + 4 + 8 * u64::from(self.size);
        u16::from_le(self.memory.word16(at).load(Ordering::SeqCst))
    }
}
