//! Memory of the caller: regions, and access rights.

use core::ops::{BitAnd, BitOr};
use core::sync::atomic::AtomicU64;

/// The memory of a region does not exist any more.
///
/// The host causes this (a mapping vanished). It is never a range that the engine failed to check.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fault;

/// Memory of one registered region. Offsets count from its first byte.
///
/// The engine checks each range against the region's length before it calls. All memory is shared
/// with guests, which may write it at any time. Two reads of the same bytes may therefore differ.
pub trait Region {
    /// Copies `len` bytes from `offset` to `dst_offset` of `dst`. The last bytes become visible
    /// last.
    ///
    /// The two ranges may overlap. The result within the destination is then unspecified.
    fn copy_to(&self, offset: u64, dst: &Self, dst_offset: u64, len: u64) -> Result<(), Fault>;
    /// Fills `buf` with the bytes from `offset` on.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault>;
    /// Writes `data` at `offset`. The last bytes become visible last.
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Fault>;
    /// Passes the 8 bytes at `offset` to `operation`, which is atomic for all who access them.
    ///
    /// The caller has checked that the guest's address is a multiple of 8. The implementation
    /// checks that for the address in memory, and returns `Fault` if it is not so.
    fn with_word<T>(&self, offset: u64, operation: impl FnOnce(&AtomicU64) -> T) -> Result<T, Fault>;
    /// Makes the region name a list of pages, from byte `offset` of the first page on, for `length`
    /// bytes.
    ///
    /// The list is read here, and only once. It has exactly the pages that `offset` and `length`
    /// need. Returns `Fault` if the list or a page is not the guest's memory, or if the region was
    /// not made for fast registration. The region is then unchanged.
    fn register(&mut self, list: &PageList, offset: u64, length: u64) -> Result<(), Fault> {
        let _ = (list, offset, length);
        Err(Fault)
    }
}

/// A list of pages for a fast registration, which a guest wrote.
///
/// Each entry is the address of a page, 8 bytes, little-endian.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PageList {
    /// Address of the list in the guest's memory.
    pub addr: u64,
    /// Number of pages, at most [`MAX_PAGES`](crate::MAX_PAGES).
    pub pages: u32,
    /// Binary logarithm of the page size. A page begins at a multiple of its size.
    pub page_shift: u8,
}

/// Access rights of a region, or (remote rights only) of a QP. Bits as in enum `ibv_access_flags`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Hash)]
pub struct Access(pub u32);

impl Access {
    /// No right except local reading.
    pub const NONE: Access = Access(0);
    /// The owner's receives, READs and atomics may write.
    pub const LOCAL_WRITE: Access = Access(1);
    /// Peers may WRITE.
    pub const REMOTE_WRITE: Access = Access(2);
    /// Peers may READ.
    pub const REMOTE_READ: Access = Access(4);
    /// Peers may use atomics.
    pub const REMOTE_ATOMIC: Access = Access(8);
    /// All rights to read or write memory.
    pub const ALL: Access = Access(15);
    /// Peers may FLUSH to global visibility.
    pub const FLUSH_GLOBAL: Access = Access(256);
    /// Peers may FLUSH to persistence. No region gives this right: guest memory belongs to
    /// processes of the host, and is lost with them.
    pub const FLUSH_PERSISTENT: Access = Access(512);
    /// Peers may FLUSH to global visibility, to persistence or to both.
    pub const FLUSH: Access = Access(768);
    /// All rights that a QP may give its peer.
    pub const QP: Access = Access(783);
    /// Windows may be bound to the region.
    pub const MW_BIND: Access = Access(16);
    /// Peers count addresses from the first byte of the window.
    pub const ZERO_BASED: Access = Access(32);
    /// All rights that a region may give.
    pub const REGION: Access = Access(287);
    /// All rights that a bind of a window may give.
    pub const WINDOW: Access = Access(46);

    /// Whether these rights include all of `rights`.
    #[inline]
    pub const fn contains(self, rights: Access) -> bool {
        self.0 & rights.0 == rights.0
    }

    /// Whether these rights include at least one of `rights`.
    pub const fn has_any(self, rights: Access) -> bool {
        self.0 & rights.0 != 0
    }
}

impl BitOr for Access {
    type Output = Access;

    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

impl BitAnd for Access {
    type Output = Access;

    fn bitand(self, other: Access) -> Access {
        Access(self.0 & other.0)
    }
}
