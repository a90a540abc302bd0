//! Ends the guests that a step of a worker was handling when it panicked, and no others
//! (docs/design/panics.md).

use super::Worker;
use crate::device::broken::break_off;
use crate::device::outputs::Broken;
use crate::memory::PATIENCE;
use crate::panics::{self, Panicked};
use crate::ratelimit::limited;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use vrdma_transport::DeviceId;

/// Shuts down the connection of a front-end whose guest's function ended.
pub(super) fn hang_up(connection: Option<Arc<UnixStream>>) {
    if let Some(stream) = connection {
        // It may have been shut down already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

impl Worker {
    /// Runs a step for a device, and for those devices that the engine reaches in it.
    ///
    /// Returns `None` if the step panicked. These devices have ended then.
    #[inline]
    pub(super) fn step<R>(
        &mut self,
        step: &'static str,
        of: DeviceId,
        carry_out: impl FnOnce(&mut Worker) -> R,
    ) -> Option<R> {
        self.engine.begin_step();
        match panics::contain_step(step, || carry_out(self)) {
            Ok(result) => Some(result),
            Err(panicked) => {
                panics::shared(|| {
                    break_off(Some(of), &mut self.engine, &mut self.outputs, panicked);
                    self.end_broken();
                });
                None
            }
        }
    }

    /// Ends functions whose steps panicked, as if their front-ends had left.
    #[inline]
    pub(super) fn end_broken(&mut self) {
        if !self.outputs.broken.is_empty() {
            self.end_devices();
        }
        if self.net.has_broken() {
            self.end_netdevs();
        }
    }

    #[cold]
    fn end_devices(&mut self) {
        while let Some((why, devices)) = self.outputs.broken.pop() {
            for id in devices {
                let connection = self.outputs.device(id).take_ended();
                self.detach_device(id);
                let device = self.outputs.device(id);
                let (name, owner) = (&device.guest.name, device.guest.configured_name());
                match &why {
                    Broken::Panicked(Panicked { step, text }) => {
                        device.counters.panics += 1;
                        log::error!(
                            guest:% = owner;
                            "guest {name}, RDMA: it ends, for a fault of this program in {step}: {text}"
                        );
                    }
                    Broken::Kept => {
                        device.counters.kept_loans += 1;
                        let patience = PATIENCE.as_millis();
                        limited!(self.violations, Warn, guest = owner;
                            "guest {name}, RDMA: it ends: another worker has copied from its memory for more than {patience} ms, for want of a page of it or of its peer's");
                    }
                }
                // Its session finds the function ended, and serves the next front-end.
                hang_up(connection);
            }
        }
    }

    #[cold]
    fn end_netdevs(&mut self) {
        while let Some((guest, Panicked { step, text })) = self.net.take_broken() {
            let connection = self.net.take_connection(guest);
            for index in [crate::net::RECEIVE, crate::net::TRANSMIT] {
                self.stop_net_queue(guest, index);
            }
            self.net.panicked(guest);
            let name = self.net.name(guest);
            log::error!(guest:% = name; "guest {name}, Ethernet: it ends, for a fault of this program in {step}: {text}");
            hang_up(connection);
        }
    }
}
