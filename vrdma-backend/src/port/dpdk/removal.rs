//! Notices that the host wants a device back, because a NIC is about to be unplugged.

use super::attached::{check, info};
use anyhow::{Result, ensure};
use dpdk_sys as dpdk;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Learns from EAL that a device is to be removed. Its kernel driver waits until it is released.
#[derive(Debug)]
pub struct Removal {
    device: CString,
    wanted: Arc<AtomicBool>,
}

impl Removal {
    /// Watches a port's device, which EAL has.
    ///
    /// # Errors
    /// EAL has no memory left.
    pub fn watch(port: u16) -> Result<Removal> {
        let device = info(port)?.device;
        ensure!(!device.is_null(), "a port without a device");
        // SAFETY: EAL has the device while it has the port. Its name is a string, which is copied.
        let device = unsafe { CStr::from_ptr(dpdk::rte_dev_name(device)) }.to_owned();
        let removal = Removal { device, wanted: Arc::default() };
        let argument = removal.argument();
        // SAFETY: EAL runs and copies the name. The flag lives until `drop` has unregistered the
        // callback.
        let result = unsafe {
            dpdk::rte_dev_event_callback_register(removal.device.as_ptr(), Some(on_event), argument)
        };
        check(result, "watching for its removal")?;
        Ok(removal)
    }

    /// Whether the host waits for the device.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Returns the callback's argument.
    fn argument(&self) -> *mut c_void {
        Arc::as_ptr(&self.wanted).cast_mut().cast()
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        // SAFETY: EAL runs. It refuses (EAGAIN) while the callback runs, which does not take long.
        let take_back = || unsafe {
            dpdk::rte_dev_event_callback_unregister(self.device.as_ptr(), Some(on_event), self.argument())
        };
        while take_back() == -libc::EAGAIN {
            std::thread::yield_now();
        }
    }
}

/// Sets the flag of a [`Removal`]. EAL's own thread calls this.
unsafe extern "C" fn on_event(_: *const c_char, event: dpdk::rte_dev_event_type, argument: *mut c_void) {
    if event == dpdk::RTE_DEV_EVENT_REMOVE {
        // SAFETY: the argument is the flag of a `Removal`, which unregisters this callback before
        // it is dropped.
        unsafe { &*argument.cast::<AtomicBool>() }.store(true, Ordering::Relaxed);
    }
}
