//! Addresses of queue pairs in memory, so that a caller that posts to many of them can prefetch
//! them.

use crate::base::id::DeviceId;
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::engine::Engine;
use crate::objects::qp::Direction;
use crate::objects::qp::entry::{QpEntry, QpLines, WholeQpLines};
use core::ptr;
use vrdma_wire::num::{Qpn, Rkey};

/// The cache lines of a key and its region that most requests access. To be prefetched, not read.
pub type KeyLines = *const [u8; 128];

/// A hint where the peer of a QP may be.
#[derive(Copy, Clone, Debug)]
pub struct PeerHint(QpRef);

impl<R: Region> Engine<R> {
    /// Returns the cache lines of a QP that is about to be posted to.
    ///
    /// The QP need not exist, and is not accessed.
    #[inline]
    pub fn qp_lines(&self, device: DeviceId, qpn: Qpn) -> Option<QpLines> {
        self.lines(QpRef { device: device.0, qpn })
    }

    /// Returns all cache lines of a QP. They are needed if its peer is reached by a stream.
    #[inline]
    pub fn whole_qp_lines(&self, device: DeviceId, qpn: Qpn) -> Option<WholeQpLines> {
        const _: () = assert!(size_of::<Option<QpEntry>>() == 256);
        self.lines(QpRef { device: device.0, qpn }).map(<*const _>::cast)
    }

    /// Returns the QP that may have the next turn, and its cache lines.
    #[inline]
    pub(crate) fn next_lines(
        &self,
        device: u32,
        direction: Direction,
    ) -> Option<(DeviceId, Qpn, WholeQpLines)> {
        let qpn = self.core.schedule.wire.soon(device, direction)?;
        Some((DeviceId(device), qpn, self.whole_qp_lines(DeviceId(device), qpn)?))
    }

    /// Returns where the peer of a QP was when it was found last. This accesses the QP.
    #[inline]
    pub fn peer_hint(&self, device: DeviceId, qpn: Qpn) -> Option<PeerHint> {
        let (_, qp) = self.core.devices.with_qp(QpRef { device: device.0, qpn })?;
        Some(PeerHint(qp.peer_hint()))
    }

    /// Returns the cache lines of the peer, if it is of this engine.
    #[inline]
    pub fn peer_lines(&self, peer: PeerHint) -> Option<QpLines> {
        self.lines(peer.0)
    }

    /// Returns the cache lines of a key of the peer's device.
    #[inline]
    pub fn key_lines(&self, peer: PeerHint, key: Rkey) -> Option<KeyLines> {
        let mrs = &self.core.devices.get(peer.0.device)?.parts.mrs;
        Some(ptr::from_ref(mrs.keys.slot(key.0)?).cast())
    }

    fn lines(&self, place: QpRef) -> Option<QpLines> {
        Some(ptr::from_ref(self.core.devices.get(place.device)?.qps.slot(place.qpn.number())?).cast())
    }
}
