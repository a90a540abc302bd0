//! Devices come and go.

use super::eal::{error_text, take_said};
use anyhow::{Result, bail, ensure};
use dpdk_sys as dpdk;
use std::collections::BTreeSet;
use std::mem::zeroed;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// DPDK lets devices come and go one at a time.
pub fn lock() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device that EAL has, with a port that is ours alone until this is dropped.
#[derive(Debug)]
pub struct Attached(pub(super) Option<u16>);

/// Ports that somebody of us has.
static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

impl Attached {
    /// The port is ours from now on, if it is nobody else's.
    pub fn new(port: u16) -> Result<Attached> {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(taken.insert(port), "it is in use already");
        Ok(Attached(Some(port)))
    }

    /// Stops the port: its device has nothing in use any more.
    pub fn stop(&self) {
        if let Some(port) = self.0 {
            // SAFETY: the port is ours. What it had to send is freed.
            unsafe { dpdk::rte_eth_dev_stop(port) };
        }
    }

    /// Stops the port and takes the device from EAL; under [`lock`].
    pub fn detach(&mut self) {
        let Some(port) = self.0.take() else { return };
        let device = info(port).map(|info| info.device);
        // SAFETY: the port is ours, and nobody uses it after this. Frames that are still about belong to pools, which stay. The device
        // was the port's, and goes with it.
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

/// What the device of a port says of itself.
pub fn info(port: u16) -> Result<dpdk::rte_eth_dev_info> {
    // SAFETY: zero is a value of this structure; DPDK fills it in.
    unsafe {
        let mut info = zeroed();
        check(dpdk::rte_eth_dev_info_get(port, &mut info), "what the device can do")?;
        Ok(info)
    }
}

/// An error with what DPDK says if a call failed.
pub fn check(result: i32, what: &str) -> Result<()> {
    if result >= 0 {
        return Ok(());
    }
    let said = take_said();
    bail!("{what}: {}{}{said}", error_text(-result), if said.is_empty() { "" } else { "\nDPDK says:\n" })
}
