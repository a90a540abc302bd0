//! Passes received payload of vrdma's own TCP directly from the frame to the engine.
//!
//! It does so if the connection is the stream of a QP, and no earlier data waits.

use super::connection::Phase;
use super::handle::Handle;
use super::table::Table;
use super::user_tcp::SegmentReceiver;
use super::{Host, Streams};
use crate::memory::fetch_ahead;
use vrdma_transport::{DeviceId, EarlyFpdu, PlacedFpdu};
use vrdma_wire::head::Head;
use vrdma_wire::num::Qpn;

/// Passes received payload to the engine.
struct ToEngine<'a, 'b> {
    table: &'a mut Table,
    host: &'a mut Host<'b>,
    /// The guest whose bytes were taken or placed, and their number.
    moved: Option<(DeviceId, usize)>,
}

impl ToEngine<'_, '_> {
    /// Returns the QP of an open connection, and whether the engine has all earlier data.
    fn open(&mut self, user: Handle) -> Option<(DeviceId, Qpn, bool)> {
        let connection = self.table.connection(user)?;
        let is_open = matches!(connection.phase, Phase::Open);
        let qpn = connection.bound.qpn().filter(|_| is_open)?;
        Some((connection.device, qpn, connection.input.is_empty()))
    }

    /// Returns the QP that takes the next bytes of a connection.
    fn qp(&mut self, user: Handle) -> Option<(DeviceId, Qpn)> {
        let (device, qpn, has_all) = self.open(user)?;
        has_all.then_some((device, qpn))
    }

    /// Counts moved bytes of a guest. All payload of one frame belongs to one connection.
    fn moved(&mut self, device: DeviceId, bytes: usize) {
        let before = self.moved.map_or(0, |(_, bytes)| bytes);
        self.moved = Some((device, before + bytes));
    }
}

impl SegmentReceiver for ToEngine<'_, '_> {
    fn fetch(&mut self, user: Handle) {
        if let Some((device, qpn, _)) = self.open(user) {
            self.host.engine.whole_qp_lines(device, qpn).into_iter().for_each(fetch_ahead);
        }
    }

    fn take(&mut self, user: Handle, bytes: &[u8]) -> usize {
        let Some((device, qpn)) = self.qp(user) else { return 0 };
        let mut taken = 0;
        while taken < bytes.len() {
            // If the QP was reset or destroyed, reading the rest reports that.
            match self.host.engine.handle_stream(device, qpn, &bytes[taken..], self.host.outputs) {
                Ok(0) | Err(_) => break,
                Ok(some) => taken += some,
            }
        }
        self.moved(device, taken);
        taken
    }

    fn place(&mut self, user: Handle, fpdu: &[u8]) -> EarlyFpdu {
        match self.open(user) {
            Some((device, qpn, _)) => {
                let placed = self.host.engine.place_fpdu(device, qpn, fpdu, self.host.outputs);
                if matches!(placed, EarlyFpdu::Placed(_)) {
                    self.moved(device, fpdu.len());
                }
                placed
            }
            None => EarlyFpdu::Keep,
        }
    }

    fn take_placed(&mut self, user: Handle, placed: &PlacedFpdu) -> bool {
        let Some((device, qpn)) = self.qp(user) else { return false };
        self.host.engine.handle_placed(device, qpn, placed, self.host.outputs).is_ok_and(|taken| taken)
    }
}

impl Streams {
    /// Handles a frame with a segment for a guest's own TCP: its headers and all of its bytes.
    pub fn handle_frame(&mut self, port: usize, frame: (&Head, &[u8]), host: &mut Host<'_>) {
        let Streams { user_tcp, table, ready, .. } = self;
        let now = host.now;
        let mut receiver = ToEngine { table, host, moved: None };
        user_tcp.handle_frame(now, port, frame, &mut receiver);
        if let Some((device, bytes)) = receiver.moved {
            ready.charge(device, bytes);
        }
    }
}
