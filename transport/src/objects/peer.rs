//! Which QP of this engine another is connected to.

use crate::base::carrier::Carrier;
use crate::base::gid::GidEntry;
use crate::base::place::Place;
use crate::objects::device::{Device, Devices};
use crate::objects::qp::Qp;
use crate::verbs::reason::Reason;

/// Where a peer is, and it.
type Peer<'a, R> = (Place, &'a Device<R>, &'a Qp);

impl<R> Devices<R> {
    /// The QP that `qp` is connected to, if that is connected to it; or why not, and which device
    /// noticed.
    #[inline]
    pub(crate) fn find_peer(&self, qp: &Qp) -> Result<Peer<'_, R>, (Option<u32>, Reason)> {
        let place = qp.peer_hint();
        match self.with_qp(place) {
            Some((device, peer)) if !device.suspended && connected(qp, peer) => Ok((place, device, peer)),
            _ => self.search_peer(qp),
        }
    }

    /// The same where it was not found at the [hint](Qp::peer_hint).
    #[cold]
    pub(crate) fn search_peer(&self, qp: &Qp) -> Result<Peer<'_, R>, (Option<u32>, Reason)> {
        // Without a GID of its own nothing that a QP sends can be sent.
        let index = self.gids.owner(GidEntry { gid: qp.dgid, vlan: qp.vlan });
        let index = index.filter(|_| !qp.sgid.is_zero());
        let index = index.ok_or((None, Reason::NoRoute))?;
        let place = Place { device: index, qpn: qp.dest_qpn };
        match self.with_qp(place) {
            None => Err((Some(index), Reason::NoQp)),
            Some((it, _)) if it.suspended => Err((Some(index), Reason::State)),
            Some((device, peer)) if connected(qp, peer) => Ok((place, device, peer)),
            Some((_, peer)) if !peer.is_receiving() => Err((Some(index), Reason::State)),
            Some(_) => Err((Some(index), Reason::NotConnected)),
        }
    }
}

/// Whether each of two QPs names the other's address and number (IBTA 9.6.1.1.1, 9.6.1.5). A QP
/// without a GID is nobody's peer, and one whose peer was on the wire when it was connected stays
/// with that.
#[inline(always)]
pub(crate) fn connected(one: &Qp, other: &Qp) -> bool {
    other.carrier == Carrier::Local
        && one.dest_qpn == other.qpn
        && other.dest_qpn == one.qpn
        && one.vlan == other.vlan
        && one.dgid == other.sgid
        && other.dgid == one.sgid
        && one.service() == other.service().peer()
        && !one.sgid.is_zero()
        && !other.sgid.is_zero()
}
