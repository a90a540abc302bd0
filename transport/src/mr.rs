//! Memory regions: the one way from a key and an address to memory.

use crate::id::PdId;
use crate::memory::Access;
use crate::table::{Numbered, Numbering, Table};
use vrdma_wire::num::{Lkey, Rkey};

/// A key: index << 8 | random tag.
pub(crate) const KEYS: Numbering = Numbering { index_shift: 8, index_bits: 24, tag_shift: 0, tag_bits: 8 };

/// A registered region.
pub(crate) struct Mr<R> {
    pub(crate) key: u32,
    pub(crate) pd: PdId,
    pub(crate) access: Access,
    pub(crate) iova: u64,
    /// The address of the last byte, `iova + length - 1`, does not wrap. 0: no byte at all.
    pub(crate) length: u64,
    pub(crate) region: R,
}

impl<R> Numbered for Mr<R> {
    #[inline]
    fn number(&self) -> u32 {
        self.key
    }
}

/// The regions of a device.
pub(crate) type Mrs<R> = Table<Mr<R>>;

impl<R> Mrs<R> {
    /// What an own request of a QP in `pd` names: the region of `key`, and the offset of `addr` in it, if it is of `pd`, gives `rights`, and has
    /// `length` bytes from `addr` on.
    #[inline]
    pub(crate) fn local(
        &self,
        key: Lkey,
        pd: PdId,
        rights: Access,
        addr: u64,
        length: u64,
    ) -> Option<(&R, u64)> {
        self.find(key.0, pd, rights, addr, length)
    }

    /// What the peer of a QP in `pd` names: the same, for a key and rights of those who are remote.
    #[inline]
    pub(crate) fn remote(
        &self,
        key: Rkey,
        pd: PdId,
        rights: Access,
        addr: u64,
        length: u64,
    ) -> Option<(&R, u64)> {
        self.find(key.0, pd, rights, addr, length)
    }

    #[inline]
    fn find(&self, key: u32, pd: PdId, rights: Access, addr: u64, length: u64) -> Option<(&R, u64)> {
        let mr = self.get(key)?;
        let offset = addr.checked_sub(mr.iova)?;
        let inside = length <= mr.length && offset <= mr.length - length;
        (mr.pd == pd && mr.access.contains(rights) && inside).then_some((&mr.region, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(iova: u64, length: u64) -> (Mrs<()>, u32) {
        let mut mrs = Mrs::new(KEYS, 1, 10);
        let make = |key| Mr { key, pd: PdId(3), access: Access::REMOTE_READ, iova, length, region: () };
        let key = mrs.insert(|_| 0x5a, make).unwrap();
        (mrs, key)
    }

    #[test]
    fn keys_pds_rights_and_ranges_are_checked() {
        let (mrs, key) = table(1000, 100);
        assert_eq!(key, 0x15a);
        let read = Access::REMOTE_READ;
        let check =
            |key, pd, rights, addr, length| mrs.find(key, PdId(pd), rights, addr, length).map(|f| f.1);
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
        let check = |addr, length| mrs.find(key, PdId(3), Access::NONE, addr, length).map(|f| f.1);
        assert_eq!(check(u64::MAX - 1, 1), Some(u64::MAX - 1));
        assert_eq!(check(u64::MAX, 1), None);
        assert_eq!(check(0, u64::MAX), Some(0));
    }
}
