//! Looks at QPs and regions, for observers. Nothing changes by it.

use crate::base::error::Error;
use crate::base::gid::GidEntry;
use crate::base::id::{DeviceId, OwnerId};
use crate::base::memory::Region;
use crate::base::transport_kind::TransportKind;
use crate::engine::Engine;
use crate::objects::mr::MrKind;
use crate::objects::qp::Qp;
use crate::objects::qp::entry::QpEntry;
use crate::objects::qp::requester::Wait;
use crate::verbs::attr::QpState;
use crate::verbs::view::{QpView, RegionView, WaitsFor};
use std::ops::Range;
use vrdma_wire::num::{Gid, Qpn, VlanId};

impl<R: Region> Engine<R> {
    /// Returns the end of the range of indices that the device's QPs have, for [`Engine::qps`].
    pub fn qp_indices(&self, device: DeviceId) -> usize {
        self.core.devices.find(device).map_or(0, |device| device.qps.indices())
    }

    /// Returns the QPs in a range of indices.
    ///
    /// A QP keeps its index.
    pub fn qps(&self, device: DeviceId, indices: Range<usize>) -> impl Iterator<Item = QpView> {
        let device = self.core.devices.find(device).ok().into_iter();
        device.flat_map(move |device| indices.clone().filter_map(|index| device.qps.at(index).map(view)))
    }

    /// Returns a QP.
    pub fn qp_view(&self, device: DeviceId, qpn: Qpn) -> Result<QpView, Error> {
        self.core.devices.find(device)?.qps.get(qpn.number()).map(view).ok_or(Error::NotFound)
    }

    /// Returns the multicast groups that QPs of a device have joined.
    pub fn joined_groups(&self, device: DeviceId) -> impl Iterator<Item = Gid> + Clone {
        self.core.devices.find(device).ok().into_iter().flat_map(|device| device.groups.groups())
    }

    /// Returns the VLANs in which a device has addresses, some of them several times. It gets
    /// packets to its groups in these.
    pub fn address_vlans(&self, device: DeviceId) -> impl Iterator<Item = VlanId> + Clone {
        let device = self.core.devices.find(device).ok().into_iter();
        let entries = device.flat_map(|device| device.gids.iter());
        entries.filter(|entry| **entry != GidEntry::EMPTY).map(|entry| entry.vlan)
    }

    /// Returns the regions in a range of indices ([`Engine::region_indices`]).
    pub fn region_views(&self, device: DeviceId, indices: Range<usize>) -> impl Iterator<Item = RegionView> {
        let device = self.core.devices.find(device).ok().into_iter();
        device.flat_map(move |device| {
            indices.clone().filter_map(|index| {
                let key = device.mrs.keys.at(index)?;
                let MrKind::Region(region) = &key.kind else { return None };
                Some(RegionView {
                    key: key.key,
                    pd: key.pd,
                    owner: device.pd(key.pd).map_or(OwnerId::KERNEL, |pd| pd.owner),
                    access: key.access,
                    iova: key.iova,
                    length: key.length,
                    is_fast: region.fast.is_some(),
                })
            })
        })
    }
}

fn view(entry: &QpEntry) -> QpView {
    let QpEntry { qp, service } = entry;
    let congestion = service.congestion();
    let (queued_sends, queued_receives) = (qp.requester.queue.len(), qp.responder.queue.len());
    let flush = qp.flush.as_deref();
    QpView {
        qpn: qp.qpn,
        init: qp.init(),
        attr: qp.query(),
        transport: is_connected(qp).then_some(qp.transport),
        source: GidEntry { gid: qp.sgid, vlan: qp.vlan },
        sends: queued_sends + flush.map_or(0, |flush| flush.sends.len()),
        receives: queued_receives + flush.map_or(0, |flush| flush.num_receives()),
        is_flushing: flush.is_some(),
        rate: congestion.and_then(|it| it.point.as_ref()).map(|point| point.rate()),
        waits_for: match qp.requester.wait {
            _ if queued_sends == 0 => None,
            Wait::No | Wait::Drained | Wait::Woken => None,
            Wait::Receive => Some(WaitsFor::Receive),
            Wait::Answer => Some(WaitsFor::Answer),
            Wait::Drain => Some(WaitsFor::Posts),
        },
        srtt: service.srtt(),
        peer_holds: service.peer_holds(),
        held_bytes: service.held_bytes(),
    }
}

/// Whether a QP has, or had, a peer. One that went from INIT to ERR never had any.
fn is_connected(qp: &Qp) -> bool {
    let has_been = match qp.state {
        QpState::Reset | QpState::Init => false,
        QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => true,
        QpState::Err => qp.transport != TransportKind::Local || qp.dgid != Gid::ZERO,
    };
    has_been && !qp.service().is_datagram()
}
