//! Multicast groups of all devices: joining and leaving, and the members that get a datagram.

use super::{Device, Devices};
use crate::base::error::Error;
use crate::base::gid::GidEntry;
use crate::base::id::DeviceId;
use crate::base::qp_ref::QpRef;
use crate::verbs::attr::QpType;
use vrdma_wire::num::{Gid, Qpn, VlanId};

impl<R> Device<R> {
    /// Checks that a QP may be a member of groups: its service has to be unreliable datagram.
    pub(super) fn check_member(&self, qpn: Qpn) -> Result<(), Error> {
        match self.qp(qpn).ok_or(Error::NotFound)?.service() {
            QpType::Ud => Ok(()),
            QpType::Rc | QpType::Uc | QpType::Gsi | QpType::XrcSend | QpType::XrcRecv => Err(Error::Invalid),
        }
    }

    /// Whether the device has an address in a VLAN. Otherwise it gets no datagrams to groups there.
    fn is_in(&self, vlan: VlanId) -> bool {
        self.gids.iter().any(|entry| *entry != GidEntry::EMPTY && entry.vlan == vlan)
    }
}

impl<R> Devices<R> {
    /// Makes a QP join a group.
    pub(crate) fn attach(&mut self, device: DeviceId, qpn: Qpn, mgid: Gid) -> Result<(), Error> {
        let known = self.find_mut(device)?;
        known.check_member(qpn)?;
        if !mgid.is_multicast() {
            return Err(Error::Invalid);
        }
        if known.groups.attach(mgid, qpn, &known.limits)? {
            self.listeners.insert((mgid, device.0));
        }
        Ok(())
    }

    /// Makes a QP leave a group.
    pub(crate) fn detach(&mut self, device: DeviceId, qpn: Qpn, mgid: Gid) -> Result<(), Error> {
        let known = self.find_mut(device)?;
        known.check_member(qpn)?;
        known.groups.detach(mgid, qpn)?;
        if !known.groups.contains(mgid) {
            self.listeners.remove(&(mgid, device.0));
        }
        Ok(())
    }

    /// Makes a QP leave all its groups, before it is destroyed.
    pub(crate) fn detach_from_all(&mut self, device: DeviceId, qpn: Qpn) -> Result<(), Error> {
        self.find(device)?.groups.of(qpn).into_iter().try_for_each(|mgid| self.detach(device, qpn, mgid))
    }

    /// Removes a device from the groups of its QPs. (The memberships are removed with the device's
    /// other objects.)
    pub(crate) fn leave_groups(&mut self, device: DeviceId) {
        let Devices { devices, listeners, .. } = self;
        let known = devices.get(device.0 as usize).and_then(Option::as_ref);
        for mgid in known.into_iter().flat_map(|known| known.groups.groups()) {
            listeners.remove(&(mgid, device.0));
        }
    }

    /// Returns the first device from index `from` on that has members of a group, and an address in
    /// the VLAN.
    pub(crate) fn next_listener(&self, mgid: Gid, vlan: VlanId, from: u32) -> Option<u32> {
        let mut devices = self.listeners.range((mgid, from)..=(mgid, u32::MAX)).map(|&(_, device)| device);
        devices.find(|&index| self.listener(index).is_in(vlan))
    }

    /// Returns the member of a group in a VLAN that follows `after`, or the first member.
    ///
    /// Members are ordered by device, then by number.
    pub(crate) fn next_member(&self, mgid: Gid, vlan: VlanId, after: Option<QpRef>) -> Option<QpRef> {
        let mut from = after.map_or(0, |place| place.device);
        while let Some(device) = self.next_listener(mgid, vlan, from) {
            let served = after.filter(|place| place.device == device).map(|place| place.qpn);
            if let Some(qpn) = self.listener(device).groups.next(mgid, served) {
                return Some(QpRef { device, qpn });
            }
            from = device + 1;
        }
        None
    }

    fn listener(&self, index: u32) -> &Device<R> {
        self.get(index).expect("a device's groups go with it")
    }
}
