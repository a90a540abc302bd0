//! Regions and memory windows in the record.

use super::check_mr;
use crate::base::id::{OwnerId, PdId};
use crate::base::memory::Access;
use crate::objects::device::{Device, DeviceParts};
use crate::objects::mr::{KEYS, Key, Kind};
use crate::save::{Violation, record, to_qpn};
use crate::verbs::fast::{Fast, MAX_PAGES};
use crate::verbs::window::{Bind, Binder, Bound, MwType, QpLife, Window};
use vrdma_wire::num::{Lkey, Qpn, Rkey};

impl<R> Key<R> {
    /// Returns the record of a region.
    pub(in crate::objects::device) fn save_region(&self) -> Option<record::MemoryRegion> {
        let Key { key, pd, access, iova, length, kind: Kind::Region(ref mr) } = *self else { return None };
        let fast = mr.fast.map(|Fast { max_pages, is_free }| record::FastRegion { max_pages, is_free });
        Some(record::MemoryRegion { key, pd: pd.0, access: access.0, iova, length, fast })
    }
}

impl<R> Device<R> {
    /// Returns the records of memory windows. A window of a QP that is gone is not bound.
    pub(in crate::objects::device) fn save_windows(&self) -> Vec<record::MemoryWindow> {
        let save = |found: &Key<R>| {
            let Key { key, pd, kind: Kind::Window(Window { mw_type, bound }), .. } = found else {
                return None;
            };
            let bound = bound.as_ref().and_then(|bound| self.save_bound(found, bound));
            Some(record::MemoryWindow { key: *key, pd: pd.0, mw_type: (*mw_type).into(), bound })
        };
        self.parts.mrs.keys.iter().filter_map(save).collect()
    }

    fn save_bound(&self, window: &Key<R>, bound: &Bound) -> Option<record::Binding> {
        let Bound { region: lkey, offset, qp } = *bound;
        if qp.is_some_and(|(qpn, life)| self.qp(qpn).is_none_or(|qp| qp.life != life)) {
            return None;
        }
        let (region, _) = self.parts.mrs.region(lkey).expect("a region stays while windows are bound to it");
        let Key { access, length, iova: _, .. } = *window;
        let (addr, qpn) = (region.iova + offset, qp.map(|(qpn, _)| qpn.number()));
        Some(record::Binding { lkey, access: access.0, addr, length, qpn })
    }

    /// Restores regions, and windows that are not bound yet, in the order of their indices.
    pub(in crate::objects::device) fn restore_keys(
        &mut self,
        record: &record::Device,
        region: &mut impl FnMut(&record::MemoryRegion) -> Option<R>,
    ) -> Result<(), Violation> {
        self.parts.mrs.keys.restore_numbers(&record.mr_numbers)?;
        let (mut mrs, mut windows) = (record.mrs.iter().peekable(), record.windows.iter().peekable());
        loop {
            let pd = match (mrs.peek(), windows.peek()) {
                (None, None) => break,
                (Some(mr), window) if window.is_none_or(|it| KEYS.index(mr.key) < KEYS.index(it.key)) => {
                    self.restore_region(mr, region)?;
                    mrs.next().map(|mr| mr.pd)
                }
                _ => {
                    let window = windows.next();
                    let put = |&record::MemoryWindow { key, pd, mw_type, .. }: &record::MemoryWindow| {
                        self.pd(PdId(pd)).map_err(|_| Violation::NoPd)?;
                        self.parts.mrs.put_window(key, PdId(pd), mw_type.into())
                    };
                    window.map(put).transpose()?;
                    window.map(|window| window.pd)
                }
            };
            self.pd_used(PdId(pd.expect("one of them was there")), true);
        }
        self.parts.mrs.keys.check_restored()
    }

    fn restore_region(
        &mut self,
        mr: &record::MemoryRegion,
        region: &mut impl FnMut(&record::MemoryRegion) -> Option<R>,
    ) -> Result<(), Violation> {
        let record::MemoryRegion { key, pd, access, iova, length, ref fast } = *mr;
        let (pd, access) = (PdId(pd), Access(access));
        let owner = self.pd(pd).map_err(|_| Violation::NoPd)?.owner;
        check_mr(access, iova, length).map_err(|_| Violation::MemoryRegion)?;
        let fast =
            fast.as_ref().map(|&record::FastRegion { max_pages, is_free }| Fast { max_pages, is_free });
        if fast.is_some_and(|fast| !may_be_fast(fast, owner, access, (iova, length))) {
            return Err(Violation::MemoryRegion);
        }
        let region = region(mr).ok_or(Violation::NoRegion)?;
        let mut key = Key::region(key, pd, access, (iova, length), region);
        if let Kind::Region(mr) = &mut key.kind {
            mr.fast = fast;
        }
        self.parts.mrs.keys.put(key, false)
    }

    /// Restores the bindings of windows, after the QPs.
    pub(in crate::objects::device) fn restore_bindings(
        &mut self,
        record: &record::Device,
    ) -> Result<(), Violation> {
        let Device { parts: DeviceParts { mrs, .. }, qps, .. } = self;
        for window in &record.windows {
            let Some(record::Binding { lkey, access, addr, length, qpn }) = window.bound else { continue };
            let (rkey, access) = (Rkey(window.key), Access(access));
            let bind = Bind { rkey, new_rkey: rkey, lkey: Lkey(lkey), access, addr, length };
            let by = match (window.mw_type.into(), qpn) {
                (MwType::Type1, None) => {
                    Binder { pd: PdId(window.pd), qpn: Qpn::default(), life: &mut { QpLife::NONE } }
                }
                (MwType::Type2B, Some(qpn)) => {
                    let entry = qps.get_mut(to_qpn(qpn)?.number()).ok_or(Violation::MemoryWindow)?;
                    let qp = &mut entry.qp;
                    Binder { pd: qp.pd, qpn: qp.qpn, life: &mut qp.life }
                }
                _ => return Err(Violation::MemoryWindow),
            };
            // A binding of length 0 is no binding.
            if length == 0 || mrs.bind(&bind, by).is_err() {
                return Err(Violation::MemoryWindow);
            }
        }
        Ok(())
    }
}

/// Whether a region for fast registration may have these parameters.
fn may_be_fast(fast: Fast, owner: OwnerId, access: Access, (iova, length): (u64, u64)) -> bool {
    let fits = match fast.is_free {
        true => (access, iova, length) == (Access::NONE, 0, 0),
        false => Access::ALL.contains(access) && length <= fast.max_length(),
    };
    owner == OwnerId::KERNEL && (1..=MAX_PAGES).contains(&fast.max_pages) && fits
}
