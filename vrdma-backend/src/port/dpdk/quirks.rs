//! What drivers do not say of themselves, as seen with DPDK 22.11.

use dpdk_sys as dpdk;
use std::ffi::CStr;

/// Drivers that can be asked for what was sent, but send nothing any more some frames later if
/// those had several pieces: what is cleaned counts as full until its descriptors say that it was
/// sent, which only a frame's last one does.
const BROKEN_BY_CLEANING: [&CStr; 1] = [c"net_e1000_igb"];

/// Drivers that cannot be asked for what was sent, but give it back with each burst, with an empty
/// one too.
const CLEAN_WITH_A_BURST: [&CStr; 1] = [c"net_vmxnet3"];

/// Drivers that promise an interrupt when the link changes and do not hear of it while receive
/// queues have interrupts.
const DEAF_TO_LINK: [&CStr; 2] = [c"net_e1000_em", c"net_vmxnet3"];

/// What of it is true of a driver.
#[derive(Clone, Copy, Debug)]
pub struct Quirks {
    /// It may not be asked for what was sent.
    pub broken_by_cleaning: bool,
    /// An empty burst gives back what was sent.
    pub cleans_with_a_burst: bool,
    /// Its link has to be looked at, since no interrupt tells of it.
    pub deaf_to_link: bool,
}

impl Quirks {
    /// Those of the driver of a device.
    pub fn of(info: &dpdk::rte_eth_dev_info) -> Quirks {
        // SAFETY: drivers name themselves by a string of their own.
        let driver = unsafe { CStr::from_ptr(info.driver_name) };
        Quirks {
            broken_by_cleaning: BROKEN_BY_CLEANING.contains(&driver),
            cleans_with_a_burst: CLEAN_WITH_A_BURST.contains(&driver),
            deaf_to_link: DEAF_TO_LINK.contains(&driver),
        }
    }
}
