//! Packet buffers (mbufs) and their pools.

use super::eal::{Eal, last_error};
use crate::port::{External, Offload};
use anyhow::{Context, Result};
use dpdk_sys as dpdk;
use std::ffi::CString;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many buffers each thread caches, so that it need not ask the pool each time.
const CACHE: u32 = 256;

/// A pool of mbufs. It is never freed, because drivers may keep its mbufs until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct MbufPool {
    raw: NonNull<dpdk::rte_mempool>,
    room: u16,
}

// SAFETY: any thread may use a mempool, unless its flags restrict that. Our pools have no such
// flags.
unsafe impl Send for MbufPool {}

/// A chain of mbufs that is ours alone.
#[derive(Debug)]
pub struct Mbuf {
    raw: NonNull<dpdk::rte_mbuf>,
    /// Data of the first mbuf of the chain.
    data: *mut u8,
    len: u16,
    /// The number of bytes from `data` on that belong to the first mbuf.
    room: u16,
    /// The number of mbufs in the chain.
    segments: u16,
}

// SAFETY: it holds the only pointer to its mbufs. Any thread may use and free them.
unsafe impl Send for Mbuf {}

impl MbufPool {
    /// Creates a pool of at least `count` mbufs, each with room for `room` bytes.
    pub fn new(eal: Eal, count: u32, room: u16) -> Result<MbufPool> {
        MbufPool::made(eal, count, room, false)
    }

    /// Creates a pool whose mbufs are contiguous in memory, as the driver of XDP sockets needs.
    pub fn packed(eal: Eal, count: u32, room: u16) -> Result<MbufPool> {
        MbufPool::made(eal, count, room, true)
    }

    fn made(_eal: Eal, count: u32, room: u16, packed: bool) -> Result<MbufPool> {
        // Names are unique in a process. DPDK frees the memory only when the process ends, so a
        // number suffices.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("vrdma{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let name = CString::new(name).expect("no zero in it");
        let data_room = room.checked_add(dpdk::RTE_PKTMBUF_HEADROOM as u16).context("frames are too long")?;
        // SAFETY: plain calls. The EAL runs (`_eal`). The name is copied.
        let raw = unsafe {
            // A mempool uses its memory best with 2^n - 1 elements.
            let count = (count + 1).next_power_of_two() - 1;
            let private = dpdk::shim_ext_shared_info_size().next_multiple_of(8) as u16;
            let (name, cache) = (name.as_ptr(), CACHE.min(count / 4));
            match packed {
                true => dpdk::shim_packed_pool_create(name, count, cache, private, data_room),
                false => dpdk::rte_pktmbuf_pool_create(name, count, cache, private, data_room, -1),
            }
        };
        let raw = NonNull::new(raw).ok_or_else(last_error).with_context(|| {
            format!(
                "no memory for {count} packet buffers of {room} bytes: give EAL more (--eal '-m MEGABYTES', or more hugepages)"
            )
        })?;
        Ok(MbufPool { raw, room })
    }

    /// Takes back buffers that a driver had posted for receiving before it was closed.
    ///
    /// The caller is the thread that used the driver. No other thread took buffers of the pool.
    pub fn recover(&self) {
        // SAFETY: the pool lives. No driver has it any more, and only the calling thread takes its
        // buffers. Frames that somebody still has are not empty.
        let count = unsafe { dpdk::shim_pool_recover(self.raw.as_ptr()) };
        log::debug!("{count} packet buffers were taken back from a driver that is gone");
    }

    /// Returns DPDK's pointer to the pool.
    pub fn as_ptr(self) -> *mut dpdk::rte_mempool {
        self.raw.as_ptr()
    }

    /// Returns the number of free mbufs. This is slow.
    pub fn available(self) -> u32 {
        // SAFETY: pools are never freed.
        unsafe { dpdk::rte_mempool_avail_count(self.as_ptr()) }
    }

    /// Takes an mbuf out of the pool, if there is one.
    pub fn allocate(self) -> Option<Mbuf> {
        // SAFETY: pools are never freed. An mbuf taken out of one is ours alone.
        unsafe { NonNull::new(dpdk::shim_pktmbuf_alloc(self.as_ptr())).map(|raw| Mbuf::new(raw).0) }
    }

