//! What a worker knows of the others: their guests, and who of all guests has which GID.

use super::Worker;
use super::guests::member_of;
use super::near::NearCounters;
use crate::config::GuestConfig;
use crate::cycles::{self, Stage};
use crate::device::broken::{contained, step};
use crate::device::clock::Clock;
use crate::gids::GidView;
use vrdma_transport::{self as transport, DeviceId, GidEntry};

impl Worker {
    /// Its time is that of all workers, so that time stamps of their guests can be compared. Before
    /// any guest comes.
    pub fn set_clock(&mut self, clock: Clock) {
        self.outputs.clock = clock;
    }

    /// There are other workers, with these guests. Before any guest comes.
    pub fn set_others(&mut self, guests: &[GuestConfig], gids: GidView) {
        guests.iter().for_each(|guest| self.net.add_elsewhere(&member_of(guest)));
        self.gids = Some(gids);
    }

    /// A guest takes a GID, unless another has it, whose name this returns.
    pub(super) fn claim_gid(&mut self, id: DeviceId, entry: GidEntry) -> Result<(), String> {
        let Some(gids) = &mut self.gids else { return Ok(()) };
        let guest = &self.outputs.device(id).guest;
        gids.claim((entry.gid, entry.vlan), (&guest.name, guest.mac))?;
        if !self.claimed.contains(&(id, entry)) {
            self.claimed.push((id, entry));
        }
        Ok(())
    }

    /// Lets others have the GIDs that a guest has no longer.
    pub(super) fn settle_gids(&mut self, id: DeviceId) {
        let Worker { gids: Some(gids), claimed, engine, outputs, .. } = self else { return };
        let name = &outputs.device(id).guest.name;
        claimed.retain(|&(device, entry)| {
            let has_it = device != id || engine.gid_owner(entry) == Some(id);
            if !has_it {
                gids.release((entry.gid, entry.vlan), name);
            }
            has_it
        });
    }

    /// RoCE packets that were dropped because they came under a GID of a guest of another worker.
    pub fn spoofed(&self) -> u64 {
        self.gids.as_ref().map_or(0, |gids| gids.spoofed)
    }

    /// What went to other workers as packets, and came from them.
    pub fn near_counters(&self) -> NearCounters {
        self.near.as_ref().map(|near| near.counters).unwrap_or_default()
    }

    /// Takes packets that other workers sent; true if there were any.
    #[inline]
    pub(super) fn receive_near(&mut self, now: transport::Instant) -> bool {
        let Worker { near: Some(near), engine, outputs, .. } = self else { return false };
        let _mark = cycles::enter(Stage::Execute);
        near.receive_by(&mut |packet| {
            contained(step::PACKET, None, engine, outputs, |engine, outputs| {
                engine.handle_near(now, packet, outputs)
            });
        })
    }
}
