//! The requests of a batch, as the list that ibv_post_send() would get.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard};
use std::{iter, slice};

use crate::errno::Errno;
use crate::ffi;
use crate::locks::lock;

/// The batch of a QP, and the lock on it.
pub struct Batches {
    /// Held by the caller from start to complete or abort. The field comes before `batch`, to which
    /// it points, so that it is dropped first.
    held: UnsafeCell<Option<MutexGuard<'static, Batch>>>,
    batch: Mutex<Batch>,
}

/// The requests since ibv_wr_start(). Its memory is kept for the next batch.
#[derive(Default)]
pub struct Batch {
    /// Requests without `next` and `sg_list`: only [`Batch::link`] sets `sg_list`, because the
    /// vectors grow.
    pub(super) requests: Vec<ffi::ibv_send_wr>,
    /// SGEs of all requests, those of each request contiguous. With inline data, `addr` is an index
    /// into `inline`.
    elements: Vec<ffi::ibv_sge>,
    inline: Vec<u8>,
    /// The first error, or 0.
    pub(super) error: Errno,
}

impl Batches {
    /// Makes the batch of a QP on which no thread has started one.
    pub fn new() -> Self {
        Self { held: UnsafeCell::new(None), batch: Mutex::new(Batch::default()) }
    }

    /// Locks the batch, and empties it.
    ///
    /// # Safety
    /// The value must not move from now on.
    #[inline]
    pub(super) unsafe fn start(&self) {
        let mut guard = lock(&self.batch);
        guard.clear();
        // SAFETY: the guard is stored next to what it points to, in a QP that does not move. It is
        // dropped first, by the order of the fields.
        let guard =
            unsafe { std::mem::transmute::<MutexGuard<'_, Batch>, MutexGuard<'static, Batch>>(guard) };
        // SAFETY: `held` is under the lock, which the caller holds.
        unsafe { *self.held.get() = Some(guard) };
    }

    /// Returns the batch, if the caller has started one.
    ///
    /// # Safety
    /// No other thread has started a batch. An earlier result is not used any more.
    #[allow(clippy::mut_from_ref, reason = "by its contract there is one reference at a time")]
    #[inline]
    pub(super) unsafe fn current(&self) -> Option<&mut Batch> {
        // SAFETY: by this function's own contract; `held` is under the lock, which the caller
        // holds.
        unsafe { (*self.held.get()).as_deref_mut() }
    }

    /// Unlocks the batch.
    ///
    /// # Safety
    /// The caller has started a batch, or has called this in the wrong order in a single thread.
    #[inline]
    pub(super) unsafe fn end(&self) {
        // SAFETY: `held` is under the lock, which the caller holds. The guard is taken out first,
        // because another thread may write here after unlocking.
        let guard = unsafe { (*self.held.get()).take() };
        drop(guard);
    }
}

impl Batch {
    fn clear(&mut self) {
        self.requests.clear();
        self.elements.clear();
        self.inline.clear();
        self.error = 0;
    }

    /// Remembers an error, if it is the first one.
    pub(super) fn fail(&mut self, errno: Errno) {
        if self.error == 0 {
            self.error = errno;
        }
    }

    /// Begins a request. A batch has at most `limit` of them.
    #[inline]
    pub(super) fn begin(&mut self, limit: u32, request: ffi::ibv_send_wr) {
        if self.requests.len() >= limit as usize || self.requests.try_reserve(1).is_err() {
            return self.fail(libc::ENOMEM);
        }
        self.requests.push(request);
    }

    /// Adds SGEs to the last request.
    #[inline]
    pub(super) fn add(&mut self, limit: u32, count: usize, elements: impl Iterator<Item = ffi::ibv_sge>) {
        let Some(request) = self.requests.last_mut() else { return self.fail(libc::EINVAL) };
        // Each request has one setter.
        if count > limit as usize || request.num_sge != 0 {
            return self.fail(libc::EINVAL);
        }
        if self.elements.try_reserve(count).is_err() {
            return self.fail(libc::ENOMEM);
        }
        request.num_sge = count as c_int;
        self.elements.extend(elements.take(count));
    }

    /// Adds a copy of `pieces` to the last request, as inline data.
    ///
    /// # Safety
    /// The pieces are readable memory of this process.
    pub(super) unsafe fn add_inline(&mut self, limit: u32, pieces: &[ffi::ibv_data_buf]) {
        let length = pieces.iter().fold(0, |sum: usize, piece| sum.saturating_add(piece.length));
        if length > limit as usize {
            return self.fail(libc::EINVAL);
        }
        if self.inline.try_reserve(length).is_err() {
            return self.fail(libc::ENOMEM);
        }
        let addr = self.inline.len() as u64;
        for piece in pieces.iter().filter(|piece| piece.length != 0) {
            // SAFETY: by this function's own contract, the piece is readable memory. It is not
            // empty, so it is not NULL.
            self.inline.extend_from_slice(unsafe { slice::from_raw_parts(piece.addr.cast(), piece.length) });
        }
        self.add(1, 1, iter::once(ffi::ibv_sge { addr, length: length as u32, lkey: 0 }));
        if let Some(request) = self.requests.last_mut() {
            request.send_flags |= ffi::IBV_SEND_INLINE;
        }
    }

    /// Sets `sg_list` of the requests, and the addresses of inline data.
    #[inline]
    pub(super) fn link(&mut self) {
        let inline = self.inline.as_ptr().expose_provenance() as u64;
        let mut elements = self.elements.as_mut_slice();
        for request in &mut self.requests {
            let (own, rest) = std::mem::take(&mut elements)
                .split_at_mut_checked(request.num_sge as usize)
                .unwrap_or_default();
            elements = rest;
            if request.send_flags & ffi::IBV_SEND_INLINE != 0 {
                for element in &mut *own {
                    element.addr += inline;
                }
            }
            request.sg_list = own.as_mut_ptr();
        }
    }
}
