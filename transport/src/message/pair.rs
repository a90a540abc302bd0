//! Two QPs of this engine that are connected to each other, looked up once for a whole message.

use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::message::core::Core;
use crate::message::ctx::{Common, QpCtx};
use crate::objects::device::{Device, DeviceParts, Devices};
use crate::objects::mr::Mrs;
use crate::objects::peer::connected;
use crate::objects::qp::Qp;
use crate::objects::qp::entry::QpEntry;
use crate::objects::receiver::Receiver;
use crate::verbs::mirror::MirrorEnds;
use vrdma_wire::roce::Path;

/// Both ends of a connection within this engine.
///
/// Both may be of one device. A QP that is connected to itself is both ends.
pub(crate) struct Ends<'a, R> {
    pub(crate) place: QpRef,
    own: &'a mut QpEntry,
    device: &'a mut DeviceParts<R>,
    pub(crate) peer_place: QpRef,
    /// The peer. `None` if the QP is its own peer.
    peer: Option<&'a mut QpEntry>,
    /// The peer's device. `None` if both QPs are of one device.
    peer_device: Option<&'a mut DeviceParts<R>>,
}

impl<R> Ends<'_, R> {
    /// Returns the requester.
    #[inline(always)]
    pub(crate) fn qp(&self) -> &Qp {
        &self.own.qp
    }

    /// Returns the regions that the requester's elements name.
    #[inline(always)]
    pub(crate) fn mrs(&self) -> &Mrs<R> {
        &self.device.mrs
    }

    /// Returns both ends, as a mirror knows them.
    pub(crate) fn mirrored(&self) -> MirrorEnds {
        let of = |place: QpRef| (place.id(), place.qpn);
        MirrorEnds { from: of(self.place), to: Some(of(self.peer_place)) }
    }

    /// Returns the path of packets to the responder.
    pub(crate) fn path(&self) -> Path {
        self.own.qp.path(self.device.mac, self.device.marks)
    }

    /// Returns the path of packets to the requester.
    pub(crate) fn path_back(&self) -> Path {
        let device = self.peer_device.as_deref().unwrap_or(self.device);
        self.receiver().qp.path(device.mac, device.marks)
    }

    /// Returns the responder as the receiving end of a message.
    #[inline(always)]
    pub(crate) fn receiver(&self) -> Receiver<'_, R> {
        let device = self.peer_device.as_deref().unwrap_or(self.device);
        device.receiver(&self.peer.as_deref().unwrap_or(self.own).qp)
    }
}

/// Both ends of a connection, what they need of the engine, and the sink for results.
///
/// Its methods are inlined wherever they are called. A method that is not would need all of this in
/// memory.
pub(crate) struct Pair<'a, R, S> {
    pub(crate) ends: Ends<'a, R>,
    pub(crate) common: Common<'a, S>,
}

/// Returns a QP and the QP at `peer`, if they are connected and the peer's device is not suspended.
#[inline(always)]
fn ends<R>(devices: &mut Devices<R>, place: QpRef, peer: QpRef) -> Option<Ends<'_, R>> {
    let (own_number, peer_number) = (place.qpn.number(), peer.qpn.number());
    let ends = if place.device != peer.device {
        let (own, other) = devices.two_mut(place.device, peer.device)?;
        Ends {
            place,
            own: own.qps.get_mut(own_number)?,
            device: &mut own.parts,
            peer_place: peer,
            peer: Some(other.qps.get_mut(peer_number)?),
            peer_device: Some(&mut other.parts),
        }
    } else {
        let Device { qps, parts: device, .. } = devices.get_mut(place.device)?;
        let (own, peer_qp) = match own_number == peer_number {
            true => (qps.get_mut(own_number)?, None),
            false => qps.two_mut(own_number, peer_number).map(|(own, peer)| (own, Some(peer)))?,
        };
        Ends { place, own, device, peer_place: peer, peer: peer_qp, peer_device: None }
    };
    let Receiver { qp: peer_qp, .. } = ends.receiver();
    let peer_is_there = !ends.peer_device.as_deref().unwrap_or(ends.device).suspended;
    (peer_is_there && connected(ends.qp(), peer_qp)).then_some(ends)
}

impl<R: Region> Core<R> {
    /// Returns a QP and the QP at `peer`, if they are connected to each other and the peer's device
    /// is not suspended.
    #[inline(always)]
    pub(crate) fn pair<'a, S>(
        &'a mut self,
        place: QpRef,
        peer: QpRef,
        sink: &'a mut S,
    ) -> Option<Pair<'a, R, S>> {
        let (devices, common) = self.parts(sink);
        Some(Pair { ends: ends(devices, place, peer)?, common })
    }

    /// Searches the peer of a QP that is not where it was found last.
    ///
    /// If there is none, the message to it is lost, and counted as dropped.
    #[cold]
    pub(crate) fn search_peer(&mut self, place: QpRef) -> Option<QpRef> {
        let (_, qp) = self.devices.known(place);
        match self.devices.search_peer(qp) {
            Ok((peer, ..)) => Some(peer),
            Err((at, reason)) => {
                self.devices.count_drop(at.unwrap_or(place.device), reason);
                None
            }
        }
    }
}

impl<R, S> Pair<'_, R, S> {
    /// Returns the view of the requester.
    #[inline(always)]
    pub(crate) fn own(&mut self) -> QpCtx<'_, R, S> {
        let Ends { place, own, device, .. } = &mut self.ends;
        self.common.lend(*place, own, device)
    }

    /// Returns the view of the responder.
    #[inline(always)]
    pub(crate) fn peer(&mut self) -> QpCtx<'_, R, S> {
        let Ends { own, device, peer_place, peer, peer_device, .. } = &mut self.ends;
        let entry = peer.as_deref_mut().unwrap_or(own);
        self.common.lend(*peer_place, entry, peer_device.as_deref_mut().unwrap_or(device))
    }
}
