//! A device that runs, with the queue pairs of one worker or of several: who lets go last closes
//! it.

use super::attached::{Attached, lock};
use super::dma::DeviceDma;
use super::eal::{error_text, expecting_failure, take_said};
use super::held::Held;
use super::removal::Removal;
use anyhow::{Result, bail};
use dpdk_sys as dpdk;
use std::ffi::CStr;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use vrdma_wire::num::Mac;

/// A started device that is ours alone while this lives.
#[derive(Debug)]
pub(super) struct Device {
    pub port: u16,
    /// The kernel's interface behind it. Given back after the port is closed.
    pub held: Option<Held>,
    /// That is gone.
    pub lost: AtomicBool,
    /// Guests' memory that the device reaches, if its frames take some with them.
    pub dma: Option<Arc<DeviceDma>>,
    /// Interrupts of all queues may share a register, which drivers change without a lock.
    pub interrupts: Mutex<()>,
    /// Whether the host wants the device back, where it can ask for it.
    pub removal: Option<Removal>,
    /// Makes the port ours.
    pub attached: Attached,
    pub has_rules: AtomicBool,
}

impl Device {
    /// Whether the host waits for the device.
    pub fn is_wanted(&self) -> bool {
        self.removal.as_ref().is_some_and(Removal::is_wanted)
    }

    /// Whether the interface behind it is gone, which is looked at if asked for.
    pub fn is_lost(&self, look: bool) -> bool {
        if look && self.held.as_ref().is_some_and(|held| !held.interface().is_there()) {
            self.lost.store(true, Ordering::Relaxed);
        }
        self.lost.load(Ordering::Relaxed)
    }

    /// Has frames to this address come to this queue.
    ///
    /// # Errors
    /// The device or its driver refuses, in its own words.
    pub fn steer(&self, dst: Mac, queue: u16) -> Result<()> {
        let mut why = null();
        // SAFETY: the port is ours and started. The address is read meanwhile; what is written is
        // null or a string of the driver's.
        let call = || unsafe { dpdk::shim_flow_to_queue(self.port, dst.0.as_ptr(), queue, &mut why) };
        // A refusal is an answer: what is shown of it is said by who asked.
        let result = expecting_failure(call);
        if result >= 0 {
            self.has_rules.store(true, Ordering::Relaxed);
            return Ok(());
        }
        take_said();
        let cause = error_text(-result);
        // SAFETY: what is not null is a string of the driver's, copied at once.
        let why = (!why.is_null()).then(|| unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned());
        match why.filter(|why| *why != cause) {
            Some(why) => bail!("{why}: {cause}"),
            None => bail!("{cause}"),
        }
    }
}

/// Takes the device from EAL. It is stopped before it loses its DMA, and frames that it has give
/// memory back after that.
impl Drop for Device {
    fn drop(&mut self) {
        let _one = lock();
        self.removal = None;
        if self.has_rules.load(Ordering::Relaxed) {
            // SAFETY: the port is ours. Those that a driver keeps in spite of this go with the
            // port.
            unsafe { dpdk::shim_flow_flush(self.port) };
        }
        self.attached.stop();
        if let Some(dma) = &self.dma {
            dma.detach();
        }
        if self.lost.load(Ordering::Relaxed) {
            // That an interface is no more there to be set back is no news.
            expecting_failure(|| self.attached.detach());
            take_said();
        } else {
            self.attached.detach();
        }
        self.held = None;
    }
}
