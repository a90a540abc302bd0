//! Maps guests' memory in the IOMMU of a PCI device.

use super::attached::{check_errno, info};
use crate::port::dma::{DmaMapper, page_size};
use crate::port::pins::{Book, Pinner};
use crate::ratelimit::{RateLimit, limited};
use anyhow::{Context, Result, ensure};
use dpdk_sys as dpdk;
use std::ptr::{NonNull, null_mut, with_exposed_provenance_mut};
use std::sync::{Mutex, PoisonError};

/// The smallest page size.
const PAGE: usize = 4096;

/// The DMA mappings of a device that may be removed. I/O addresses equal virtual addresses.
#[derive(Debug)]
pub struct DeviceDma {
    name: String,
    book: Book<Device>,
    told: Mutex<RateLimit>,
}

#[derive(Debug)]
struct Device(NonNull<dpdk::rte_device>);

// SAFETY: DPDK's calls with it may come from any thread. The book uses it only while EAL has it.
unsafe impl Send for Device {}
// SAFETY: as for `Send`: any thread may make these calls.
unsafe impl Sync for Device {}

impl DeviceDma {
    /// Returns the mappings of a port's device. EAL has this device until [`DeviceDma::detach`].
    pub fn new(name: &str, port: u16) -> Result<DeviceDma> {
        let device = NonNull::new(info(port)?.device).context("a port without a device")?;
        Ok(DeviceDma { name: name.to_owned(), book: Book::new(Device(device)), told: Mutex::default() })
    }

    /// Unmaps everything, because the device is about to be removed. It has been stopped.
    pub fn detach(&self) {
        self.book.detach();
    }
}

impl DmaMapper for DeviceDma {
    fn map(&self, start: usize, len: usize) -> Result<()> {
        self.book.map(start, len)
    }

    fn unmap(&self, start: usize, len: usize) {
        self.book.unmap(start, len);
    }

    fn tell(&self, len: usize, why: &anyhow::Error) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        limited!(told, Warn;
            "uplink {}: {} MiB of a guest's memory are not mapped for its DMA ({why:#}): that guest's packets are copied",
            self.name,
            len >> 20);
    }
}

impl Pinner for Device {
    fn map(&self, start: usize, len: usize) -> Result<()> {
        let page = page_size(start, len);
        ensure!(page >= PAGE, "it is not in whole pages");
        let at = with_exposed_provenance_mut(start);
        // SAFETY: EAL runs, and the memory stays mapped until it is unmapped here. Without a table
        // of I/O addresses, EAL only records that the memory exists.
        let registered = unsafe { dpdk::rte_extmem_register(at, len, null_mut(), 0, page) };
        check_errno(registered, "DPDK does not take it")?;
        // SAFETY: EAL has the device until `Book::detach` has returned, which waits for this call.
        let mapped = unsafe { dpdk::rte_dev_dma_map(self.0.as_ptr(), at, start as u64, len) };
        check_errno(mapped, "the IOMMU does not take it").inspect_err(|_| {
            // SAFETY: the memory was just registered.
            unsafe { dpdk::rte_extmem_unregister(at, len) };
        })
    }

    fn unmap(&self, start: usize, len: usize) {
        let at = with_exposed_provenance_mut(start);
        // SAFETY: as in `map`, which mapped and registered this memory.
        let result = unsafe { dpdk::rte_dev_dma_unmap(self.0.as_ptr(), at, start as u64, len) };
        if let Err(error) = check_errno(result, "unmapping a guest's memory for DMA") {
            log::error!("uplink: {error:#}");
        }
        // SAFETY: as above.
        unsafe { dpdk::rte_extmem_unregister(at, len) };
    }
}
