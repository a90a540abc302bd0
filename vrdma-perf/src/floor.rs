//! The *ring floor*: a bare split virtqueue and CQ ring between two threads. Any device of this
//! kind needs at least this time.

use crate::helper::Helper;
use crate::load::Load;
use anyhow::Result;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use vrdma_guest::memory::Memory;
use vrdma_guest::ring::Ring;
use vrdma_guest::verbs::{Channel, ChannelParts, Cq, CqLayout, Data, Remote, Request, Sge, Tag};

/// A minimal device. It takes each request out of the ring, copies its payload, and publishes its
/// completion, without any check.
///
/// Addresses in requests are those of this process. The device runs on a helper, from
/// [`Floor::begin`] to [`Floor::end`].
#[derive(Debug)]
pub struct Floor {
    channel: Channel<fn()>,
    cq: Cq,
    from: Sge,
    to: Remote,
    depth: u32,
    posted: u32,
    done: u32,
    stop: Arc<AtomicBool>,
    device: Arc<Mutex<Device>>,
    _memory: Arc<Memory>,
}

/// The state of the device's thread.
#[derive(Debug)]
struct Device {
    words: Words,
    /// Numbers of requests taken, and of completions made.
    taken: u16,
    made: u32,
}

/// The addresses of the ring's words.
#[derive(Debug)]
struct Words {
    avail_idx: *const AtomicU16,
    avail: *const AtomicU16,
    used_idx: *const AtomicU16,
    used: *const AtomicU32,
    slots: *const u64,
    cqes: *const AtomicU64,
    entries: u16,
    cq_entries: u32,
}

// SAFETY: the pointers lead to memory that `Floor` keeps until the device has stopped.
unsafe impl Send for Words {}

impl Floor {
    /// Creates the floor with rings of `entries` entries in `memory`. Requests have `len` bytes,
    /// and `depth` of them are outstanding.
    pub fn new(memory: &Arc<Memory>, entries: u16, len: u32, depth: u32) -> Floor {
        let ring = Ring::new(memory, entries);
        let slots = memory.alloc(64 * u64::from(entries));
        let layout = CqLayout::for_entries(u32::from(entries) * 2).expect("a possible size");
        let cq = memory.alloc(layout.size() as u64);
        let host = |gpa| memory.host(gpa, 64);
        let words = Words {
            avail_idx: memory.word16(ring.avail + 2),
            avail: memory.word16(ring.avail + 4),
            used_idx: memory.word16(ring.used + 2),
            used: memory.word32(ring.used + 4),
            slots: host(slots).as_ptr().cast(),
            cqes: memory.word64(cq),
            entries,
            cq_entries: layout.entries(),
        };
        let parts = ChannelParts {
            lists: false,
            avail: host(ring.avail),
            used: host(ring.used),
            slots: host(slots).cast(),
            entries,
            // Without EVENT_IDX, the driver reads the flag that asks for no kick.
            event_idx: false,
            doorbell: never as fn(),
        };
        memory.word16(ring.used).store(1, Ordering::Relaxed);
        // SAFETY: these are fresh pages that are kept with the value. Only the channel and the
        // device use them.
        let channel = unsafe { Channel::new(parts) }.expect("pages are aligned");
        // SAFETY: these are fresh pages that are kept with the value. Only the CQ and the device
        // use them.
        let cq = unsafe { Cq::new(host(cq), layout) }.expect("pages are aligned");
        let room = u64::from(len).max(8);
        let [from, to] = [memory.alloc(room), memory.alloc(room)]
            .map(|gpa| memory.host(gpa, room).as_ptr().expose_provenance() as u64);
        Floor {
            channel,
            cq,
            from: Sge { addr: from, length: len, lkey: 0 },
            to: Remote { addr: to, rkey: 0 },
            // The device checks no consumer index, so the depth must leave room for all
            // completions.
            depth: depth.min(entries.into()),
            posted: 0,
            done: 0,
            stop: Arc::default(),
            device: Arc::new(Mutex::new(Device { words, taken: 0, made: 0 })),
            _memory: memory.clone(),
        }
    }

