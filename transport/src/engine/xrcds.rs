//! The lives of XRC domains.

use crate::engine::Engine;
use crate::error::Error;
use crate::id::{DeviceId, XrcdId};
use crate::memory::Region;

impl<R: Region> Engine<R> {
    /// Allocates an XRC domain. It has no owner: which objects are in it is the caller's business.
    pub fn alloc_xrcd(&mut self, device: DeviceId) -> Result<XrcdId, Error> {
        self.devices.find_mut(device)?.alloc_xrcd()
    }

    /// Deallocates it. `Busy` while XRC targets or shared receive queues are in it.
    pub fn dealloc_xrcd(&mut self, device: DeviceId, xrcd: XrcdId) -> Result<(), Error> {
        self.devices.find_mut(device)?.dealloc_xrcd(xrcd)
    }
}
