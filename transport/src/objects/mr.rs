//! Keys of memory: the only way from a key and an address to memory.
//!
//! A key names a region, or a window that shows a part of a region to peers.

mod bind;
pub(crate) mod register;

use crate::base::id::PdId;
use crate::base::memory::Access;
use crate::collections::table::{Numbered, Numbering, Table};
use crate::verbs::fast::Fast;
use crate::verbs::window::{QpLife, Window};
use core::mem;
use std::ops::Range;
use vrdma_wire::num::{Lkey, Rkey};

/// Numbering of keys: index << 8 | tag.
///
/// The tag of a region is random. The tag of a window is its binder's choice, the tag of a fast
/// registration the requester's.
pub(crate) const KEYS: Numbering = Numbering { index_shift: 8, index_bits: 24, tag_shift: 0, tag_bits: 8 };

/// A key, and the region or window that it names.
pub(crate) struct Key<R> {
    pub(crate) key: u32,
    pub(crate) pd: PdId,
    /// The rights. A window that is not bound and a region that is free have none.
    pub(crate) access: Access,
    /// Address of the first byte, by which requests name it.
    pub(crate) iova: u64,
    /// Length in bytes, or 0. The address of the last byte, `iova + length - 1`, does not wrap.
    pub(crate) length: u64,
    pub(crate) kind: Kind<R>,
}

/// The object that a key names.
pub(crate) enum Kind<R> {
    /// A registered region.
    Region(Mr<R>),
    /// A memory window.
    Window(Window),
}

/// A registered region.
pub(crate) struct Mr<R> {
    pub(crate) region: R,
    /// Number of windows that are bound to it.
    windows: u32,
    /// Set for a region for fast registration.
    pub(crate) fast: Option<Fast>,
}

/// Whether a region may have these parameters (IBTA 10.6.3.1).
///
/// Its addresses must not wrap. Remote write access requires local write access.
pub(crate) fn may_be_region(access: Access, iova: u64, length: u64) -> bool {
    let remote_writes = access.has_any(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    Access::REGION.contains(access)
        && (!remote_writes || access.contains(Access::LOCAL_WRITE))
        && (length == 0 || iova.checked_add(length - 1).is_some())
}

impl<R> Numbered for Key<R> {
    #[inline]
    fn number(&self) -> u32 {
        self.key
    }
}

impl<R> Key<R> {
    /// Makes the key of a region without windows.
    pub(crate) fn region(
        key: u32,
        pd: PdId,
        access: Access,
        (iova, length): (u64, u64),
        region: R,
    ) -> Key<R> {
        Key { key, pd, access, iova, length, kind: Kind::Region(Mr { region, windows: 0, fast: None }) }
    }
}

impl<R> Mr<R> {
    /// Whether windows are bound to the region. It then must not change.
    pub(crate) fn has_windows(&self) -> bool {
        self.windows > 0
    }
}

/// The QP whose peer names a key.
#[derive(Copy, Clone)]
pub(crate) struct Holder<'a> {
    pub(crate) pd: PdId,
    /// Only used for windows of type 2B.
    pub(crate) life: &'a QpLife,
}

/// The keys of a device.
pub(crate) struct Mrs<R> {
    pub(crate) keys: Table<Key<R>>,
    /// Number of windows.
    windows: u32,
    /// The last life that a QP was given.
    last_life: QpLife,
    /// Indices that may have windows of QPs that are gone.
    unbinding: Range<usize>,
}

impl<R> Mrs<R> {
    /// Makes an empty table with room for `most` keys.
    pub(crate) fn new(most: u32) -> Mrs<R> {
        let keys = Table::new(KEYS, 1, most + 1);
        Mrs { keys, windows: 0, last_life: QpLife::NONE, unbinding: 0..0 }
    }

    /// Whether a peer's key is that of a region, and not of a window.
    pub(crate) fn is_region(&self, key: Rkey) -> bool {
        self.keys.get(key.0).is_some_and(|key| matches!(key.kind, Kind::Region(_)))
    }

    /// Returns the number of regions.
    pub(crate) fn num_regions(&self) -> u32 {
        self.keys.len() - self.windows
    }

    /// Returns the number of windows.
    pub(crate) fn num_windows(&self) -> u32 {
        self.windows
    }

    /// Removes all keys in constant time. The table still knows which keys were used.
    pub(crate) fn clear(&mut self) -> Vec<Option<Key<R>>> {
        (self.windows, self.unbinding) = (0, 0..0);
        self.keys.clear()
    }

    /// Returns the region of a key, with its key entry.
    pub(crate) fn region(&self, key: u32) -> Option<(&Key<R>, &Mr<R>)> {
        let found = self.keys.get(key)?;
        match &found.kind {
            Kind::Region(mr) => Some((found, mr)),
            Kind::Window(_) => None,
        }
    }

    /// Removes a region, to which no windows are bound.
    pub(crate) fn take_region(&mut self, key: u32) -> R {
        match self.keys.remove(key).map(|found| found.kind) {
            Some(Kind::Region(Mr { region, windows: 0, .. })) => region,
            _ => unreachable!("it was looked up, and no windows are bound to it"),
        }
    }

