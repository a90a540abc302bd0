//! Guests' memory that the uplink's device reads by DMA. Its IOMMU has to know this memory.

use anyhow::{Result, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most pages of one guest that devices reach.
///
/// DPDK keeps some 50 bytes for each page that is registered. That is 200 MiB for this many pages.
const MAX_PAGES: usize = 1 << 22;

/// Maps memory for a device's DMA.
pub trait DmaMapper: Send + Sync + std::fmt::Debug {
    /// Lets the device reach `len` bytes at this address.
    ///
    /// The bytes stay mapped in this process until [`DmaMapper::unmap`].
    ///
    /// # Errors
    /// The device, the IOMMU or the system has no room for it, or the device is gone.
    fn map(&self, start: usize, len: usize) -> Result<()>;
    /// Ends the device's access to these bytes. It is not using any of them.
    fn unmap(&self, start: usize, len: usize);
    /// Reports memory that could not be mapped, and why. Packets of its guest are copied instead.
    fn tell(&self, len: usize, why: &anyhow::Error);
}

/// A device for which the memory of one guest can be mapped.
#[derive(Clone, Debug)]
pub struct Dma {
    mapper: Arc<dyn DmaMapper>,
    /// The number of the guest's pages that are mapped.
    pages: Arc<AtomicUsize>,
}

/// Memory that the device can reach while this exists.
///
/// It has to be dropped before the memory is unmapped in this process.
#[derive(Debug)]
pub struct DmaMapping {
    dma: Dma,
    start: usize,
    len: usize,
}

impl Dma {
    /// Returns a handle for a guest without mapped pages.
    pub fn new(mapper: Arc<dyn DmaMapper>) -> Dma {
        Dma { mapper, pages: Arc::default() }
    }

    /// Returns a handle to this device for another guest, which has its own limit of pages.
    pub fn of_another(&self) -> Dma {
        Dma::new(self.mapper.clone())
    }

    /// Maps memory for the device. If that fails, it reports why and returns `None`.
    pub fn map(&self, start: *mut u8, len: usize) -> Option<DmaMapping> {
        let start = start.addr();
        let mapped = self.reserve(start, len).and_then(|pages| {
            let mapping = self.mapper.map(start, len);
            mapping.inspect_err(|_| _ = self.pages.fetch_sub(pages, Ordering::Relaxed))
        });
        match mapped {
            Ok(()) => Some(DmaMapping { dma: self.clone(), start, len }),
            Err(error) => {
                self.mapper.tell(len, &error);
                None
            }
        }
    }

    /// Counts these pages for the guest, and returns their number.
    fn reserve(&self, start: usize, len: usize) -> Result<usize> {
        let page = page_size(start, len);
        let pages = len / page;
        let add = |before: usize| before.checked_add(pages).filter(|sum| *sum <= MAX_PAGES);
        let before = self.pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        ensure!(
            before.is_ok(),
            "it is in {pages} pages of {} KiB, and a guest may have {MAX_PAGES} in all: give it hugepages",
            page >> 10
        );
        Ok(pages)
    }
}

impl Drop for DmaMapping {
    fn drop(&mut self) {
        let DmaMapping { dma, start, len } = self;
        dma.mapper.unmap(*start, *len);
        dma.pages.fetch_sub(*len / page_size(*start, *len), Ordering::Relaxed);
    }
}

/// Returns the largest page size of which both `start` and `len` are multiples.
pub(super) fn page_size(start: usize, len: usize) -> usize {
    1 << (start | len).trailing_zeros().min(usize::BITS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::without_provenance_mut;

    #[derive(Debug)]
    struct Takes;

    impl DmaMapper for Takes {
        fn map(&self, _: usize, len: usize) -> Result<()> {
            ensure!(len != 0x1000, "no room");
            Ok(())
        }

        fn unmap(&self, _: usize, _: usize) {}

        fn tell(&self, _: usize, _: &anyhow::Error) {}
    }

    #[test]
    fn pages_are_as_large_as_the_memory_is_aligned() {
        assert_eq!(page_size(0x20_0000, 0x40_0000), 2 << 20);
        assert_eq!(page_size(0x7f00_0000_1000, 0x40_0000), 0x1000);
        assert_eq!(page_size(0x1800, 0x1000), 0x800);
    }

    #[test]
    fn a_guest_has_so_many_pages_in_all_its_regions() {
        let dma = Dma::new(Arc::new(Takes));
        // The address is aligned to 4 KiB only, so the pages are that small.
        let map =
            |dma: &Dma, gib: usize| dma.map(without_provenance_mut(0x7000_0000_1000), (gib << 30) + 0x3000);
        let first = map(&dma, 10).expect("there is room");
        assert!(map(&dma, 8).is_none(), "with the first these are too many");
        assert!(map(&dma.of_another(), 8).is_some(), "another guest has its own");
        assert!(dma.map(without_provenance_mut(0x7000_0000_1000), 0x1000).is_none());
        drop(first);
        assert!(map(&dma, 15).is_some());
        assert_eq!(dma.pages.load(Ordering::Relaxed), 0);
    }
}
