//! Guests' memory in the IOMMU of a PCI device.

use super::attached::{check_errno, info};
use crate::port::dma::DmaMapper;
use crate::ratelimit::RateLimit;
use anyhow::{Context, Result, ensure};
use dpdk_sys as dpdk;
use std::collections::BTreeMap;
use std::ptr::{NonNull, null_mut, with_exposed_provenance_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// DPDK keeps some 50 bytes for each page of memory that it is told of: 200 MiB for so many.
const MAX_PAGES: usize = 1 << 22;
/// Smallest page.
const PAGE: usize = 4096;

/// The IOMMU's view of a device that comes and goes. I/O and virtual address are one.
#[derive(Debug)]
pub struct DeviceDma {
    name: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// While it is there.
    device: Option<Device>,
    /// What it reaches: address and length.
    ranges: BTreeMap<usize, usize>,
    told: RateLimit,
}

#[derive(Clone, Copy, Debug)]
struct Device(NonNull<dpdk::rte_device>);

// SAFETY: DPDK's calls with it may come from any thread; `State::device` names it only while EAL has it.
unsafe impl Send for Device {}

impl DeviceDma {
    /// That of a port's device, which EAL has until [`DeviceDma::detach`].
    pub fn new(name: &str, port: u16) -> Result<DeviceDma> {
        let device = NonNull::new(info(port)?.device).context("a port without a device")?;
        let state =
            State { device: Some(Device(device)), ranges: BTreeMap::new(), told: RateLimit::default() };
        Ok(DeviceDma { name: name.to_owned(), state: Mutex::new(state) })
    }

    /// The device is about to go: it reaches nothing from now on, and is stopped.
    pub fn detach(&self) {
        let mut state = self.state();
        if let Some(device) = state.device.take() {
            state.ranges.iter().for_each(|(start, len)| device.unmap(*start, *len));
        }
        state.ranges.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DmaMapper for DeviceDma {
    fn map(&self, start: usize, len: usize) -> Result<()> {
        let mut state = self.state();
        let device = state.device.context("the device is gone")?;
        device.map(start, len)?;
        state.ranges.insert(start, len);
        Ok(())
    }

    fn unmap(&self, start: usize, len: usize) {
        let mut state = self.state();
        if let Some(device) = state.device.filter(|_| state.ranges.remove(&start).is_some()) {
            device.unmap(start, len);
        }
    }

    fn tell(&self, len: usize, why: &anyhow::Error) {
        let text = || {
            format!(
                "uplink {}: {} MiB of a guest's memory are not mapped for its DMA ({why:#}): that guest's packets are copied",
                self.name,
                len >> 20
            )
        };
        self.state().told.log(log::Level::Warn, text);
    }
}

impl Device {
    fn map(self, start: usize, len: usize) -> Result<()> {
        let page = page_size(start, len);
        ensure!(page >= PAGE, "it is not in whole pages");
        ensure!(
            len / page <= MAX_PAGES,
            "it is in {} pages of {} KiB, which are too many: give the guest hugepages",
            len / page,
            page >> 10
        );
        let at = with_exposed_provenance_mut(start);
        // SAFETY: EAL runs; the memory is mapped until it is unmapped here. Without a table of I/O addresses EAL only keeps in mind that it is there.
        let registered = unsafe { dpdk::rte_extmem_register(at, len, null_mut(), 0, page) };
        check_errno(registered, "DPDK does not take it")?;
        // SAFETY: EAL has the device while `State::device` names it, which holds its lock meanwhile.
        let mapped = unsafe { dpdk::rte_dev_dma_map(self.0.as_ptr(), at, start as u64, len) };
        check_errno(mapped, "the IOMMU does not take it").inspect_err(|_| {
            // SAFETY: it was just registered.
            unsafe { dpdk::rte_extmem_unregister(at, len) };
        })
    }

    fn unmap(self, start: usize, len: usize) {
        let at = with_exposed_provenance_mut(start);
        // SAFETY: as in `map`, which made both known.
        let result = unsafe { dpdk::rte_dev_dma_unmap(self.0.as_ptr(), at, start as u64, len) };
        if let Err(error) = check_errno(result, "unmapping a guest's memory for DMA") {
            log::error!("uplink: {error:#}");
        }
        // SAFETY: as above.
        unsafe { dpdk::rte_extmem_unregister(at, len) };
    }
}

/// The largest page size of which both are multiples.
fn page_size(start: usize, len: usize) -> usize {
    1 << (start | len).trailing_zeros().min(usize::BITS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_as_large_as_the_memory_is_aligned() {
        assert_eq!(page_size(0x20_0000, 0x40_0000), 2 << 20);
        assert_eq!(page_size(0x7f00_0000_1000, 0x40_0000), PAGE);
        assert_eq!(page_size(0x1800, 0x1000), 0x800);
    }
}
