//! Reliable connections on packets.

use crate::completion::Sink;
use crate::engine::Engine;
use crate::memory::Region;
use crate::outlet::Outlet;
use crate::qp::Qp;
use crate::schedule::Place;
use crate::time::Instant;
use vrdma_wire::roce::Parsed;

/// What a QP that talks over the wire has besides.
pub(crate) struct Wire {}

impl Wire {
    /// For a QP whose attributes are set.
    pub(crate) fn new(_qp: &Qp) -> Wire {
        Wire {}
    }
}

impl<R: Region> Engine<R> {
    /// A packet of this service came for the QP at `place`, which exists.
    pub(crate) fn receive_rc(
        &mut self,
        _now: Instant,
        place: Place,
        _parsed: &Parsed<'_>,
        _sink: &mut impl Sink,
    ) {
        if let Some(device) = self.devices.get_mut(place.device) {
            device.counters.drop_service += 1;
        }
    }

    /// A QP's turn: sends at most `budget` packets, as long as `outlet` has room; how many it sent.
    /// If there is more, it calls [`Engine::make_turn_due`] before it returns.
    pub(crate) fn transmit_rc(
        &mut self,
        _now: Instant,
        _place: Place,
        _budget: usize,
        _outlet: &mut impl Outlet<R>,
        _sink: &mut impl Sink,
    ) -> usize {
        0
    }
}