    /// Passes `count` new mbufs to `each`, or none. Returns false if it passed none.
    pub fn allocate_bulk(self, count: usize, mut each: impl FnMut(Mbuf)) -> bool {
        let mut raws = [std::ptr::null_mut(); crate::port::BURST];
        assert!(count <= raws.len(), "bulks are no longer than bursts");
        // SAFETY: as in `allocate`. `raws` has room for `count`, and DPDK has written all of these
        // if it returns 0.
        unsafe {
            if dpdk::shim_pktmbuf_alloc_bulk(self.as_ptr(), raws.as_mut_ptr(), count as u32) != 0 {
                return false;
            }
            raws.iter().take(count).for_each(|raw| each(Mbuf::new(NonNull::new_unchecked(*raw)).0));
        }
        true
    }

    /// Passes `count` new mbufs to `each`, or at least one if there is any.
    pub fn allocate_most(self, count: usize, mut each: impl FnMut(Mbuf)) {
        if !self.allocate_bulk(count, &mut each)
            && let Some(mbuf) = self.allocate()
        {
            each(mbuf);
        }
    }

    /// Returns the room of each mbuf in bytes.
    pub fn room(self) -> usize {
        self.room.into()
    }
}

impl Mbuf {
    /// Takes over a chain, and returns whether its first mbuf has all of its bytes.
    ///
    /// # Safety
    /// The chain is valid, its memory is initialised, and nobody else has it.
    #[inline]
    pub unsafe fn new(raw: NonNull<dpdk::rte_mbuf>) -> (Mbuf, bool) {
        // SAFETY: the mbuf is valid and initialised (this function's contract).
        let view = unsafe { dpdk::shim_pktmbuf_view(raw.as_ptr()) };
        let dpdk::shim_view { data, len, room, segments, whole } = view;
        (Mbuf { raw, data, len, room, segments }, whole)
    }

    /// Passes the chain to DPDK, which frees it.
    #[inline]
    pub fn into_raw(self) -> *mut dpdk::rte_mbuf {
        std::mem::ManuallyDrop::new(self).raw.as_ptr()
    }

