//! A running device with the queue pairs of one or several workers. The last of them closes it.

use super::attached::{Attached, lock};
use super::claim::ClaimedInterface;
use super::dma::DeviceDma;
use super::eal::{error_text, expecting_failure, take_said};
use super::removal::Removal;
use anyhow::{Result, bail};
use dpdk_sys as dpdk;
use std::ffi::CStr;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use vrdma_wire::num::Mac;

/// A started device that is ours alone while this exists.
#[derive(Debug)]
pub(super) struct DpdkDevice {
    pub port: u16,
    /// The kernel's interface behind the device. It is released after the port is closed.
    pub claimed: Option<ClaimedInterface>,
    /// Whether that interface is gone.
    pub lost: AtomicBool,
    /// Guests' memory that the device reaches, if its frames may carry external memory.
    pub dma: Option<Arc<DeviceDma>>,
    /// Serialises interrupt settings. Queues may share a register, which drivers change without a
    /// lock.
    pub interrupts: Mutex<()>,
    /// Whether the host wants the device back. `None` where the host cannot ask for it.
    pub removal: Option<Removal>,
    /// Owns the port.
    pub attached: Attached,
    pub has_rules: AtomicBool,
}

impl DpdkDevice {
    /// Whether the host waits for the device to be released.
    pub fn is_wanted(&self) -> bool {
        self.removal.as_ref().is_some_and(Removal::is_wanted)
    }

    /// Whether the interface behind the device is gone. With `look`, it is checked anew.
    pub fn is_lost(&self, look: bool) -> bool {
        if look && self.claimed.as_ref().is_some_and(|claimed| !claimed.interface().is_there()) {
            self.lost.store(true, Ordering::Relaxed);
        }
        self.lost.load(Ordering::Relaxed)
    }

    /// Steers frames to this address to this queue.
    ///
    /// # Errors
    /// The device or its driver refuses. The error has the driver's words.
    pub fn steer(&self, dst: Mac, queue: u16) -> Result<()> {
        let mut why = null();
        // SAFETY: the port is ours and started. The address is only read during the call. `why` is
        // set to null or to a string of the driver's.
        let call = || unsafe { dpdk::shim_flow_to_queue(self.port, dst.0.as_ptr(), queue, &mut why) };
        // A refusal is a normal answer, so DPDK's messages about it are not logged. The caller logs
        // what matters.
        let result = expecting_failure(call);
        if result >= 0 {
            self.has_rules.store(true, Ordering::Relaxed);
            return Ok(());
        }
        take_said();
        let cause = error_text(-result);
        // SAFETY: a non-null pointer is a string of the driver's. It is copied at once.
        let why = (!why.is_null()).then(|| unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned());
        match why.filter(|why| *why != cause) {
            Some(why) => bail!("{why}: {cause}"),
            None => bail!("{cause}"),
        }
    }
}

/// Closes the device and removes it from EAL.
///
/// It is stopped before it loses its DMA mappings. Frames that it still has release their memory
/// after that.
impl Drop for DpdkDevice {
    fn drop(&mut self) {
        let _one = lock();
        self.removal = None;
        if self.has_rules.load(Ordering::Relaxed) {
            // SAFETY: the port is ours. Rules that a driver keeps in spite of this go with the
            // port.
            unsafe { dpdk::shim_flow_flush(self.port) };
        }
        self.attached.stop();
        if let Some(dma) = &self.dma {
            dma.detach();
        }
        if self.lost.load(Ordering::Relaxed) {
            // Restoring the settings of an interface that is gone fails, which is expected.
            expecting_failure(|| self.attached.detach());
            take_said();
        } else {
            self.attached.detach();
        }
        self.claimed = None;
    }
}
