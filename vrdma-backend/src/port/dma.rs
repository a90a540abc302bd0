//! Memory of guests that the uplink's device reads by itself: its IOMMU has to know it.

use anyhow::Result;
use std::sync::Arc;

/// What makes memory known to a device.
pub trait DmaMapper: Send + Sync + std::fmt::Debug {
    /// Lets the device reach `len` bytes at this address, which stay mapped in this process until [`DmaMapper::unmap`].
    ///
    /// # Errors
    /// The device, the IOMMU or the system has no room for it, or the device is gone.
    fn map(&self, start: usize, len: usize) -> Result<()>;
    /// The device reaches them no longer. It has none of them in use.
    fn unmap(&self, start: usize, len: usize);
    /// Memory that could not be mapped, and why: its guest's packets are copied.
    fn tell(&self, len: usize, why: &anyhow::Error);
}

/// A device to which guests' memory can be made known.
#[derive(Clone, Debug)]
pub struct Dma(Arc<dyn DmaMapper>);

/// Memory that the device can reach for as long as this lives. To be dropped before the memory is unmapped in this process.
#[derive(Debug)]
pub struct DmaMapping {
    dma: Dma,
    start: usize,
    len: usize,
}

impl Dma {
    /// That of a mapper.
    pub fn new(mapper: Arc<dyn DmaMapper>) -> Dma {
        Dma(mapper)
    }

    /// Makes memory known; none if that cannot be, which is said.
    pub fn map(&self, start: *mut u8, len: usize) -> Option<DmaMapping> {
        let start = start.addr();
        match self.0.map(start, len) {
            Ok(()) => Some(DmaMapping { dma: self.clone(), start, len }),
            Err(error) => {
                self.0.tell(len, &error);
                None
            }
        }
    }
}

impl Drop for DmaMapping {
    fn drop(&mut self) {
        self.dma.0.unmap(self.start, self.len);
    }
}
