//! Memory keys of a device: regions and windows are made, changed and removed.

mod save;

use super::Device;
use crate::base::error::Error;
use crate::base::id::{OwnerId, PdId};
use crate::base::memory::Access;
use crate::objects::mr::{Key, may_be_region};
use crate::verbs::fast::MAX_PAGES;
use crate::verbs::window::MwType;
use vrdma_wire::num::{Qpn, Rkey};

/// Changes that [`Engine::rereg_mr`](crate::Engine::rereg_mr) makes to a region. `None` keeps the
/// old value.
#[derive(Debug)]
pub struct Rereg<R> {
    /// The PD.
    pub pd: Option<PdId>,
    /// The rights.
    pub access: Option<Access>,
    /// The address of the first byte, the length in bytes, and the memory.
    pub memory: Option<(u64, u64, R)>,
}

impl<R> Device<R> {
    pub(crate) fn reg_mr(
        &mut self,
        pd: PdId,
        access: Access,
        iova: u64,
        length: u64,
        region: R,
    ) -> Result<u32, Error> {
        self.pd(pd)?;
        check_mr(access, iova, length)?;
        let step = self.step();
        let make = |key| Key::region(key, pd, access, (iova, length), region);
        let key = self.parts.mrs.keys.insert(|tag| tag.wrapping_add(step), make).ok_or(Error::NoResources)?;
        self.pd_used(pd, true);
        Ok(key)
    }

    pub(crate) fn alloc_fast_mr(&mut self, pd: PdId, max_pages: u32, region: R) -> Result<u32, Error> {
        if self.pd(pd)?.owner != OwnerId::KERNEL {
            return Err(Error::Denied);
        }
        if !(1..=MAX_PAGES).contains(&max_pages) {
            return Err(Error::Invalid);
        }
        let step = self.step();
        let make = |key| Key::fast(key, pd, max_pages, region);
        let key = self.parts.mrs.keys.insert(|tag| tag.wrapping_add(step), make).ok_or(Error::NoResources)?;
        self.pd_used(pd, true);
        Ok(key)
    }

    /// Returns the region of a key for a change or a removal. Returns `Busy` while windows are
    /// bound to it.
    fn free_region(&self, key: u32) -> Result<&Key<R>, Error> {
        let (found, mr) = self.parts.mrs.region(key).ok_or(Error::NotFound)?;
        if mr.has_windows() { Err(Error::Busy) } else { Ok(found) }
    }

    pub(crate) fn dereg_mr(&mut self, key: u32) -> Result<R, Error> {
        let key = self.parts.mrs.key_now(key);
        let pd = self.free_region(key)?.pd;
        self.pd_used(pd, false);
        Ok(self.parts.mrs.take_region(key))
    }

    pub(crate) fn rereg_mr(&mut self, key: u32, change: Rereg<R>) -> Result<(u32, Option<R>), Error> {
        let Key { pd: old_pd, access, iova, length, .. } = *self.free_region(key)?;
        let pd = change.pd.unwrap_or(old_pd);
        if self.pd(pd)?.owner != self.pd(old_pd)?.owner {
            return Err(Error::Denied);
        }
        if self.parts.mrs.region(key).is_some_and(|(_, mr)| mr.fast.is_some()) {
            return Err(Error::Invalid);
        }
        let access = change.access.unwrap_or(access);
        let (range, region) = match change.memory {
            Some((iova, length, region)) => ((iova, length), Some(region)),
            None => ((iova, length), None),
        };
        check_mr(access, range.0, range.1)?;
        self.pd_used(pd, true);
        self.pd_used(old_pd, false);
        Ok(self.parts.mrs.change_region(key, (pd, access), range, region))
    }

    pub(crate) fn alloc_mw(&mut self, pd: PdId, mw_type: MwType) -> Result<Rkey, Error> {
        self.pd(pd)?;
        let step = self.step();
        let key =
            self.parts.mrs.add_window(|tag| tag.wrapping_add(step), pd, mw_type).ok_or(Error::NoResources)?;
        self.pd_used(pd, true);
        Ok(key)
    }

    pub(crate) fn dealloc_mw(&mut self, key: Rkey) -> Result<(), Error> {
        let pd = self.parts.mrs.remove_window(key).ok_or(Error::NotFound)?;
        self.pd_used(pd, false);
        Ok(())
    }

    /// Returns the step from the last tag of a key's index to the next: any other tag.
    fn step(&mut self) -> u16 {
        1 + (self.rng.next() % 255) as u16
    }

    /// Invalidates the windows of a QP that is reset or destroyed.
    pub(crate) fn give_windows_up(&mut self, qpn: Qpn) {
        let life = self.qps.known(qpn).qp.life;
        self.parts.mrs.qp_gone(life);
    }

    /// Unbinds further windows of QPs that are gone, while `left` allows. Returns whether there may
    /// be more.
    pub(crate) fn unbind_some(&mut self, left: &mut usize) -> bool {
        let Device { parts: super::DeviceParts { mrs, .. }, qps, .. } = self;
        mrs.unbind_some(left, |qpn| qps.get(qpn.number()).map(|entry| entry.qp.life));
        mrs.is_unbinding()
    }
}

fn check_mr(access: Access, iova: u64, length: u64) -> Result<(), Error> {
    if may_be_region(access, iova, length) { Ok(()) } else { Err(Error::Invalid) }
}
