//! Fast registration of memory by requests, and invalidation.

use super::{Holder, KEYS, Key, Kind, Mr, Mrs, may_be_region};
use crate::base::id::PdId;
use crate::base::memory::{Access, Fault, Region};
use crate::verbs::fast::{Fast, Registration};
use vrdma_wire::num::Rkey;

/// Why memory was not registered. Nothing has changed then.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum RegisterError {
    /// The PD has no such region, it is not free, or the parameters are not possible.
    Refused,
    /// The list or one of its pages is not memory.
    NoMemory,
}

impl<R: Region> Mrs<R> {
    /// Registers memory for a QP in `pd`.
    pub(crate) fn register(&mut self, of: &Registration, pd: PdId) -> Result<(), RegisterError> {
        let Registration { key: Rkey(new), access, iova, length, .. } = *of;
        let (old, fast) = self.fast(new).ok_or(RegisterError::Refused)?;
        let list = of.page_list().filter(|list| list.pages <= fast.max_pages);
        let list = list.ok_or(RegisterError::Refused)?;
        let found = self.keys.get_mut(old).expect("it was looked up just now");
        let right = Access::ALL.contains(access) && may_be_region(access, iova, length);
        if !fast.is_free || found.pd != pd || !right {
            return Err(RegisterError::Refused);
        }
        let Kind::Region(mr) = &mut found.kind else { unreachable!("it was looked up as a region") };
        let registered = mr.region.register(&list, of.offset(), length);
        registered.map_err(|Fault| RegisterError::NoMemory)?;
        mr.fast = Some(Fast { is_free: false, ..fast });
        let found = self.keys.renumber(old, new, |found| found.key = new);
        (found.access, found.iova, found.length) = (access, iova, length);
        Ok(())
    }
}

impl<R> Mrs<R> {
    /// Returns the region for fast registration at the index of a key, whatever the tag, with its
    /// current key.
    fn fast(&self, key: u32) -> Option<(u32, Fast)> {
        match self.keys.at(KEYS.index(key))? {
            Key { key, kind: Kind::Region(Mr { fast: Some(fast), .. }), .. } => Some((*key, *fast)),
            _ => None,
        }
    }

    /// Returns the current key of a region for fast registration, whose tag requests change.
    ///
    /// Any other key is returned unchanged.
    pub(crate) fn key_now(&self, key: u32) -> u32 {
        self.fast(key).map_or(key, |(now, _)| now)
    }

    /// Whether a QP may invalidate this key.
    ///
    /// It may invalidate a window of type 2B that it bound (o10-37.2.26), and a region for fast
    /// registration in its PD. Such a region may already be free, as with `rdma_rxe`: the requester
    /// need not know whether the peer has invalidated it.
    pub(crate) fn may_invalidate(&self, key: Rkey, holder: Holder<'_>) -> bool {
        let Some(found) = self.keys.get(key.0) else { return false };
        found.pd == holder.pd
            && match &found.kind {
                Kind::Region(mr) => mr.fast.is_some(),
                Kind::Window(window) => window.is_bound_by(holder.life),
            }
    }

    /// Whether the peer of a QP may invalidate this key.
    ///
    /// Beyond [`Mrs::may_invalidate`], a registered region must give remote rights.
    pub(crate) fn peer_may_invalidate(&self, key: Rkey, holder: Holder<'_>) -> bool {
        let reach = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let is_out_of_reach = |found: &Key<R>| match &found.kind {
            Kind::Region(Mr { fast: Some(Fast { is_free: false, .. }), .. }) => !found.access.has_any(reach),
            _ => false,
        };
        self.may_invalidate(key, holder) && !self.keys.get(key.0).is_some_and(is_out_of_reach)
    }

    /// Invalidates a key. Returns false if the QP [may not](Mrs::may_invalidate).
    pub(crate) fn invalidate(&mut self, key: Rkey, holder: Holder<'_>) -> bool {
        if !self.may_invalidate(key, holder) {
            return false;
        }
        let found = self.keys.get_mut(key.0).expect("it was looked up just now");
        match &mut found.kind {
            Kind::Window(_) => self.unbind(key.0),
            Kind::Region(mr) => {
                mr.fast = mr.fast.map(|fast| Fast { is_free: true, ..fast });
                (found.access, found.iova, found.length) = (Access::NONE, 0, 0);
            }
        }
        true
    }
}

impl<R> Key<R> {
    /// Makes the key of a free region for fast registration.
    pub(crate) fn fast(key: u32, pd: PdId, max_pages: u32, region: R) -> Key<R> {
        let fast = Some(Fast { max_pages, is_free: true });
        let kind = Kind::Region(Mr { region, windows: 0, fast });
        Key { key, pd, access: Access::NONE, iova: 0, length: 0, kind }
    }
}
