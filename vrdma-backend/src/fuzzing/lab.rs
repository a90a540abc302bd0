//! A worker with two or three guests, which the fuzzer runs in its own thread.

use super::guest::Ram;
use crate::config::{Config, GuestConfig, GuestLimits};
use crate::device;
use crate::device::counters::ObjectCounts;
use crate::functions::remap;
use crate::memory::GuestMemory;
use crate::worker::{Worker, WorkerHandle, inline};
use std::sync::Arc;
use vrdma_transport::DeviceId;
use vrdma_wire::num::{Gid, Mac};

/// The MTU of the uplink, and of Ethernet functions.
pub const MTU: u16 = 1500;
pub const MACS: [Mac; 2] = [Mac([0x52, 0x54, 0, 0, 0, 1]), Mac([0x52, 0x54, 0, 0, 0, 2])];
pub const ADDRESSES: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];
pub const GIDS: [Gid; 2] = [Gid::from_ipv4(ADDRESSES[0]), Gid::from_ipv4(ADDRESSES[1])];

/// A worker with its guests. Dropping it stops the worker.
pub struct Lab {
    pub config: Config,
    pub handle: WorkerHandle,
    pub guests: Vec<FuzzGuest>,
}

/// A guest: its numbers in the engine and in the switch, and its memory.
pub struct FuzzGuest {
    pub id: DeviceId,
    pub port: usize,
    pub ram: Ram,
}

impl Lab {
    /// Creates two guests that have done nothing yet.
    pub fn new() -> Lab {
        Lab::of(&[
            "name=a,socket=/a,net=/an,mac=52:54:00:00:00:01,gid=10.0.0.1",
            "name=b,socket=/b,net=/bn,mac=52:54:00:00:00:02,gid=10.0.0.2",
        ])
    }

    /// Creates two guests with iWARP functions.
    pub fn of_iwarp() -> Lab {
        Lab::of(&[
            "name=a,socket=/a,mac=52:54:00:00:00:01,transport=iwarp,host-address=127.0.0.1",
            "name=b,socket=/b,mac=52:54:00:00:00:02,transport=iwarp,host-address=127.0.0.2",
        ])
    }

    /// Creates two guests with iWARP functions over the daemon's own TCP, which they do not use
    /// between each other.
    pub fn of_local_way() -> Lab {
        Lab::of(&[
            "name=a,socket=/a,mac=52:54:00:00:00:01,transport=iwarp,tcp=own,gid=10.0.0.1",
            "name=b,socket=/b,mac=52:54:00:00:00:02,transport=iwarp,tcp=own,gid=10.0.0.2",
        ])
    }

    /// Creates two guests, and a third one without RDMA function that may send from any address.
    pub fn with_any_mac() -> Lab {
        Lab::of(&[
            "name=a,socket=/a,net=/an,mac=52:54:00:00:00:01,gid=10.0.0.1",
            "name=b,socket=/b,net=/bn,mac=52:54:00:00:00:02,gid=10.0.0.2",
            "name=c,net=/cn,mac=52:54:00:00:00:03,any-mac=true",
        ])
    }

    fn of(guests: &[&str]) -> Lab {
        let handle = inline::start(MTU);
        let guests: Vec<GuestConfig> = guests.iter().map(|text| text.parse().expect("a guest")).collect();
        let config = Config {
            comp_vectors: 1,
            channels: 3,
            mtu: MTU.into(),
            limits: GuestLimits {
                contexts: 4,
                pds: 6,
                cqs: 6,
                cq_entries: 128,
                mrs: 6,
                mr_runs: 8,
                total_runs: 24,
                qps: 16,
                qp_requests: 16,
                total_requests: 192,
                ahs: 16,
                connections: 6,
                ..GuestLimits::default()
            },
            guests,
            ..Config::default()
        };
        let add = |n: usize| {
            let spec = config.guests[n].clone();
            let limits = device::DeviceLimits::of(&config, &spec);
            let (id, port) = with(|worker| worker.add_guest(spec, limits));
            FuzzGuest { id, port, ram: Ram::of(n) }
        };
        let guests = (0..config.guests.len()).map(add).collect();
        Lab { config, handle, guests }
    }

    /// Returns how many objects a guest has, without pending requests and AHs.
    pub fn counts(&self, guest: usize) -> ObjectCounts {
        let id = self.guests[guest].id;
        ObjectCounts { pending_requests: 0, ahs: 0, ..with(|worker| worker.counts(id)) }
    }

    /// Sets the memory of a guest, as its front-end does.
    pub fn remap(&self, guest: usize, memory: &Arc<GuestMemory>) {
        remap(&self.handle, self.guests[guest].id, memory).expect("the worker runs");
    }

    /// Detaches all guests, and checks that nothing of them is left.
    pub fn end(&self) {
        for guest in &self.guests {
            with(|worker| worker.detach_device(guest.id));
            let left = with(|worker| worker.counts(guest.id));
            assert_eq!(left, ObjectCounts::default(), "what is left of a guest");
        }
        with(Worker::take_turn);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        inline::stop();
    }
}

/// Calls a function with the worker.
pub fn with<R>(f: impl FnOnce(&mut Worker) -> R) -> R {
    inline::with(f)
}
