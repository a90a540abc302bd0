//! The ring that passes requests to the device.
//!
//! A channel is a split virtqueue with fixed descriptors (see [`vrdma_abi::wqe`]). The device takes
//! entries in order and returns them in order. So the slot of the n-th unit is always n modulo the
//! ring's size, and the available ring always holds the numbers 0, 1, 2... It is written once,
//! here. Posting touches only the slots and `avail.idx`. It reads the word that says whether to
//! kick, and about once per lap `used.idx`.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, Ordering, fence};

use crate::barrier;
use crate::span::Span;
use crate::unit::Unit;
use crate::wqe::list::{Listed, OpenList};
use crate::wqe::{Request, WqeError};

/// The number of slots between the written slot and the prefetched one.
const AHEAD: usize = 8;

/// `used.flags`: the device asks not to be kicked (VIRTQ_USED_F_NO_NOTIFY).
const NO_NOTIFY: u16 = 1;

/// A doorbell: tells the device that a channel has new entries.
pub trait Doorbell {
    /// Kicks the channel that it was made for.
    fn kick(&self);
}

impl<F: Fn()> Doorbell for F {
    #[inline]
    fn kick(&self) {
        self();
    }
}

/// A doorbell in a mapped page, to which the virtqueue number is written.
#[derive(Debug)]
pub struct MappedDoorbell {
    register: NonNull<u16>,
    queue: u16,
}

// SAFETY: the register may be written from any thread.
unsafe impl Send for MappedDoorbell {}
// SAFETY: writes to it need no exclusion.
unsafe impl Sync for MappedDoorbell {}

impl MappedDoorbell {
    /// Creates a doorbell at `register` for virtqueue `queue`.
    ///
    /// # Safety
    /// `register` is aligned, and stays writable as long as the value lives. A write to it has no
    /// effect except a kick.
    pub unsafe fn new(register: NonNull<u16>, queue: u16) -> Self {
        Self { register, queue }
    }
}

impl Doorbell for MappedDoorbell {
    #[inline]
    fn kick(&self) {
        // On machines that do not order device memory after normal memory, the index must be
        // visible first.
        fence(Ordering::SeqCst);
        // SAFETY: the caller of new() promised a writable register.
        unsafe { self.register.write_volatile(self.queue.to_le()) }
    }
}

/// The parts of a [`Channel`].
#[derive(Debug)]
pub struct ChannelParts<D> {
    /// The available ring: `flags`, `idx`, one number per entry, `used_event`. It is 2-byte
    /// aligned.
    pub avail: NonNull<u8>,
    /// The used ring: `flags`, `idx`, 8 bytes per entry, `avail_event`. It is 4-byte aligned.
    pub used: NonNull<u8>,
    /// The slots, which are contiguous.
    pub slots: NonNull<Unit>,
    /// The number of entries: a power of two up to 32768.
    pub entries: u16,
    /// Kicks follow `avail_event` (VIRTIO_F_EVENT_IDX) instead of `used.flags`.
    pub event_idx: bool,
    /// The device takes lists (`VRDMA_CAP_WQE_LIST`): small requests of one kind that are pushed in
    /// succession share units.
    pub lists: bool,
    /// How to kick.
    pub doorbell: D,
}

/// Why a request was not posted. No part of it is in the channel then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// There are not enough free entries at present. The device frees them when it reads them, if
    /// it was kicked.
    Full,
    /// The request can never be posted here.
    Request(WqeError),
}

/// The driver's end of a channel.
///
/// [`Self::push`] writes a request. [`Self::ring`] makes all pushed requests known to the device.
/// Neither waits.
///
/// # Example
///
/// A channel of 16 entries in plain memory, whose doorbell counts kicks:
///
/// ```
/// use core::ptr::NonNull;
/// use std::cell::Cell;
/// use vrdma_verbs::{Channel, ChannelParts, Data, Request, Tag, Unit};
///
/// // Words of 4 bytes, so that both rings are aligned.
/// let (mut avail, mut used) = ([0_u32; 16], [0_u32; 64]);
/// let mut slots = [Unit::default(); 16];
/// let kicks = Cell::new(0);
/// let parts = ChannelParts {
///     avail: NonNull::from(&mut avail).cast(),
///     used: NonNull::from(&mut used).cast(),
///     slots: NonNull::from(&mut slots).cast(),
///     entries: 16,
///     event_idx: false,
///     lists: false,
///     doorbell: || kicks.set(kicks.get() + 1),
/// };
/// // SAFETY: the arrays are long enough for 16 entries, outlive the channel, and nobody else
/// // writes them.
/// let mut channel = unsafe { Channel::new(parts) }.expect("16 is a power of two");
///
/// let request = Request::send(Tag { qpn: 5, wqe_id: 0 }, Data::Inline(b"hello")).signaled(true);
/// channel.push(&request).expect("the channel is empty");
/// channel.ring();
/// assert_eq!(channel.pending(), 1, "the device has not read it yet");
/// assert_eq!(kicks.get(), 1, "the device did not say that it polls");
/// ```
#[derive(Debug)]
pub struct Channel<D> {
    slots: NonNull<Unit>,
    avail_idx: NonNull<u16>,
    used_idx: NonNull<u16>,
    /// `avail_event` or `used.flags`.
    notify: NonNull<u16>,
    entries: u16,
    event_idx: bool,
    /// The index after the last written unit.
    next: u16,
    /// The value of `avail.idx`.
    published: u16,
    /// The value of `used.idx` when it was last read.
    used: u16,
    lists: bool,
    /// The list of the youngest request, if others may share its units.
    open: Option<OpenList>,
    doorbell: D,
}

