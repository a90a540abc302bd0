//! GIDs: which device has an address, and in which VLAN.

use crate::base::error::Error;
use std::collections::BTreeMap;
use vrdma_wire::num::{Gid, VlanId};

/// An entry of a device's GID table: an address, and the VLAN in which the device has it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct GidEntry {
    /// The address; zero if the entry is empty.
    pub gid: Gid,
    /// The VLAN; [`VlanId::UNTAGGED`] for frames without a tag.
    pub vlan: VlanId,
}

impl GidEntry {
    /// An empty entry.
    pub(crate) const EMPTY: GidEntry = GidEntry { gid: Gid::ZERO, vlan: VlanId::UNTAGGED };

    /// Whether an address vector with this VLAN may have this entry as its source.
    pub(crate) fn is_in(&self, vlan: Option<u16>) -> bool {
        self.vlan.number() == vlan.unwrap_or(VlanId::UNTAGGED.number())
    }
}

impl From<Gid> for GidEntry {
    /// Makes an entry for frames without a tag.
    fn from(gid: Gid) -> GidEntry {
        GidEntry { gid, vlan: VlanId::UNTAGGED }
    }
}

/// The owner of each address, over all devices.
///
/// In different VLANs, an address can belong to different devices.
#[derive(Default)]
pub(crate) struct Gids {
    /// The device, and how many of its entries hold the address. Ordered by address, then by VLAN.
    owners: BTreeMap<(u128, VlanId), (u32, u32)>,
}

impl Gids {
    /// Returns the device that has an address in a VLAN.
    #[inline]
    pub(crate) fn owner(&self, entry: GidEntry) -> Option<u32> {
        self.owners.get(&key(entry)).map(|owner| owner.0)
    }

    /// Whether any device has the address, in any VLAN.
    pub(crate) fn is_anywhere(&self, gid: Gid) -> bool {
        let first = key(gid.into());
        self.owners.range(first..).next().is_some_and(|(&(address, _), _)| address == first.0)
    }

    /// Adds an entry of a device. Returns `Denied` if another device has the address in that VLAN.
    pub(crate) fn acquire(&mut self, device: u32, entry: GidEntry) -> Result<(), Error> {
        let owner = self.owners.entry(key(entry)).or_insert((device, 0));
        if owner.0 != device {
            return Err(Error::Denied);
        }
        owner.1 += 1;
        Ok(())
    }

    /// Removes one entry of the device that has this address.
    pub(crate) fn release(&mut self, entry: GidEntry) {
        if let Some(owner) = self.owners.get_mut(&key(entry)) {
            owner.1 -= 1;
            if owner.1 == 0 {
                self.owners.remove(&key(entry));
            }
        }
    }
}

/// Returns the key of an entry in [`Gids`].
///
/// UNTAGGED is the lowest VLAN. The first key of an address is therefore that of [`From<Gid>`].
fn key(entry: GidEntry) -> (u128, VlanId) {
    (u128::from_be_bytes(entry.gid.0), entry.vlan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_an_owner_in_each_vlan() {
        let gid = |last| Gid::from_ipv4([10, 0, 0, last]);
        let entry = |last, vlan| GidEntry { gid: gid(last), vlan: VlanId::new(vlan).unwrap() };
        let mut gids = Gids::default();
        assert_eq!(gids.acquire(0, entry(1, 10)), Ok(()));
        assert_eq!(gids.acquire(0, entry(1, 10)), Ok(()));
        assert_eq!(gids.acquire(1, entry(1, 20)), Ok(()));
        assert_eq!(gids.acquire(1, entry(1, 10)), Err(Error::Denied));
        assert_eq!([0, 10, 20].map(|vlan| gids.owner(entry(1, vlan))), [None, Some(0), Some(1)]);
        assert_eq!([0, 1, 2].map(|last| gids.is_anywhere(gid(last))), [false, true, false]);
        gids.release(entry(1, 10));
        assert_eq!(gids.owner(entry(1, 10)), Some(0), "it has it once more");
        gids.release(entry(1, 10));
        gids.release(entry(1, 10));
        assert_eq!(gids.owner(entry(1, 10)), None);
        assert!(gids.is_anywhere(gid(1)));
        gids.release(entry(1, 20));
        assert!(!gids.is_anywhere(gid(1)));
    }
}
