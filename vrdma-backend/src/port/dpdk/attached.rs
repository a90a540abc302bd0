//! Attaches and detaches devices.

use super::eal::{error_text, last_error, take_said};
use anyhow::{Result, bail, ensure};
use dpdk_sys as dpdk;
use std::collections::BTreeSet;
use std::mem::zeroed;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Returns the lock that serialises the attaching and detaching of devices in DPDK.
pub fn lock() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device of EAL whose port this process alone uses, until it is dropped.
#[derive(Debug)]
pub struct Attached(pub(super) Option<u16>);

/// Ports that an [`Attached`] owns.
static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

impl Attached {
    /// Takes the port, unless it is in use already.
    pub fn new(port: u16) -> Result<Attached> {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(taken.insert(port), "it is in use already");
        Ok(Attached(Some(port)))
    }

    /// Stops the port. After that the device uses no memory.
    pub fn stop(&self) {
        if let Some(port) = self.0 {
            // SAFETY: the port is ours. Frames that it had queued are freed.
            unsafe { dpdk::rte_eth_dev_stop(port) };
        }
    }

    /// Stops and closes the port, and removes its device from EAL. The caller holds [`lock`].
    pub fn detach(&mut self) {
        let Some(port) = self.0.take() else { return };
        let device = info(port).map(|info| info.device);
        // SAFETY: the port is ours, and nobody uses it after this. Frames that still exist belong
        // to pools, which are never freed. The device belonged to the port alone, so it is removed
        // with it.
        unsafe {
            dpdk::rte_eth_dev_stop(port);
            dpdk::rte_eth_dev_close(port);
            if let Ok(device) = device {
                dpdk::rte_dev_remove(device);
            }
        }
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&port);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.detach();
    }
}

/// Returns what the driver reports about a port's device.
pub fn info(port: u16) -> Result<dpdk::rte_eth_dev_info> {
    // SAFETY: all zeros is a valid value of this structure. DPDK fills it in.
    unsafe {
        let mut info = zeroed();
        check(dpdk::rte_eth_dev_info_get(port, &mut info), "what the device can do")?;
        Ok(info)
    }
}

/// Turns a DPDK result that is a negative error number into an error, with what DPDK logged.
pub fn check(result: i32, what: &str) -> Result<()> {
    if result >= 0 { Ok(()) } else { failed(what, &error_text(-result)) }
}

/// Turns a DPDK result of -1 into an error, with what DPDK logged. The reason is in DPDK's errno.
pub fn check_errno(result: i32, what: &str) -> Result<()> {
    if result >= 0 { Ok(()) } else { failed(what, &last_error().to_string()) }
}

fn failed(what: &str, why: &str) -> Result<()> {
    let said = take_said();
    bail!("{what}: {why}{}{said}", if said.is_empty() { "" } else { "\nDPDK says:\n" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_returns_1_below_zero_is_not_taken_for_forbidden() {
        assert!(check(-1, "x").unwrap_err().to_string().starts_with("x: Operation not permitted"));
        let error = check_errno(-1, "x").unwrap_err().to_string();
        assert!(error.starts_with("x: ") && !error.contains("not permitted"), "{error}");
        assert!(check(0, "x").is_ok() && check_errno(0, "x").is_ok());
    }
}
