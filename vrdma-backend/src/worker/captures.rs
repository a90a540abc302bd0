//! Captures begin and end in a worker.

use super::Worker;
use crate::capture::{CaptureId, QpPeer, Tapped};
use crate::device::Device;
use crate::device::outputs::Outputs;
use crate::memory::MrMemory;
use crate::net::Net;
use vrdma_transport::{DeviceId, Engine};
use vrdma_wire::num::{Mac, Qpn};

impl Worker {
    /// Begins a capture of what this worker sends, receives and copies.
    pub fn begin_capture(&mut self, tapped: Tapped) {
        self.outputs.tap.begin(tapped.clone());
        self.net.tap.begin(tapped);
        look_up(&mut self.net, &self.outputs, &self.engine);
    }

    /// Ends a capture.
    pub fn end_capture(&mut self, id: CaptureId) {
        self.outputs.tap.end(id);
        self.net.tap.end(id);
    }
}

/// Tells captures what their queue pairs send to at present, and which groups their guests have
/// joined.
///
/// A packet of a connection names the receiver alone, and one to a group no guest.
#[cold]
pub(super) fn look_up(net: &mut Net, outputs: &Outputs, engine: &Engine<MrMemory>) {
    for tapped in net.tap.captures() {
        let filter = tapped.capture_filter().clone();
        let is_guest = |device: &&Device| {
            filter.guest.as_ref().is_none_or(|guest| guest.name == device.guest.configured_name())
        };
        let devices = outputs.all_devices().filter(is_guest);
        if let Some(qpn) = filter.qpn {
            let ends = devices.clone().map(|device| (device.id, device.guest.mac));
            tapped.set_peers(ends.filter_map(|end| peer_of(engine, end, qpn)));
        }
        if let Some(guest) = &filter.guest
            && devices.clone().next().is_some()
        {
            let groups = devices.clone().flat_map(|device| engine.joined_groups(device.id));
            guest.joined.set(groups, devices.flat_map(|device| engine.address_vlans(device.id)));
        }
    }
}

fn peer_of(engine: &Engine<MrMemory>, (id, mac): (DeviceId, Mac), qpn: Qpn) -> Option<QpPeer> {
    let view = engine.qp_view(id, qpn).ok()?;
    view.transport?;
    Some(QpPeer { mac, qpn: view.attr.dest_qpn, gid: view.attr.dgid })
}
