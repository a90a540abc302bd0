//! The way to other hosts, as guests' RDMA functions see it.

use super::Worker;
use vrdma_abi::event::EventKind;
use vrdma_wire::num::Mtu;

/// The port of all RDMA functions.
#[derive(Debug)]
pub struct PortState {
    /// Whether it leads anywhere. Without an uplink it does: to the other guests.
    pub up: bool,
    /// Largest path MTU that fits its frames.
    pub mtu: Mtu,
}

impl Default for PortState {
    fn default() -> PortState {
        PortState { up: true, mtu: Mtu::M4096 }
    }
}

/// Number of the port in events.
const PORT: u32 = 1;

impl Worker {
    /// The uplink's link went up or down: QPs and guests are told.
    pub fn set_link(&mut self, up: bool) {
        self.engine.set_link(up);
        if self.port.up == up {
            return;
        }
        self.port.up = up;
        log::info!("uplink: link is {}", if up { "up" } else { "down" });
        let kind = if up { EventKind::PORT_ACTIVE } else { EventKind::PORT_ERR };
        let devices: Vec<_> = self.outputs.devices().map(|device| device.id).collect();
        for id in devices {
            self.outputs.async_event(id, kind, PORT);
        }
    }
}
