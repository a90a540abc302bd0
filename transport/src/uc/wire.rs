//! Unreliable connections on packets.

use crate::completion::Sink;
use crate::engine::Engine;
use crate::memory::Region;
use crate::outlet::Outlet;
use crate::schedule::Place;
use crate::time::Instant;
use vrdma_wire::roce::Parsed;

impl<R: Region> Engine<R> {
    /// A packet of this service came for the QP at `place`, which exists.
    pub(crate) fn receive_uc(
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
    pub(crate) fn transmit_uc(
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
