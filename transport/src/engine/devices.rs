//! Creation and removal of devices, and what each has as a whole: limits, counters, GIDs,
//! protection domains.

use crate::agenda::drains::SERVED;
use crate::agenda::sweeps::Task;
use crate::base::error::Error;
use crate::base::gid::GidEntry;
use crate::base::id::{DeviceId, OwnerId, PdId};
use crate::base::memory::Region;
use crate::engine::Engine;
use crate::objects::device::{Device, Remains};
use crate::verbs::completion::NoSink;
use crate::verbs::counters::Counters;
use crate::verbs::limits::{Limits, ObjectCounts};
use vrdma_wire::num::Mtu;

impl<R: Region> Engine<R> {
    /// The highest weight of a device.
    pub const MAX_WEIGHT: u32 = 100;

    /// Adds a device, with as much of these limits as the engine supports.
    pub fn add_device(&mut self, limits: Limits) -> DeviceId {
        let seed = self.rng.next();
        self.core.devices.add(Device::new(&limits, seed))
    }

    /// Sets how many bytes the pending requests of all devices may take together if all queues are
    /// full.
    ///
    /// This is what [`Limits::max_request_memory`] is for one device. At first there is no such
    /// limit.
    pub fn set_request_memory(&mut self, bytes: u64) {
        self.request_memory = bytes;
    }

    /// Sets the weight of a device: how much it gets of all turns, beside the weights of others.
    ///
    /// It is 1 for a new device, and stays when the device is reset. A record of the engine does
    /// not have it. Returns `Invalid` unless it is from 1 to [`Engine::MAX_WEIGHT`].
    pub fn set_weight(&mut self, device: DeviceId, weight: u32) -> Result<(), Error> {
        self.core.devices.find(device)?;
        if !(1..=Self::MAX_WEIGHT).contains(&weight) {
            return Err(Error::Invalid);
        }
        self.core.schedule.set_weight(device.0, weight);
        Ok(())
    }

    /// Returns the limits in force.
    pub fn limits(&self, device: DeviceId) -> Result<&Limits, Error> {
        Ok(&self.core.devices.find(device)?.limits)
    }

    /// Forgets everything of the device, without completions (guest reset).
    ///
    /// To its peers it does not exist any more. Counters go on. Returns what the device had, so
    /// that the caller can drop it where nobody waits for that.
    pub fn reset_device(&mut self, device: DeviceId) -> Option<Remains<R>> {
        self.core.devices.get(device.0)?;
        self.sweeps.forget(device.0);
        self.fan_outs.forget(device.0);
        self.core.devices.leave_groups(device);
        let deadlines = self.core.schedule.forget(device.0);
        self.core.devices.clear_gids(device);
        let remains = self.core.devices.get_mut(device.0).map(|known| known.clear(deadlines));
        self.forget_questions(device, SERVED);
        remains
    }

    /// Suspends a device, or lets it go on.
    ///
    /// The QPs of a suspended device make no progress by themselves. To their peers it is as if the
    /// device did not answer. Only posts and commands of the caller therefore touch its regions and
    /// completion queues.
    ///
    /// When the device goes on, everything that waited is tried at once. The next calls of
    /// [`Engine::poll`] do so, each for some QPs.
    pub fn set_suspended(&mut self, device: DeviceId, suspended: bool) {
        let Some(known) = self.core.devices.get_mut(device.0) else { return };
        if known.suspended == suspended {
            return;
        }
        known.suspended = suspended;
        if suspended {
            self.sweeps.suspend(device.0);
        } else {
            self.sweep(device.0, Task::GoOn);
            self.core.schedule.flushes.list(device.0);
        }
    }

    /// Removes the device, without completions. What it had is dropped at once.
    pub fn remove_device(&mut self, device: DeviceId) {
        if self.reset_device(device).is_some() {
            self.forget_questions(device, usize::MAX);
            self.core.devices.remove(device);
            // The next device with this index is another one.
            self.core.schedule.set_weight(device.0, 1);
            self.core.schedule.rates.forget(device.0);
            self.core.schedule.start_over(device.0);
        }
    }

    /// Returns how many objects of each kind the device has. They are 0 if it does not exist.
    pub fn counts(&self, device: DeviceId) -> ObjectCounts {
        self.core.devices.get(device.0).map(Device::counts).unwrap_or_default()
    }

    /// Returns the device's counters. They are 0 if it does not exist.
    pub fn counters(&self, device: DeviceId) -> &Counters {
        self.core.devices.get(device.0).map_or(const { &Counters::ZERO }, |device| &device.counters)
    }

    /// Sets the MTU of a device's port to that of its guest's network. No datagram may be longer.
    ///
    /// Returns `Invalid` if it is more than the port's limit.
    pub fn set_active_mtu(&mut self, device: DeviceId, mtu: Mtu) -> Result<(), Error> {
        let device = self.core.devices.find_mut(device)?;
        if mtu > device.limits.max_mtu {
            return Err(Error::Invalid);
        }
        device.active_mtu = mtu;
        Ok(())
    }

    /// Returns the MTU of a device's port.
    pub fn active_mtu(&self, device: DeviceId) -> Result<Mtu, Error> {
        Ok(self.core.devices.find(device)?.active_mtu)
    }

    /// Sets or clears an entry of the GID table.
    ///
    /// Returns `Denied` if another device has that GID in that VLAN. Returns `Invalid` for an index
    /// out of range, and for a multicast address.
    ///
    /// QPs that have the entry as their own address follow. If they are many, they follow in the
    /// next calls of [`Engine::poll`]. Until then ([`Engine::is_setting_gids`]) the device keeps
    /// the old address too.
    pub fn set_gid(&mut self, device: DeviceId, index: u32, entry: Option<GidEntry>) -> Result<(), Error> {
        self.core.devices.set_gid(device, index, entry)?;
        self.sweep_now(device.0, Task::Sources, &mut NoSink);
        Ok(())
    }

    /// Whether some QPs have not yet followed a change of the GID table.
    pub fn is_setting_gids(&self, device: DeviceId) -> bool {
        self.sweeps.has(device.0, Task::Sources)
    }

    /// Returns the device that has an address in a VLAN.
    pub fn gid_owner(&self, entry: GidEntry) -> Option<DeviceId> {
        self.core.devices.gids.owner(entry).map(DeviceId)
    }

    /// Returns an entry of the GID table. The address of an empty entry is zero.
    pub fn gid(&self, device: DeviceId, index: u32) -> Result<GidEntry, Error> {
        self.core.devices.find(device)?.gids.get(index as usize).copied().ok_or(Error::Invalid)
    }

    /// Allocates a protection domain.
    pub fn alloc_pd(&mut self, device: DeviceId, owner: OwnerId) -> Result<PdId, Error> {
        self.core.devices.find_mut(device)?.alloc_pd(owner)
    }

    /// Deallocates a protection domain.
    ///
    /// Returns `Busy` while MRs, memory windows, shared receive queues or QPs use it.
    pub fn dealloc_pd(&mut self, device: DeviceId, pd: PdId) -> Result<(), Error> {
        self.core.devices.find_mut(device)?.dealloc_pd(pd)
    }

    /// Returns the owner of a protection domain.
    pub fn pd_owner(&self, device: DeviceId, pd: PdId) -> Result<OwnerId, Error> {
        Ok(self.core.devices.find(device)?.pd(pd)?.owner)
    }
}
