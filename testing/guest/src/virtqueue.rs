//! A minimal driver of a split virtqueue, for the control and event queues.

use crate::ring::{NEXT, Ring, WRITE};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};
use vmm_sys_util::eventfd::EventFd;

/// A buffer of a chain.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Guest-physical address.
    pub gpa: u64,
    /// Length in bytes.
    pub len: u32,
    /// Whether the device writes the buffer.
    pub writable: bool,
}

/// The driver's end of a virtqueue.
#[derive(Debug)]
pub struct Virtqueue {
    ring: Ring,
    kick: Arc<EventFd>,
    call: Arc<EventFd>,
    event_idx: bool,
    free: Vec<u16>,
    /// The descriptors of each chain, by the chain's head.
    chains: Vec<Vec<u16>>,
    next_avail: u16,
    next_used: u16,
}

impl Virtqueue {
    /// Creates the driver's end of a clear queue.
    pub fn new(ring: Ring, kick: Arc<EventFd>, call: Arc<EventFd>, event_idx: bool) -> Virtqueue {
        let (free, chains) = ((0..ring.size).rev().collect(), vec![Vec::new(); ring.size.into()]);
        Virtqueue { ring, kick, call, event_idx, free, chains, next_avail: 0, next_used: 0 }
    }

    /// Lets a clear queue begin at an index, as if it had been in use for long.
    pub fn start_at(&mut self, index: u16) {
        (self.next_avail, self.next_used) = (index, index);
        self.ring.set_avail_idx(index);
        self.ring.memory.word16(self.ring.used + 2).store(index.to_le(), Ordering::SeqCst);
    }

    /// Returns the queue's ring in memory.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Makes a chain available, and kicks if the device asks for kicks.
    ///
    /// Returns the chain's head, or `None` if there is no room.
    pub fn add(&mut self, pieces: &[Piece]) -> Option<u16> {
        let head = self.prepare(pieces)?;
        self.ring.set_avail_idx(self.next_avail);
        fence(Ordering::SeqCst);
        let wanted = if self.event_idx {
            self.ring.avail_event() == self.next_avail.wrapping_sub(1)
        } else {
            self.ring.used_flags() & 1 == 0
        };
        if wanted {
            self.kick();
        }
        Some(head)
    }

    /// Prepares a chain without publishing the available index, which becomes
    /// [`Virtqueue::next_avail`].
    ///
    /// Returns the chain's head, or `None` if there is no room.
    pub fn prepare(&mut self, pieces: &[Piece]) -> Option<u16> {
        if pieces.is_empty() || pieces.len() > self.free.len() {
            return None;
        }
        let chain = self.free.split_off(self.free.len() - pieces.len());
        for (i, piece) in pieces.iter().enumerate() {
            let next = chain.get(i + 1).copied();
            let flags = if piece.writable { WRITE } else { 0 } | if next.is_some() { NEXT } else { 0 };
            self.ring.set_desc(chain[i], piece.gpa, piece.len, flags, next.unwrap_or(0));
        }
        let head = chain[0];
        self.chains[usize::from(head)] = chain;
        self.ring.set_avail_entry(self.next_avail, head);
        self.next_avail = self.next_avail.wrapping_add(1);
        Some(head)
    }

    /// Kicks the device.
    pub fn kick(&self) {
        self.kick.write(1).expect("the counter is not full");
    }

    /// Takes the next used chain: its head, and how many bytes the device wrote.
    pub fn take_used(&mut self) -> Option<(u16, u32)> {
        if self.ring.used_idx() == self.next_used {
            return None;
        }
        let (head, len) = self.ring.used_entry(self.next_used);
        self.next_used = self.next_used.wrapping_add(1);
        let head = u16::try_from(head).expect("the head of a chain");
        let chain = std::mem::take(&mut self.chains[usize::from(head)]);
        assert!(!chain.is_empty(), "chain {head} was used but is not available");
        self.free.extend(chain.into_iter().rev());
        Some((head, len))
    }

    /// Waits for the next used chain, or returns `None` when `time` is over.
    ///
    /// It sleeps meanwhile: only an interrupt wakes it.
    pub fn wait_used(&mut self, time: Duration) -> Option<(u16, u32)> {
        let start = Instant::now();
        loop {
            if let Some(used) = self.take_used() {
                return Some(used);
            }
            if self.event_idx {
                self.ring.set_used_event(self.next_used);
            }
            fence(Ordering::SeqCst);
            if self.ring.used_idx() != self.next_used {
                continue;
            }
            let left = time.checked_sub(start.elapsed())?;
            if readable(&*self.call, left) {
                // Another thread may have read the eventfd first. Then there is nothing to read,
                // and nothing is lost.
                let _ = self.call.read();
            }
        }
    }

    /// Returns the next available index, which is one past the last entry.
    pub fn next_avail(&self) -> u16 {
        self.next_avail
    }
}

/// Sleeps until `fd` is readable. Returns false if `time` is over first.
pub fn readable(fd: &impl AsRawFd, time: Duration) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let millis = time.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&raw mut poll, 1, millis) > 0 }
}
