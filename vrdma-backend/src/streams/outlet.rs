//! The engine's interface to streams, during its rounds. [`Streams::flush`] does the rest of the
//! work.

use super::Streams;
use super::connection::{Connection, Phase};
use super::handle::Handle;
use super::stream_transport::StreamTransport;
use super::user_tcp::TURN_BYTES;
use crate::memory::{MrMemory, fetch_ahead};
use vrdma_transport::{DeviceId, Fault, Fpdu, Pieces, PlacedFpdu, StreamEnd, WholeQpLines, write_fpdu};
use vrdma_wire::num::Qpn;

impl Streams {
    /// Returns the connection of a QP, if it is open.
    fn of(&mut self, device: DeviceId, qpn: Qpn) -> Option<&mut Connection> {
        let handle = self.bindings.find(device, qpn)?;
        let connection = self.table.connection(handle).expect("a QP's connection is there");
        // No guest's output may get into another guest's stream.
        assert!(connection.device == device && connection.bound.is_to(device, qpn), "it is the QP's own");
        matches!(connection.phase, Phase::Open).then_some(connection)
    }

    /// Prefetches a QP that may be next, and its connection, into the processor's caches.
    ///
    /// It does nothing if the QP has no stream.
    pub fn expect(&mut self, device: DeviceId, qpn: Qpn, lines: WholeQpLines) {
        let Some(handle) = self.bindings.find(device, qpn) else { return };
        fetch_ahead(lines);
        let transport = self.table.connection(handle).and_then(|connection| connection.transport.as_ref());
        if let Some(StreamTransport::Own(socket)) = transport {
            self.user_tcp.fetch(socket);
        }
    }

    /// Whether more FPDUs may be written in this round.
    pub fn turn_has_room(&self) -> bool {
        self.put < TURN_BYTES
    }

    /// Whether a QP's stream takes another FPDU. If not, the engine is told when it does.
    pub fn has_room(&mut self, device: DeviceId, qpn: Qpn) -> bool {
        let Some(handle) = self.of(device, qpn).map(|connection| connection.handle) else { return false };
        let connection = self.table.connection(handle).expect("it was found just now");
        let has_room = connection.has_room(&self.user_tcp);
        if !has_room {
            connection.is_blocked = true;
            self.touch(handle);
        }
        has_room
    }

    /// Appends an FPDU to a QP's stream.
    ///
    /// # Errors
    /// The memory of its payload is gone. Nothing was appended.
    pub fn send_fpdu(
        &mut self,
        device: DeviceId,
        qpn: Qpn,
        fpdu: &Fpdu,
        payload: &Pieces<'_, MrMemory>,
    ) -> Result<(), Fault> {
        let Some(connection) = self.of(device, qpn) else { return Err(Fault) };
        let handle = connection.handle;
        if connection.output.wants_buffer() {
            self.provide_buffer(handle);
        }
        let connection = self.table.connection(handle).expect("it was found just now");
        let length = fpdu.len(payload.len());
        let is_whole = length == connection.mss;
        connection.output.put(length, is_whole, |buf| write_fpdu(fpdu, payload, buf).map(|_| ()))?;
        if matches!(connection.transport, Some(StreamTransport::Own(_) | StreamTransport::Local(_))) {
            self.put += length;
        } else {
            self.put_kernel += length;
        }
        self.touch(handle);
        Ok(())
    }

    /// Whether a QP's stream is a loopback connection with room for an already placed FPDU.
    ///
    /// Such an FPDU bypasses the output, which must be empty.
    pub fn takes_placed(&mut self, device: DeviceId, qpn: Qpn) -> bool {
        let Some(handle) = self.of(device, qpn).map(|connection| connection.handle) else { return false };
        let connection = self.table.connection(handle).expect("it was found just now");
        match &connection.transport {
            Some(StreamTransport::Local(loopback)) if connection.output.is_empty() => {
                self.user_tcp.loopbacks().0.has_room(loopback).unwrap_or(false)
            }
            _ => false,
        }
    }

    /// Appends an already placed FPDU, after [`Streams::takes_placed`] returned true.
    pub fn send_placed(&mut self, device: DeviceId, qpn: Qpn, placed: PlacedFpdu) {
        let handle = self.of(device, qpn).map(|connection| connection.handle);
        let connection = handle.and_then(|handle| self.table.connection(handle));
        if let Some(StreamTransport::Local(loopback)) =
            connection.and_then(|connection| connection.transport.as_ref())
        {
            self.put += placed.len();
            let (loopbacks, ready) = self.user_tcp.loopbacks();
            loopbacks.send_placed(loopback, placed, ready);
        }
    }

    /// Gives a connection a used buffer, because vrdma's own TCP keeps the buffers that it gets.
    fn provide_buffer(&mut self, handle: Handle) {
        let connection = self.table.connection(handle).expect("it was found just now");
        match &connection.transport {
            Some(StreamTransport::Own(socket)) => {
                connection.output.provide_buffer(self.user_tcp.buffer(socket))
            }
            Some(StreamTransport::Local(_)) => {
                connection.output.provide_buffer(self.user_tcp.loopbacks().0.buffer())
            }
            Some(StreamTransport::Kernel(_)) | None => {}
        }
    }

    /// Ends a QP's stream for the engine.
    pub fn end(&mut self, device: DeviceId, qpn: Qpn, end: StreamEnd) {
        if let Some(connection) = self.of(device, qpn) {
            connection.ends = Some(end);
            let handle = connection.handle;
            self.touch(handle);
        }
    }

    /// Notes a connection for [`Streams::flush`]. FPDUs of one stream mostly come in a row.
    fn touch(&mut self, handle: Handle) {
        if self.touched.last() != Some(&handle) {
            self.touched.push(handle);
        }
    }
}
