//! What a worker knows of the other workers: their guests, and which guest has which GID.

use super::Worker;
use super::packets::PacketCounters;
use crate::config::GuestConfig;
use crate::cycles::{self, Stage};
use crate::device::broken::{contained, step};
use crate::device::clock::Clock;
use crate::gids::GidView;
use crate::net::Member;
use crate::port::WorkerOf;
use std::collections::HashMap;
use std::sync::Arc;
use vrdma_transport::{self as transport, DeviceId, GidEntry};
use vrdma_wire::num::Mac;

impl Worker {
    /// Sets the clock that all workers share, so that time stamps of their guests can be compared.
    ///
    /// It is called before any guest is added.
    pub fn set_clock(&mut self, clock: Clock) {
        self.outputs.clock = clock;
    }

    /// Adds the guests of other workers. It is called before any guest is added.
    pub fn set_others(&mut self, guests: &[GuestConfig], gids: GidView) {
        guests.iter().for_each(|guest| self.net.add_peer(&Member::of(guest)));
        self.gids = Some(gids);
    }

    /// Sets which worker has the guest with a MAC address, because a guest came or left.
    ///
    /// One table is for frames. The other one is for packets that are passed without frames.
    pub fn set_tables(&mut self, frames: Arc<WorkerOf>, packets: Arc<HashMap<Mac, usize>>) {
        if let Some(uplink) = &mut self.uplink {
            uplink.port.set_table(frames);
        }
        if let Some(packet_port) = &mut self.packet_port {
            packet_port.set_homes(packets);
        }
    }

    /// Claims a GID for a guest. Returns the other guest's name if another guest has it.
    pub(super) fn claim_gid(&mut self, id: DeviceId, entry: GidEntry) -> Result<(), String> {
        let Some(gids) = &mut self.gids else { return Ok(()) };
        let guest = &self.outputs.device(id).guest;
        gids.claim((entry.gid, entry.vlan), (&guest.name, guest.mac))?;
        if !self.claimed.contains(&(id, entry)) {
            self.claimed.push((id, entry));
        }
        Ok(())
    }

    /// Releases the claims of GIDs that a guest has no longer.
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

    /// Returns how many RoCE packets were dropped because their source GID is that of another
    /// worker's guest.
    pub fn spoofed(&self) -> u64 {
        self.gids.as_ref().map_or(0, |gids| gids.spoofed)
    }

    /// Returns the counters of inter-worker packets.
    pub fn packet_counters(&self) -> PacketCounters {
        self.packet_port.as_ref().map(|packet_port| packet_port.counters).unwrap_or_default()
    }

    /// Receives packets that other workers sent. Returns true if there were any.
    #[inline]
    pub(super) fn receive_packets(&mut self, now: transport::Instant) -> bool {
        let Worker { packet_port: Some(packet_port), engine, outputs, .. } = self else { return false };
        let _mark = cycles::enter(Stage::Execute);
        packet_port.receive_by(&mut |packet| {
            contained(step::PACKET, None, engine, outputs, |engine, outputs| {
                engine.handle_inter_worker(now, packet, outputs)
            });
        })
    }
}
