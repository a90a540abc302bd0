//! Where queue pairs are in memory, for who posts to many of them to have the processor fetch them
//! ahead.

use crate::base::id::DeviceId;
use crate::base::memory::Region;
use crate::base::place::Place;
use crate::engine::Engine;
use crate::objects::qp::Direction;
use crate::objects::qp::entry::{QpEntry, QpLines, WholeQpLines};
use core::ptr;
use vrdma_wire::num::{Qpn, Rkey};

/// What most requests touch of a key, and of the region that it names.
pub type KeyLines = *const [u8; 128];

/// Where the peer of a QP may be.
#[derive(Copy, Clone, Debug)]
pub struct PeerHint(Place);

impl<R: Region> Engine<R> {
    /// Of a QP that is about to be posted to. It need not be there; it is not looked at.
    #[inline]
    pub fn qp_lines(&self, device: DeviceId, qpn: Qpn) -> Option<QpLines> {
        self.lines(Place { device: device.0, qpn })
    }

    /// The same of one whose peer is reached in a stream.
    #[inline]
    pub fn whole_qp_lines(&self, device: DeviceId, qpn: Qpn) -> Option<WholeQpLines> {
        const _: () = assert!(size_of::<Option<QpEntry>>() == 256);
        self.lines(Place { device: device.0, qpn }).map(<*const _>::cast)
    }

    /// Of the QP that may have the next turn.
    #[inline]
    pub(crate) fn next_lines(
        &self,
        device: u32,
        direction: Direction,
    ) -> Option<(DeviceId, Qpn, WholeQpLines)> {
        let qpn = self.core.schedule.wire.soon(device, direction)?;
        Some((DeviceId(device), qpn, self.whole_qp_lines(DeviceId(device), qpn)?))
    }

    /// Where the QP is to which that was connected last. This one is looked at.
    #[inline]
    pub fn peer_hint(&self, device: DeviceId, qpn: Qpn) -> Option<PeerHint> {
        let (_, qp) = self.core.devices.with_qp(Place { device: device.0, qpn })?;
        Some(PeerHint(qp.peer_hint()))
    }

    /// Of such a QP, if it is of this engine.
    #[inline]
    pub fn peer_lines(&self, peer: PeerHint) -> Option<QpLines> {
        self.lines(peer.0)
    }

    /// Of a key of its device.
    #[inline]
    pub fn key_lines(&self, peer: PeerHint, key: Rkey) -> Option<KeyLines> {
        let mrs = &self.core.devices.get(peer.0.device)?.parts.mrs;
        Some(ptr::from_ref(mrs.keys.slot(key.0)?).cast())
    }

    fn lines(&self, place: Place) -> Option<QpLines> {
        Some(ptr::from_ref(self.core.devices.get(place.device)?.qps.slot(place.qpn.number())?).cast())
    }
}
