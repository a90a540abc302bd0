//! Regions and memory windows, as commands make and change them.

use crate::base::error::Error;
use crate::base::id::{DeviceId, OwnerId, PdId};
use crate::base::memory::{Access, Region};
use crate::engine::Engine;
use crate::objects::device::keys::Rereg;
use crate::objects::mr::Kind;
use crate::verbs::window::MwType;
use std::ops::Range;
use vrdma_wire::num::Rkey;

impl<R: Region> Engine<R> {
    /// Registers `length` bytes that requests name from `iova` on; the key is both lkey and rkey.
    /// `Invalid` if the addresses wrap, for unknown rights, and for remote writing or atomics
    /// without local writing (IBTA 10.6.3.1).
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

    /// Makes a region for fast registration in a PD of [`OwnerId::KERNEL`], which names nothing
    /// until a request registers memory with it ([`SendOp::RegMr`](crate::SendOp::RegMr)), of at
    /// most `max_pages` pages; its key until then. `Denied`: the PD is another's. `Invalid`: no
    /// pages, or more than [`MAX_PAGES`](crate::MAX_PAGES). `NoResources` as of [`Engine::reg_mr`].
    pub fn alloc_fast_mr(
        &mut self,
        device: DeviceId,
        pd: PdId,
        max_pages: u32,
        region: R,
    ) -> Result<u32, Error> {
        self.core.devices.find_mut(device)?.alloc_fast_mr(pd, max_pages, region)
    }

    /// Deregisters a region and gives it back. Of one for fast registration the low 8 bits of the
    /// key do not count: requests may change them. A message in progress to or from it fails at the
    /// next byte. `Busy` while windows are bound to it (those of QPs that are gone count until
    /// [`Engine::is_unbinding`] says that they are not any more).
    pub fn dereg_mr(&mut self, device: DeviceId, key: u32) -> Result<R, Error> {
        self.core.devices.find_mut(device)?.dereg_mr(key)
    }

    /// Changes a region: its key from now on, and with new memory that which it had (IBTA 11.2.8.6,
    /// ibv_rereg_mr(3)). With new memory the key is new, and the old one names nothing any more.
    /// `NotFound`: there is no such region or PD. `Busy` as of [`Engine::dereg_mr`]. `Denied`: the
    /// new PD is another context's. `Invalid` as of [`Engine::reg_mr`], or the region is one for
    /// fast registration.
    pub fn rereg_mr(
        &mut self,
        device: DeviceId,
        key: u32,
        change: Rereg<R>,
    ) -> Result<(u32, Option<R>), Error> {
        self.core.devices.find_mut(device)?.rereg_mr(key, change)
    }

    /// Allocates a memory window, which shows nothing until a request binds it; its key until then.
    /// `NoResources`: there are as many windows and regions as may be.
    pub fn alloc_mw(&mut self, device: DeviceId, pd: PdId, mw_type: MwType) -> Result<Rkey, Error> {
        self.core.devices.find_mut(device)?.alloc_mw(pd, mw_type)
    }

    /// Deallocates a memory window, which is unbound if it is bound. The low 8 bits of its key do
    /// not count: requests may change them.
    pub fn dealloc_mw(&mut self, device: DeviceId, key: Rkey) -> Result<(), Error> {
        self.core.devices.find_mut(device)?.dealloc_mw(key)
    }

    /// Whether regions may still count as having windows of QPs that were reset or destroyed: the
    /// next calls of [`Engine::poll`] unbind them. By themselves these windows name nothing from
    /// the moment when the QP was.
    pub fn is_unbinding(&self, device: DeviceId) -> bool {
        self.core.devices.get(device.0).is_some_and(|device| device.mrs.is_unbinding())
    }

    /// A region.
    pub fn region(&self, device: DeviceId, key: u32) -> Result<&R, Error> {
        let (_, mr) = self.core.devices.find(device)?.mrs.region(key).ok_or(Error::NotFound)?;
        Ok(&mr.region)
    }

    /// Who owns the protection domain of a region.
    pub fn mr_owner(&self, device: DeviceId, key: u32) -> Result<OwnerId, Error> {
        let device = self.core.devices.find(device)?;
        let (found, _) = device.mrs.region(key).ok_or(Error::NotFound)?;
        Ok(device.pd(found.pd)?.owner)
    }

    /// How many indices regions of the device may have, for [`Engine::regions_mut`].
    pub fn region_indices(&self, device: DeviceId) -> usize {
        self.core.devices.find(device).map_or(0, |device| device.mrs.keys.indices())
    }

    /// The regions with these indices and theirs, to translate them anew. A region keeps its index.
    pub fn regions_mut(
        &mut self,
        device: DeviceId,
        indices: Range<usize>,
    ) -> impl Iterator<Item = (usize, &mut R)> {
        let device = self.core.devices.get_mut(device.0).into_iter();
        let keys = device.flat_map(move |device| device.mrs.keys.range_mut(indices.clone()));
        keys.filter_map(|(at, found)| match &mut found.kind {
            Kind::Region(mr) => Some((at, &mut mr.region)),
            Kind::Window(_) => None,
        })
    }
}