    /// Returns the data of the first mbuf.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `data` has `room` bytes, of which `len` are used. They are ours alone, and the
        // memory of pools is never unmapped.
        unsafe { slice::from_raw_parts(self.data, self.len.into()) }
    }

    /// Returns all room of the first mbuf.
    #[inline]
    pub fn room(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`.
        unsafe { slice::from_raw_parts_mut(self.data, self.room.into()) }
    }

    /// Makes the first `len` bytes of the room the data of this mbuf. The chain has only this mbuf.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.room.into(), "data fits its mbuf");
        debug_assert!(self.segments == 1);
        // The room fits in 16 bits, and `len` is no more than the room.
        self.len = len as u16;
        // SAFETY: the mbuf is valid, and has room for `len` bytes.
        unsafe { dpdk::shim_pktmbuf_set_len(self.raw.as_ptr(), self.len) };
    }

    /// Returns the number of bytes in all mbufs of the chain.
    #[inline]
    pub fn total_len(&self) -> usize {
        // SAFETY: the mbuf is valid.
        unsafe { dpdk::shim_pktmbuf_pkt_len(self.raw.as_ptr()) as usize }
    }

    /// Returns the checksum that a device is asked to fill in, if any.
    ///
    /// The first number is where the summed bytes begin; they reach to the end of the frame. The
    /// second is the offset from there at which the checksum is stored.
    pub fn open_checksum(&self) -> Option<(u16, u16)> {
        // SAFETY: the mbuf is valid.
        let dpdk::shim_asked { what, start } = unsafe { dpdk::shim_pktmbuf_asked(self.raw.as_ptr()) };
        let offset = match what {
            dpdk::SHIM_FILL_UDP => 6,
            dpdk::SHIM_FILL_TCP => 16,
            _ => return None,
        };
        Some((u16::try_from(start).ok()?, offset))
    }

    /// Asks a device for checksums. The caller knows that the device supports them.
    pub fn ask(&mut self, offload: Offload) {
        let bit = |on: bool, bit| if on { bit } else { 0 };
        let Offload { fill, ipv6, l2_len, l3_len } = offload;
        let what = bit(fill.ipv4, dpdk::SHIM_FILL_IPV4)
            | bit(fill.udp, dpdk::SHIM_FILL_UDP)
            | bit(fill.tcp, dpdk::SHIM_FILL_TCP);
        // SAFETY: the mbuf is ours.
        unsafe { dpdk::shim_pktmbuf_offload(self.raw.as_ptr(), what, ipv6, l2_len, l3_len) };
    }

    /// Returns the number of mbufs in the chain.
    #[inline]
    pub fn segments(&self) -> u16 {
        self.segments
    }

    /// Appends a copy of all data to `out`.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.total_len());
        let mut next = self.raw.as_ptr();
        while !next.is_null() {
            // SAFETY: each mbuf of the chain is valid, and its data is `len` readable bytes. They
            // may be memory of a guest, which can write at any time. So they are copied by pointer,
            // into room that `reserve` made.
            unsafe {
                let len = usize::from(dpdk::shim_pktmbuf_data_len(next));
                out.reserve(len);
                let to = out.as_mut_ptr().add(out.len());
                std::ptr::copy_nonoverlapping(dpdk::shim_pktmbuf_mtod(next), to, len);
                out.set_len(out.len() + len);
                next = dpdk::shim_pktmbuf_next(next);
            }
        }
    }

    /// Copies all data to the beginning of `out`. Returns the number of bytes.
    ///
    /// # Panics
    /// `out` has no room for them.
    pub fn copy_into(&self, out: &mut [u8]) -> usize {
        let mut done = 0;
        let mut next = self.raw.as_ptr();
        while !next.is_null() {
            // SAFETY: each mbuf of the chain is valid, and its data is `len` readable bytes. They
            // may be memory of a guest, which can write at any time. So they are copied by pointer,
            // into other memory whose bounds the slice has checked.
            unsafe {
                let len = usize::from(dpdk::shim_pktmbuf_data_len(next));
                let to = out[done..done + len].as_mut_ptr();
                std::ptr::copy_nonoverlapping(dpdk::shim_pktmbuf_mtod(next), to, len);
                done += len;
                next = dpdk::shim_pktmbuf_next(next);
            }
        }
        done
    }

    /// Makes external memory the data of this mbuf. The mbuf is freshly allocated.
    pub fn attach(&mut self, external: External) {
        let (bytes, len, done, owner) = external.into_parts();
        // SAFETY: mbufs of pools have a private area of the size that the shim needs. The bytes
        // stay readable until `done` is called. DPDK calls it once, when the mbuf is freed. Nobody
        // writes the bytes, because such frames are only sent.
        unsafe {
            dpdk::shim_pktmbuf_attach(self.raw.as_ptr(), bytes.cast_mut().cast(), len, Some(done), owner);
        }
        (self.data, self.len, self.room) = (std::ptr::dangling_mut(), 0, 0);
    }

    /// Appends `tail`. Returns false if the chain is too long. `tail` is freed then.
    pub fn chain(&mut self, tail: Mbuf) -> bool {
        let segments = tail.segments;
        let tail = tail.into_raw();
        // SAFETY: both are valid and ours alone. On success `tail` belongs to the head. On failure
        // nothing has changed.
        unsafe {
            let chained = dpdk::shim_pktmbuf_chain(self.raw.as_ptr(), tail) == 0;
            if chained {
                self.segments += segments;
            } else {
                dpdk::shim_pktmbuf_free(tail);
            }
            chained
        }
    }

    /// Returns DPDK's pointer to the chain.
    pub fn as_ptr(&mut self) -> *mut dpdk::rte_mbuf {
        self.raw.as_ptr()
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it is ours alone, and is not used after this.
        unsafe { dpdk::shim_pktmbuf_free(self.raw.as_ptr()) };
    }
}
