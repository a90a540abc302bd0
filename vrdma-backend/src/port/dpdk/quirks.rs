//! Properties that drivers do not report about themselves, as seen with DPDK 22.11.

use dpdk_sys as dpdk;
use std::ffi::CStr;

/// Drivers that have `rte_eth_tx_done_cleanup`, but stop sending a few frames after its use.
///
/// That happens if the frames had several segments. The driver takes a cleaned descriptor for full
/// until the descriptor says that it was sent. Only the last descriptor of a frame says so.
const BROKEN_BY_CLEANING: [&CStr; 1] = [c"net_e1000_igb"];

/// Drivers that do not support `rte_eth_tx_done_cleanup`, but free sent frames with each burst.
///
/// The burst may be empty.
const CLEAN_WITH_A_BURST: [&CStr; 1] = [c"net_vmxnet3"];

/// Drivers that promise link interrupts, but miss them while receive queues have interrupts.
const DEAF_TO_LINK: [&CStr; 2] = [c"net_e1000_em", c"net_vmxnet3"];

/// The quirks of a driver.
#[derive(Clone, Copy, Debug)]
pub struct Quirks {
    /// Whether it must not be asked to free sent frames.
    pub broken_by_cleaning: bool,
    /// Whether an empty burst frees sent frames.
    pub cleans_with_a_burst: bool,
    /// Whether its link has to be polled, because no interrupt reports it.
    pub deaf_to_link: bool,
}

impl Quirks {
    /// Returns the quirks of a device's driver.
    pub fn of(info: &dpdk::rte_eth_dev_info) -> Quirks {
        // SAFETY: drivers set this to a string of their own.
        let driver = unsafe { CStr::from_ptr(info.driver_name) };
        Quirks {
            broken_by_cleaning: BROKEN_BY_CLEANING.contains(&driver),
            cleans_with_a_burst: CLEAN_WITH_A_BURST.contains(&driver),
            deaf_to_link: DEAF_TO_LINK.contains(&driver),
        }
    }
}