    /// Starts the device.
    pub fn begin(&self, helper: &Helper) {
        let (device, stop) = (self.device.clone(), self.stop.clone());
        stop.store(false, Ordering::Relaxed);
        helper.begin(move || {
            // SAFETY: the words belong to the value, which waits for the device before it is
            // dropped. The requests are those of `post()`.
            unsafe { device.lock().expect("no panic with it").serve(&stop) };
            0.
        });
    }

    /// Stops the device.
    pub fn end(&self, helper: &Helper) {
        self.stop.store(true, Ordering::Relaxed);
        helper.end();
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The device holds the lock while it runs. If the lock is poisoned, the device does not
        // run.
        drop(self.device.lock());
    }
}

impl Load for Floor {
    #[inline]
    fn post(&mut self) -> bool {
        if self.outstanding() >= self.depth {
            return false;
        }
        let own = [self.from];
        let tag = Tag { qpn: 1, wqe_id: self.posted };
        let room = self.channel.push(&Request::write(tag, self.to, Data::Sges(&own)).signaled(true)).is_ok();
        self.posted = self.posted.wrapping_add(room.into());
        room
    }

    #[inline]
    fn ring(&mut self) {
        self.channel.ring();
    }

    #[inline]
    fn poll(&mut self) -> Result<u32> {
        let done = self.cq.poll_batch(self.depth as usize, |_| ()) as u32;
        self.done = self.done.wrapping_add(done);
        Ok(done)
    }

    #[inline]
    fn idle(&mut self) -> Result<()> {
        std::hint::spin_loop();
        Ok(())
    }

    #[inline]
    fn outstanding(&self) -> u32 {
        self.posted.wrapping_sub(self.done)
    }
}

fn never() {
    panic!("nobody asked for a kick");
}

impl Device {
    /// Serves requests until `stop`.
    ///
    /// # Safety
    /// The words are those of living rings with these numbers of entries. Each request is signaled
    /// and has one 64-byte unit. It copies one element to a remote address, and both are in this
    /// process.
    unsafe fn serve(&mut self, stop: &AtomicBool) {
        let words = &self.words;
        let (mut taken, mut made) = (self.taken, self.made);
        // SAFETY: this function's contract covers all accesses.
        unsafe {
            while !stop.load(Ordering::Relaxed) {
                let available = (*words.avail_idx).load(Ordering::Acquire);
                if available == taken {
                    std::hint::spin_loop();
                    continue;
                }
                while taken != available {
                    let position = usize::from(taken & (words.entries - 1));
                    let slot = (*words.avail.add(position)).load(Ordering::Relaxed);
                    let request = words.slots.add(8 * usize::from(slot)).cast::<[u64; 8]>().read_volatile();
                    (*words.used.add(2 * position)).store(slot.into(), Ordering::Relaxed);
                    (*words.used.add(2 * position + 1)).store(0, Ordering::Relaxed);
                    taken = taken.wrapping_add(1);
                    let (to, from, len) = (request[2], request[4], request[5] & 0xffff_ffff);
                    copy(from as *const u8, to as *mut u8, len as usize);
                    let cqe = words.cqes.add(4 * (made & (words.cq_entries - 1)) as usize);
                    let phase = u64::from(made & words.cq_entries == 0) << 56;
                    let ids = request[1] & 0xffff_ffff | request[0] & 0xffff_ffff << 32;
                    (*cqe).store(ids, Ordering::Relaxed);
                    (*cqe.add(1)).store(0, Ordering::Relaxed);
                    (*cqe.add(2)).store(0, Ordering::Relaxed);
                    (*cqe.add(3)).store(phase, Ordering::Release);
                    made = made.wrapping_add(1);
                }
                (*words.used_idx).store(taken, Ordering::Release);
            }
        }
        (self.taken, self.made) = (taken, made);
    }
}

/// Copies the payload.
///
/// # Safety
/// `len` bytes at `from` are readable, and `len` bytes at `to` are writable.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: `len` bytes are readable and writable (this function's contract). The two do not
    // overlap, because the buffers of a `Floor` are separate.
    unsafe {
        if len == 8 {
            to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned());
        } else {
            std::ptr::copy_nonoverlapping(from, to, len);
        }
    }
}
