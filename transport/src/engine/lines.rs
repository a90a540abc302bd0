//! Where queue pairs are in memory, for who posts to many of them to have the processor fetch them ahead.

use crate::engine::Engine;
use crate::id::DeviceId;
use crate::memory::Region;
use crate::place::Place;
use core::ptr;
use vrdma_wire::num::Qpn;

/// What most requests touch of a queue pair. To be fetched, not read: it may have gone.
pub type QpLines = *const [u8; 128];

impl<R: Region> Engine<R> {
    /// Of a QP that is about to be posted to. It need not be there; it is not looked at.
    #[inline]
    pub fn qp_lines(&self, device: DeviceId, qpn: Qpn) -> Option<QpLines> {
        self.lines(Place { device: device.0, qpn })
    }

    /// Of the QP to which that was connected last, if it is of this engine. This one is looked at.
    #[inline]
    pub fn peer_lines(&self, device: DeviceId, qpn: Qpn) -> Option<QpLines> {
        let (_, qp) = self.devices.with_qp(Place { device: device.0, qpn })?;
        self.lines(qp.peer_hint())
    }

    fn lines(&self, place: Place) -> Option<QpLines> {
        Some(ptr::from_ref(self.devices.get(place.device)?.qps.slot(place.qpn.number())?).cast())
    }
}
