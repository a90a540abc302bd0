//! What the switch sends to besides guests: the engine, guests' own TCP, and the uplink.

use crate::cycles::{self, Stage};
use crate::device::broken::{contained, step};
use crate::device::outputs::Outputs;
use crate::gids::GidView;
use crate::memory::MrMemory;
use crate::net::{self, Fill, Lost};
use crate::port::{Offload, Origin, Port};
use crate::streams::{Host, Streams};
use vrdma_transport::{self as transport, Engine, GidEntry};
use vrdma_wire::head::Head;
use vrdma_wire::num::{Gid, Mac, VlanId};
use vrdma_wire::roce::Packet;

/// Receives frames that are not for a guest's network device.
pub(super) struct LocalSinks<'a> {
    pub now: transport::Instant,
    pub engine: &'a mut Engine<MrMemory>,
    pub outputs: &'a mut Outputs,
    pub streams: &'a mut Streams,
    /// The view of all GIDs, for frames that no engine of this process made. `None` for those of an
    /// engine.
    ///
    /// Such frames must not have a source GID of a guest of another worker. (The engine checks
    /// those of its own guests.)
    pub strangers: Option<&'a mut GidView>,
}

impl net::LocalReceivers for LocalSinks<'_> {
    fn packet(&mut self, headers: &Head, packet: &[u8]) {
        let _mark = cycles::enter(Stage::Execute);
        let parsed = Packet::parse_behind(headers, packet);
        if let (Some(gids), Ok(parsed)) = (&mut self.strangers, &parsed) {
            let path = &parsed.packet.path;
            if gids.is_elsewhere((path.src, VlanId::of(path.vlan))) {
                gids.spoofed += 1;
                return;
            }
        }
        let now = self.now;
        contained(step::PACKET, None, self.engine, self.outputs, |engine, outputs| {
            engine.handle_parsed(now, &parsed, packet, outputs);
        });
    }

    fn holder(&mut self, vlan: VlanId, gid: Gid) -> Option<Mac> {
        if let Some(device) = self.engine.gid_owner(GidEntry { gid, vlan }) {
            return Some(self.outputs.device(device).guest.mac);
        }
        self.strangers.as_mut()?.holder((gid, vlan))
    }

    fn takes(&self, guest: usize, headers: &Head) -> bool {
        self.streams.user_tcp.takes(guest, headers)
    }

    fn segment(&mut self, guest: usize, headers: &Head, frame: &[u8]) {
        let LocalSinks { now, engine, outputs, streams, .. } = self;
        streams.handle_frame(guest, (headers, frame), &mut Host { engine, outputs, now: *now });
    }

    fn too_long(&mut self, guest: usize, frame: &[u8]) {
        self.streams.user_tcp.handle_too_long(guest, frame);
    }
}

/// Sends frames of the switch by the port, if there is one.
pub(super) struct UplinkSink<'a> {
    port: Option<&'a mut Port>,
    /// Who made the frames.
    origin: Origin,
    limited: bool,
}

impl<'a> UplinkSink<'a> {
    /// For frames of guests.
    pub fn of(port: Option<&'a mut Port>) -> UplinkSink<'a> {
        UplinkSink { port, origin: Origin::Guest, limited: false }
    }

    /// For packets of the engine.
    pub fn of_engine(port: &'a mut Port) -> UplinkSink<'a> {
        UplinkSink { port: Some(port), origin: Origin::Engine, limited: false }
    }
}

impl net::SwitchUplink for UplinkSink<'_> {
    fn completes(&self, head: &[u8], start: u16, offset: u16) -> Option<Offload> {
        Offload::of(head, start, offset, self.port.as_ref()?.capabilities().checksums)
    }

    fn room(&mut self) -> Option<usize> {
        self.port.as_mut()?.room()
    }

    fn set_limited(&mut self, limited: bool) {
        self.limited = limited;
    }

    fn transmit(&mut self, len: usize, left: Option<Offload>, fill: Fill<'_>) -> Result<(), Lost> {
        let mut frame = self.port.as_mut().and_then(|port| port.transmit(len)).ok_or(Lost)?;
        frame.made_by(if self.limited { Origin::Flooder } else { self.origin });
        fill(&mut frame.buf()[..len]);
        if let Some(offload) = left {
            frame.offload(offload);
        }
        frame.commit(len);
        Ok(())
    }
}