    /// Changes a region, to which no windows are bound.
    ///
    /// With `region` its memory also changes, and it gets another key. Returns the key and the
    /// previous memory.
    pub(crate) fn change_region(
        &mut self,
        old: u32,
        (pd, access): (PdId, Access),
        (iova, length): (u64, u64),
        region: Option<R>,
    ) -> (u32, Option<R>) {
        // Rights and PD change under the same key, which peers may know. The tags of an index come
        // in turn, so an old key is not soon valid again.
        let new = if region.is_some() { old & !0xff | old.wrapping_add(1) & 0xff } else { old };
        let found = self.keys.renumber(old, new, |found| found.key = new);
        (found.pd, found.access, found.iova, found.length) = (pd, access, iova, length);
        let Kind::Region(mr) = &mut found.kind else { unreachable!("it was looked up as a region") };
        (new, region.map(|region| mem::replace(&mut mr.region, region)))
    }

    /// Returns the region that a local request of a QP in `pd` names, and the offset of `addr` in
    /// it.
    ///
    /// The region has to be in `pd`, give `rights`, and have `length` bytes from `addr` on. Windows
    /// are only for peers.
    #[inline(always)]
    pub(crate) fn local(
        &self,
        key: Lkey,
        pd: PdId,
        rights: Access,
        addr: u64,
        length: u64,
    ) -> Option<(&R, u64)> {
        let (found, offset) = self.find(key.0, pd, rights, addr, length)?;
        match &found.kind {
            Kind::Region(mr) => Some((&mr.region, offset)),
            Kind::Window(_) => None,
        }
    }

    /// Returns the region that the peer of a QP names, and the offset of `addr` in it.
    ///
    /// The checks are those of [`Mrs::local`]. The key may also be that of a window that peers of
    /// this QP may use.
    #[inline(always)]
    pub(crate) fn remote(
        &self,
        key: Rkey,
        holder: Holder<'_>,
        rights: Access,
        addr: u64,
        length: u64,
    ) -> Option<(&R, u64)> {
        let (found, offset) = self.find(key.0, holder.pd, rights, addr, length)?;
        match &found.kind {
            Kind::Region(mr) => Some((&mr.region, offset)),
            Kind::Window(window) => self.through(window, holder, offset),
        }
    }

    /// Whether a key gives the peer of a QP these rights at any address.
    pub(crate) fn allows(&self, key: Rkey, holder: Holder<'_>, rights: Access) -> bool {
        let first = self.keys.get(key.0).map_or(0, |found| found.iova);
        self.remote(key, holder, rights, first, 0).is_some()
    }

    /// Returns the region and offset of a byte of a window, if peers of this QP may use the window.
    #[inline(always)]
    fn through(&self, window: &Window, holder: Holder<'_>, offset: u64) -> Option<(&R, u64)> {
        let bound = window.bound.as_ref()?;
        if bound.qp.is_some_and(|(_, life)| life != *holder.life) {
            return None;
        }
        let (_, mr) = self.region(bound.region).expect("a region stays while windows are bound to it");
        Some((&mr.region, bound.offset + offset))
    }

    #[inline(always)]
    fn find(&self, key: u32, pd: PdId, rights: Access, addr: u64, length: u64) -> Option<(&Key<R>, u64)> {
        let found = self.keys.get(key)?;
        let offset = addr.checked_sub(found.iova)?;
        let inside = length <= found.length && offset <= found.length - length;
        (found.pd == pd && found.access.contains(rights) && inside).then_some((found, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: &QpLife = &QpLife::NONE;

    fn table(iova: u64, length: u64) -> (Mrs<()>, u32) {
        let mut mrs = Mrs::new(9);
        let make = |key| Key::region(key, PdId(3), Access::REMOTE_READ, (iova, length), ());
        let key = mrs.keys.insert(|_| 0x5a, make).unwrap();
        (mrs, key)
    }

    #[test]
    fn keys_pds_rights_and_ranges_are_checked() {
        let (mrs, key) = table(1000, 100);
        assert_eq!(key, 0x15a);
        let read = Access::REMOTE_READ;
        let check = |key, pd, rights, addr, length| {
            let local = mrs.local(Lkey(key), PdId(pd), rights, addr, length).map(|f| f.1);
            let holder = Holder { pd: PdId(pd), life: LIFE };
            assert_eq!(mrs.remote(Rkey(key), holder, rights, addr, length).map(|f| f.1), local);
            local
        };
        assert_eq!(check(key, 3, read, 1000, 100), Some(0));
        assert_eq!(check(key, 3, read, 1099, 1), Some(99));
        assert_eq!(check(key, 3, read, 1100, 0), Some(100));
        for (addr, length) in [
            (1000, 101),
            (999, 1),
            (1099, 2),
            (1100, 1),
            (1101, 0),
            (u64::MAX, 1),
            (1000, u64::MAX),
            (1001, 100),
        ] {
            assert_eq!(check(key, 3, read, addr, length), None, "{addr} {length}");
        }
        for wrong in [key ^ 1, key + 0x100, 0, u32::MAX, key | 0x8000_0000] {
            assert_eq!(check(wrong, 3, read, 1000, 1), None, "{wrong:#x}");
        }
        assert_eq!(check(key, 2, read, 1000, 1), None);
        assert_eq!(check(key, 3, read | Access::LOCAL_WRITE, 1000, 1), None);
    }

    #[test]
    fn a_region_can_be_all_of_memory() {
        let (mrs, key) = table(0, u64::MAX);
        let check = |addr, length| mrs.local(Lkey(key), PdId(3), Access::NONE, addr, length).map(|f| f.1);
        assert_eq!(check(u64::MAX - 1, 1), Some(u64::MAX - 1));
        assert_eq!(check(u64::MAX, 1), None);
        assert_eq!(check(0, u64::MAX), Some(0));
    }
}
