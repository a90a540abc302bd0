//! What the engine does to streams, while it gives turns. What comes of it follows in [`Streams::flush`].

use super::connection::{Connection, Phase};
use super::{Entry, Streams};
use crate::memory::MrMemory;
use vrdma_transport::{DeviceId, Fault, Fpdu, Pieces, StreamEnd, write_fpdu};
use vrdma_wire::num::Qpn;

impl Streams {
    /// The connection of a QP.
    fn of(&mut self, device: DeviceId, qpn: Qpn) -> Option<(u32, &mut Connection)> {
        let number = *self.of_qp.get(&(device, qpn))?;
        match self.entries.get_mut(number as usize)?.as_mut()? {
            Entry::Connection(connection) if matches!(connection.phase, Phase::Open) => {
                Some((number, connection))
            }
            _ => None,
        }
    }

    /// Whether a QP's stream takes another FPDU. If not, the engine is told when it does.
    pub fn has_room(&mut self, device: DeviceId, qpn: Qpn) -> bool {
        let Some((_, connection)) = self.of(device, qpn) else { return false };
        connection.is_blocked = !connection.output.has_room();
        !connection.is_blocked
    }

    /// Takes an FPDU to the end of a QP's stream.
    ///
    /// # Errors
    /// Its payload's memory is gone; nothing was taken.
    pub fn send_fpdu(
        &mut self,
        device: DeviceId,
        qpn: Qpn,
        fpdu: &Fpdu,
        payload: &Pieces<'_, MrMemory>,
    ) -> Result<(), Fault> {
        let Some((number, connection)) = self.of(device, qpn) else { return Err(Fault) };
        let length = fpdu.len(payload.len());
        connection
            .output
            .put(length, length == connection.mss, |buf| write_fpdu(fpdu, payload, buf).map(|_| ()))?;
        self.touch(number);
        Ok(())
    }

    /// The engine leaves a QP's stream.
    pub fn end(&mut self, device: DeviceId, qpn: Qpn, end: StreamEnd) {
        if let Some((number, connection)) = self.of(device, qpn) {
            connection.ends = Some(end);
            self.touch(number);
        }
    }

    /// FPDUs of one stream mostly come together.
    fn touch(&mut self, number: u32) {
        if self.touched.last() != Some(&number) {
            self.touched.push(number);
        }
    }
}
