//! Look-up of the QP of this engine that a QP is connected to.

use crate::base::gid::GidEntry;
use crate::base::qp_ref::QpRef;
use crate::base::transport_kind::TransportKind;
use crate::objects::device::{Device, Devices};
use crate::objects::qp::Qp;
use crate::verbs::reason::Reason;

/// A peer: its reference, its device and the QP itself.
type Peer<'a, R> = (QpRef, &'a Device<R>, &'a Qp);

impl<R> Devices<R> {
    /// Returns the peer of `qp`, if the peer is connected back to `qp`.
    ///
    /// Otherwise returns the reason, and the device that found it.
    #[inline]
    pub(crate) fn find_peer(&self, qp: &Qp) -> Result<Peer<'_, R>, (Option<u32>, Reason)> {
        let place = qp.peer_hint();
        match self.with_qp(place) {
            Some((device, peer)) if !device.suspended && connected(qp, peer) => Ok((place, device, peer)),
            _ => self.search_peer(qp),
        }
    }

    /// Returns the device of the peer of `qp`, as far as it is known without a look at the peer.
    #[inline]
    pub(crate) fn device_of_peer(&self, qp: &Qp) -> Option<u32> {
        let device = qp.peer_hint().device;
        if self.get(device).is_some() { Some(device) } else { self.owner_of_peer(qp) }
    }

    #[cold]
    fn owner_of_peer(&self, qp: &Qp) -> Option<u32> {
        self.gids.owner(GidEntry { gid: qp.dgid, vlan: qp.vlan })
    }

    /// Finds the peer of `qp` if it was not at the [hint](Qp::peer_hint).
    #[cold]
    pub(crate) fn search_peer(&self, qp: &Qp) -> Result<Peer<'_, R>, (Option<u32>, Reason)> {
        // A QP without a GID of its own can send nothing.
        let index = self.owner_of_peer(qp).filter(|_| !qp.sgid.is_zero());
        let index = index.ok_or((None, Reason::NoRoute))?;
        let place = QpRef { device: index, qpn: qp.dest_qpn };
        match self.with_qp(place) {
            None => Err((Some(index), Reason::NoQp)),
            Some((it, _)) if it.suspended => Err((Some(index), Reason::State)),
            Some((device, peer)) if connected(qp, peer) => Ok((place, device, peer)),
            Some((_, peer)) if !peer.is_receiving() => Err((Some(index), Reason::State)),
            Some(_) => Err((Some(index), Reason::NotConnected)),
        }
    }
}

/// Whether each of two QPs names the other's address and number (IBTA 9.6.1.1.1, 9.6.1.5).
///
/// A QP without a GID is no QP's peer. A QP whose peer was on the wire when it was connected keeps
/// that peer.
#[inline(always)]
pub(crate) fn connected(one: &Qp, other: &Qp) -> bool {
    other.transport == TransportKind::Local
        && one.dest_qpn == other.qpn
        && other.dest_qpn == one.qpn
        && one.vlan == other.vlan
        && one.dgid == other.sgid
        && other.dgid == one.sgid
        && one.service() == other.service().peer()
        && !one.sgid.is_zero()
        && !other.sgid.is_zero()
}
