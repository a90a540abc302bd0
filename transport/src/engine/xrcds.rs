//! Allocation and deallocation of XRC domains.

use crate::base::error::Error;
use crate::base::id::{DeviceId, XrcdId};
use crate::base::memory::Region;
use crate::engine::Engine;

impl<R: Region> Engine<R> {
    /// Allocates an XRC domain.
    ///
    /// It has no owner. The caller decides which objects are in it.
    pub fn alloc_xrcd(&mut self, device: DeviceId) -> Result<XrcdId, Error> {
        self.core.devices.find_mut(device)?.alloc_xrcd()
    }

    /// Deallocates an XRC domain. Returns `Busy` while XRC targets or shared receive queues are in
    /// it.
    pub fn dealloc_xrcd(&mut self, device: DeviceId, xrcd: XrcdId) -> Result<(), Error> {
        self.core.devices.find_mut(device)?.dealloc_xrcd(xrcd)
    }
}
