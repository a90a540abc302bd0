//! Memory of the caller: regions, and the rights to them.

use core::ops::{BitAnd, BitOr};
use core::sync::atomic::AtomicU64;

/// The memory of a region does not exist any more. It is the host's doing (a mapping that
/// vanished), never a range that the engine failed to check.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fault;

/// Memory of one registered region; offsets count from its first byte.
///
/// The engine has checked every range against the region's length before it calls. All memory is
/// shared with guests, which may write it at any time: what is read twice may differ.
pub trait Region {
    /// Copies `len` bytes from `offset` to `dst_offset` of `dst`, of which the last bytes become
    /// visible last. The two may overlap, with an unspecified result within the destination.
    fn copy_to(&self, offset: u64, dst: &Self, dst_offset: u64, len: u64) -> Result<(), Fault>;
    /// Fills `buf` from `offset`.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault>;
    /// Writes `data` at `offset`; the last bytes become visible last.
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Fault>;
    /// Lends the 8 bytes at `offset` to an atomic operation, which is one for all who access them.
    /// The guest's address is a multiple of 8; whether the memory is so too is to be seen here
    /// (`Fault` if not).
    fn with_word<T>(&self, offset: u64, operation: impl FnOnce(&AtomicU64) -> T) -> Result<T, Fault>;
    /// From now on the region is the memory of a list of pages, from byte `offset` of the first
    /// page on, `length` bytes. The list, which is read here and once, has exactly the pages that
    /// this takes. `Fault`: list or pages are not the guest's memory, or the region was not made
    /// for fast registration; it is what it was.
    fn register(&mut self, list: &PageList, offset: u64, length: u64) -> Result<(), Fault> {
        let _ = (list, offset, length);
        Err(Fault)
    }
}

/// A list of pages that a guest wrote, for a fast registration: the address of each, 8 bytes,
/// little-endian.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PageList {
    /// Where the list is in the guest's memory.
    pub addr: u64,
    /// How many pages: at most [`MAX_PAGES`](crate::MAX_PAGES).
    pub pages: u32,
    /// A page has 2 to the power of this bytes, and begins at a multiple of that.
    pub page_shift: u8,
}

/// Rights to memory, of a region or (remote ones) of a QP; bits as in enum ibv_access_flags.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Hash)]
pub struct Access(pub u32);

impl Access {
    /// No right but local reading.
    pub const NONE: Access = Access(0);
    /// The owner's receives, READs and atomics may write.
    pub const LOCAL_WRITE: Access = Access(1);
    /// Peers may WRITE.
    pub const REMOTE_WRITE: Access = Access(2);
    /// Peers may READ.
    pub const REMOTE_READ: Access = Access(4);
    /// Peers may use atomics.
    pub const REMOTE_ATOMIC: Access = Access(8);
    /// Every right to reach memory.
    pub const ALL: Access = Access(15);
    /// Peers may FLUSH to global visibility.
    pub const FLUSH_GLOBAL: Access = Access(256);
    /// Peers may FLUSH to persistence. No region gives that: memory of guests is that of the host's
    /// processes, and gone with them.
    pub const FLUSH_PERSISTENT: Access = Access(512);
    /// Peers may FLUSH, however far.
    pub const FLUSH: Access = Access(768);
    /// Every right that a QP may give its peer.
    pub const QP: Access = Access(783);
    /// Windows may be bound to the region.
    pub const MW_BIND: Access = Access(16);
    /// Peers count addresses from the first byte of the window on.
    pub const ZERO_BASED: Access = Access(32);
    /// Every right that a region may give.
    pub const REGION: Access = Access(287);
    /// All that a window may be bound with.
    pub const WINDOW: Access = Access(46);

    /// Whether all of `rights` are among these.
    #[inline]
    pub const fn contains(self, rights: Access) -> bool {
        self.0 & rights.0 == rights.0
    }

    /// Whether one of `rights` is among these.
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
