//! Commands that make and change regions and memory windows.

use crate::base::error::Error;
use crate::base::id::{DeviceId, OwnerId, PdId};
use crate::base::memory::{Access, Region};
use crate::engine::Engine;
use crate::objects::device::keys::Rereg;
use crate::objects::mr::MrKind;
use crate::verbs::window::MwType;
use std::ops::Range;
use vrdma_wire::num::Rkey;

impl<R: Region> Engine<R> {
    /// Registers `length` bytes that requests name from `iova` on. Returns the key, which is both
    /// lkey and rkey.
    ///
    /// Returns `Invalid` if the addresses wrap, for unknown rights, and for remote writing or
    /// atomics without local writing (IBTA 10.6.3.1).
    pub fn reg_mr(
        &mut self,
        device: DeviceId,
        pd: PdId,
        access: Access,
        iova: u64,
        length: u64,
        region: R,
    ) -> Result<u32, Error> {
        self.core.devices.find_mut(device)?.reg_mr(pd, access, iova, length, region)
    }

    /// Makes a region for fast registration in a PD of [`OwnerId::KERNEL`]. Returns its first key.
    ///
    /// The region names nothing until a request registers memory with it
    /// ([`SendOp::RegMr`](crate::SendOp::RegMr)), of at most `max_pages` pages. That also changes
    /// the key.
    ///
    /// Returns `Denied` if the PD is another's. Returns `Invalid` for no pages, or more than
    /// [`MAX_PAGES`](crate::MAX_PAGES). Returns `NoResources` in the cases of [`Engine::reg_mr`].
    pub fn alloc_fast_mr(
        &mut self,
        device: DeviceId,
        pd: PdId,
        max_pages: u32,
        region: R,
    ) -> Result<u32, Error> {
        self.core.devices.find_mut(device)?.alloc_fast_mr(pd, max_pages, region)
    }

    /// Deregisters a region, and returns it.
    ///
    /// The low 8 bits of the key of a region for fast registration do not count, because requests
    /// may change them. A message in progress to or from the region fails at the next byte.
    ///
    /// Returns `Busy` while windows are bound to the region. Windows of QPs that are gone count
    /// until [`Engine::is_unbinding`] returns false.
    pub fn dereg_mr(&mut self, device: DeviceId, key: u32) -> Result<R, Error> {
        self.core.devices.find_mut(device)?.dereg_mr(key)
    }

    /// Changes a region (IBTA 11.2.8.6, ibv_rereg_mr(3)). Returns its key, and its old memory if it
    /// has new memory.
    ///
    /// With new memory the key is new, and the old one names nothing any more.
    ///
    /// Returns `NotFound` if there is no such region or PD. Returns `Busy` in the cases of
    /// [`Engine::dereg_mr`]. Returns `Denied` if the new PD is another context's. Returns `Invalid`
    /// in the cases of [`Engine::reg_mr`], or if the region is one for fast registration.
    pub fn rereg_mr(
        &mut self,
        device: DeviceId,
        key: u32,
        change: Rereg<R>,
    ) -> Result<(u32, Option<R>), Error> {
        self.core.devices.find_mut(device)?.rereg_mr(key, change)
    }

    /// Allocates a memory window, which names nothing until a request binds it. Returns its key
    /// until then.
    ///
    /// Returns `NoResources` if there are as many windows and regions as allowed.
    pub fn alloc_mw(&mut self, device: DeviceId, pd: PdId, mw_type: MwType) -> Result<Rkey, Error> {
        self.core.devices.find_mut(device)?.alloc_mw(pd, mw_type)
    }

    /// Deallocates a memory window, and unbinds it if it is bound.
    ///
    /// The low 8 bits of its key do not count, because requests may change them.
    pub fn dealloc_mw(&mut self, device: DeviceId, key: Rkey) -> Result<(), Error> {
        self.core.devices.find_mut(device)?.dealloc_mw(key)
    }

    /// Whether regions may still count windows of QPs that were reset or destroyed.
    ///
    /// The next calls of [`Engine::poll`] unbind these windows. They name nothing from the moment
    /// at which the QP was reset or destroyed.
    pub fn is_unbinding(&self, device: DeviceId) -> bool {
        self.core.devices.get(device.0).is_some_and(|device| device.mrs.is_unbinding())
    }

    /// Returns a region.
    pub fn region(&self, device: DeviceId, key: u32) -> Result<&R, Error> {
        let (_, mr) = self.core.devices.find(device)?.mrs.region(key).ok_or(Error::NotFound)?;
        Ok(&mr.region)
    }

    /// Returns the owner of a region's protection domain.
    pub fn mr_owner(&self, device: DeviceId, key: u32) -> Result<OwnerId, Error> {
        let device = self.core.devices.find(device)?;
        let (found, _) = device.mrs.region(key).ok_or(Error::NotFound)?;
        Ok(device.pd(found.pd)?.owner)
    }

    /// Returns the end of the range of indices that the device's regions have, for
    /// [`Engine::regions_mut`].
    pub fn region_indices(&self, device: DeviceId) -> usize {
        self.core.devices.find(device).map_or(0, |device| device.mrs.keys.indices())
    }

    /// Returns the regions in a range of indices, with their indices, so that the caller can
    /// translate them anew.
    ///
    /// A region keeps its index.
    pub fn regions_mut(
        &mut self,
        device: DeviceId,
        indices: Range<usize>,
    ) -> impl Iterator<Item = (usize, &mut R)> {
        let device = self.core.devices.get_mut(device.0).into_iter();
        let keys = device.flat_map(move |device| device.mrs.keys.range_mut(indices.clone()));
        keys.filter_map(|(at, found)| match &mut found.kind {
            MrKind::Region(mr) => Some((at, &mut mr.region)),
            MrKind::Window(_) => None,
        })
    }
}