// SAFETY: the pointers lead to memory that is not tied to a thread. Nothing else on the driver's
// side writes that memory.
unsafe impl<D: Send> Send for Channel<D> {}

impl<D: Doorbell> Channel<D> {
    /// Takes over the driver's side of a channel that was just bound, and fills the available ring.
    ///
    /// Returns `None` if `entries` is not a power of two or too large, or something is not aligned.
    ///
    /// # Safety
    /// The rings and slots have the lengths that follow from `entries`. They are writable (the used
    /// ring readable), and stay so as long as the value lives. Nobody else writes the available
    /// ring and the slots. All indices are 0.
    pub unsafe fn new(parts: ChannelParts<D>) -> Option<Self> {
        let ChannelParts { avail, used, slots, entries, event_idx, lists, doorbell } = parts;
        let aligned = avail.as_ptr().addr().is_multiple_of(2)
            && used.as_ptr().addr().is_multiple_of(4)
            && slots.is_aligned();
        if !entries.is_power_of_two() || !aligned {
            return None;
        }
        let (avail, used) = (avail.cast::<u16>(), used.cast::<u16>());
        let count = usize::from(entries);
        // SAFETY: all of these lie in the rings, whose sizes follow from `entries`.
        unsafe {
            for i in 0..entries {
                atomic(avail.add(2 + usize::from(i))).store(i.to_le(), Ordering::Relaxed);
            }
            let notify = if event_idx { used.add(2 + 4 * count) } else { used };
            let (avail_idx, used_idx) = (avail.add(1), used.add(1));
            Some(Self {
                slots,
                avail_idx,
                used_idx,
                notify,
                entries,
                event_idx,
                next: 0,
                published: 0,
                used: 0,
                lists,
                open: None,
                doorbell,
            })
        }
    }

    /// Writes a request after those already written. The device sees it after [`Self::ring`].
    ///
    /// # Errors
    /// [`PostError::Full`] if there is not enough room at present. [`PostError::Request`] if the
    /// ring is too small even when empty, or the request itself is impossible.
    #[inline]
    pub fn push(&mut self, request: &Request<'_>) -> Result<(), PostError> {
        if request.is_listable() && self.lists {
            return self.push_listed(request);
        }
        self.open = None;
        self.push_alone(request)
    }

    /// Writes a request into units of its own.
    #[inline]
    fn push_alone(&mut self, request: &Request<'_>) -> Result<(), PostError> {
        let units = request.units().map_err(PostError::Request)?;
        if !self.has_room(units) {
            return Err(self.refuse(units));
        }
        let first = usize::from(self.next & (self.entries - 1));
        // SAFETY: `first` is masked. The `units` entries from there on are free, because the device
        // has returned them.
        let span = unsafe { Span::ring(self.slots.as_ptr(), first, usize::from(self.entries)) };
        // SAFETY: `units` is the number that the request returned, and `units` <= `entries`.
        unsafe { request.write_to(&span, units) };
        self.next = self.next.wrapping_add(units as u16);
        self.prefetch();
        Ok(())
    }

    /// Writes a request into the units of the youngest one, or into its own units if that is
    /// impossible.
    fn push_listed(&mut self, request: &Request<'_>) -> Result<(), PostError> {
        let listed = request.listed();
        if let Some(listed) = &listed
            && self.append(listed)
        {
            return Ok(());
        }
        self.push_alone(request)?;
        self.open = listed.as_ref().map(OpenList::new);
        Ok(())
    }

    /// Adds a request to the units of the youngest one. Returns false if that is impossible.
    #[inline]
    fn append(&mut self, request: &Listed<'_>) -> bool {
        let Some(open) = self.open.as_mut().filter(|open| open.takes(request.kind)) else { return false };
        let (before, after) = (open.units(), open.units_with_another());
        if after > before && !self.has_room(after - before) {
            return false;
        }
        let Some(open) = &mut self.open else { return false };
        let first = usize::from(self.next.wrapping_sub(before as u16) & (self.entries - 1));
        // SAFETY: `first` is masked. The `before` units from there on were not released yet, and
        // the units after them are free.
        let span = unsafe { Span::ring(self.slots.as_ptr(), first, usize::from(self.entries)) };
        // SAFETY: the list is in these units, and takes the request.
        unsafe { open.append(request, &span) };
        if after > before {
            self.next = self.next.wrapping_add((after - before) as u16);
            self.prefetch();
        }
        true
    }

