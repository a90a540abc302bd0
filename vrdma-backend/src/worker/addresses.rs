//! Guests' addresses: the GIDs that they set, and the addresses from which they connect.

use super::Worker;
use crate::allowed::{AllowedGid, FrameVlan};
use crate::device::Result;
use crate::ratelimit::limited;
use std::net::IpAddr;
use vrdma_transport::{DeviceId, Error, GidEntry};
use vrdma_wire::num::VlanId;

impl Worker {
    /// Sets an entry of a guest's GID table.
    ///
    /// # Errors
    /// `Denied`: the guest may not use the address, or another guest has it. Those of
    /// [`vrdma_transport::Engine::set_gid`].
    pub fn add_gid(&mut self, id: DeviceId, index: u32, entry: GidEntry) -> Result<()> {
        if !self.may_use(id, entry) {
            self.gid_refused(id, entry, "it is not among those it may use: gids, vlans");
            return Err(Error::Denied);
        }
        if let Err(other) = self.claim_gid(id, entry) {
            self.gid_refused(id, entry, &format!("guest {other} has it"));
            return Err(Error::Denied);
        }
        let result = self.engine.set_gid(id, index, Some(entry));
        if result.is_err() {
            self.settle_gids(id);
        }
        if result == Err(Error::Denied) {
            let owner = self.engine.gid_owner(entry).expect("it is denied because another device has it");
            let owner = self.outputs.device(owner).guest.name.clone();
            self.gid_refused(id, entry, &format!("guest {owner} has it"));
        }
        result
    }

    /// Checks whether a guest may connect from an address with its own TCP.
    ///
    /// It may if it may use the address, and if no other guest has it as a GID.
    ///
    /// # Errors
    /// `Denied`: it may not.
    pub fn check_address(&mut self, id: DeviceId, address: IpAddr, vlan: VlanId) -> Result<()> {
        let entry = GidEntry { gid: AllowedGid { address, vlan: None }.gid(), vlan };
        // All devices of a guest have the guest's MAC address.
        let outputs = &mut self.outputs;
        let mut mac = |device| outputs.device(device).guest.mac;
        let (own, here) = (mac(id), self.engine.gid_owner(entry).map(mac));
        let elsewhere = self.gids.as_mut().and_then(|gids| gids.holder((entry.gid, entry.vlan)));
        if self.may_use(id, entry) && here.or(elsewhere).is_none_or(|holder| holder == own) {
            return Ok(());
        }
        self.gid_refused(id, entry, "it is not among those that it may connect from: gids, vlans");
        Err(Error::Denied)
    }

    /// Whether a guest may use an address.
    pub(super) fn may_use(&mut self, id: DeviceId, GidEntry { gid, vlan }: GidEntry) -> bool {
        let guest = &self.outputs.device(id).guest;
        let is_anothers = self.net.listed().is_anothers(guest.mac, FrameVlan::One(vlan), gid);
        !is_anothers && guest.allows(vlan, gid)
    }

    #[cold]
    pub(super) fn gid_refused(&mut self, id: DeviceId, GidEntry { gid, vlan }: GidEntry, why: &str) {
        let device = self.outputs.device(id);
        device.counters.refused_gids += 1;
        let (guest, vlan) = (&device.guest, FrameVlan::One(vlan));
        let name = &guest.name;
        limited!(self.violations, Warn, guest = guest.configured_name();
            "guest {name}: GID {gid} ({vlan}) is refused: {why}");
    }
}