    /// Makes everything that was pushed known to the device, and kicks if the device asks for it.
    ///
    /// Returns whether it kicked.
    #[inline]
    pub fn ring(&mut self) -> bool {
        let (old, new) = (self.published, self.next);
        if old == new {
            return false;
        }
        self.published = new;
        self.open = None;
        // Release: the device sees the entries before the index.
        // SAFETY: see word().
        unsafe { word(&self.avail_idx) }.store(new.to_le(), Ordering::Release);
        // The device has a barrier too, between announcing that it sleeps and reading the index a
        // last time. So one of the two sides sees the other.
        barrier::full();
        // SAFETY: see word().
        let notify = u16::from_le(unsafe { word(&self.notify) }.load(Ordering::Relaxed));
        let wanted = if self.event_idx {
            // The device asks for a kick at entry `notify`. This checks whether it is in old..new.
            new.wrapping_sub(notify).wrapping_sub(1) < new.wrapping_sub(old)
        } else {
            notify & NO_NOTIFY == 0
        };
        if wanted {
            self.doorbell.kick();
        }
        wanted
    }

    /// Pushes a request ([`Self::push`]) and makes it known to the device ([`Self::ring`]).
    ///
    /// # Errors
    /// Those of [`Self::push`].
    #[inline]
    pub fn post(&mut self, request: &Request<'_>) -> Result<(), PostError> {
        self.push(request)?;
        self.ring();
        Ok(())
    }

    /// Kicks whether the device asks for it or not. It is for a caller that has waited too long.
    pub fn kick(&self) {
        self.doorbell.kick();
    }

    /// Returns the released units that the device has not taken yet, by the present `used.idx`.
    pub fn pending(&mut self) -> u16 {
        self.refresh();
        self.published.wrapping_sub(self.used)
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u16 {
        self.entries
    }

    /// Returns the doorbell that was given to [`Self::new`].
    pub fn doorbell(&self) -> &D {
        &self.doorbell
    }

    #[inline]
    fn has_room(&mut self, units: usize) -> bool {
        self.free() >= units || {
            self.refresh();
            self.free() >= units
        }
    }

    /// Returns the free entries, by the last known `used.idx`. An impossible `used.idx` frees none.
    #[inline]
    fn free(&self) -> usize {
        let taken = self.next.wrapping_sub(self.used);
        usize::from(self.entries.saturating_sub(taken))
    }

    /// Prefetches a slot that will be written soon.
    ///
    /// The device's processor has its cache line. Several such fetches in parallel take the time of
    /// one.
    #[inline]
    fn prefetch(&self) {
        if self.free() > AHEAD {
            let slot = usize::from(self.next.wrapping_add(AHEAD as u16) & (self.entries - 1));
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: the slot is inside the ring. The prefetch is a hint without visible effect,
            // and never faults. The intrinsic gives the hint of a read, unless the whole program
            // may use `prefetchw`. Each x86-64 processor executes that at least as a no-op.
            unsafe {
                let line = self.slots.add(slot).as_ptr();
                core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
            }
            #[cfg(any(not(target_arch = "x86_64"), miri))]
            let _ = slot;
        }
    }

    #[inline]
    fn refresh(&mut self) {
        // Acquire: the device has read a slot before it returns it.
        // SAFETY: see word().
        self.used = u16::from_le(unsafe { word(&self.used_idx) }.load(Ordering::Acquire));
    }

    #[cold]
    fn refuse(&self, units: usize) -> PostError {
        if units > usize::from(self.entries) {
            PostError::Request(WqeError::TooManyUnits)
        } else {
            PostError::Full
        }
    }
}

/// Returns an atomic view of a ring's word.
///
/// # Safety
/// `at` is one of the words that the caller of [`Channel::new`] vouched for. It is aligned for 2
/// bytes, and alive.
#[inline]
unsafe fn word(at: &NonNull<u16>) -> &AtomicU16 {
    // SAFETY: valid and aligned; all accesses on this side are atomic.
    unsafe { atomic(*at) }
}

/// Returns an atomic view of a word.
///
/// # Safety
/// `at` is valid and aligned for 2 bytes. As long as the result lives, all accesses are atomic.
#[inline]
unsafe fn atomic<'a>(at: NonNull<u16>) -> &'a AtomicU16 {
    // SAFETY: `at` is valid, aligned for 2 bytes, and accessed only by atomics (this function's
    // contract).
    unsafe { AtomicU16::from_ptr(at.as_ptr()) }
}

const _: () = assert!(align_of::<AtomicU16>() == 2);

#[cfg(test)]
mod tests;
