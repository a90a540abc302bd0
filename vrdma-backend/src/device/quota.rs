//! The limits of a device, and what is in use. The engine counts its own objects.

use super::queues::first_channel;
use crate::config::{self, Config};
use vrdma_transport::Error;

/// The limits of a device: its guest's quota, and its virtqueues.
#[derive(Clone, Debug)]
pub struct DeviceLimits {
    /// The guest's quota.
    pub guest: config::GuestLimits,
    /// Number of completion vectors.
    pub comp_vectors: u16,
    /// Virtqueue of the kernel's channel. The other channels follow.
    pub first_channel: u16,
    /// Number of virtqueues.
    pub num_queues: u32,
    /// Whether iWARP connections to guests of the same worker also go over TCP.
    pub tcp_between_guests: bool,
    /// Idle seconds after which vrdma's own TCP probes the peer. 0 means never.
    pub tcp_keepalive: u16,
}

impl DeviceLimits {
    /// Makes the limits of a guest from the configuration.
    pub fn of(config: &Config, guest: &config::GuestConfig) -> DeviceLimits {
        DeviceLimits::with(config, config.limits_of(guest))
    }

    /// Makes the limits of a guest without limits of its own.
    #[cfg(test)]
    pub fn new(config: &Config) -> DeviceLimits {
        DeviceLimits::with(config, config.limits.clone())
    }

    fn with(config: &Config, mut guest: config::GuestLimits) -> DeviceLimits {
        // Each worker has an equal share of the limits for all guests together.
        guest.all_request_memory = guest.all_request_memory.div_ceil(config.workers.into());
        guest.all_stream_memory = guest.all_stream_memory.div_ceil(config.workers.into());
        DeviceLimits {
            guest,
            comp_vectors: config.comp_vectors,
            first_channel: first_channel(config.comp_vectors),
            num_queues: config.num_queues(),
            tcp_between_guests: config.tcp_between_guests,
            tcp_keepalive: config.tcp_keepalive,
        }
    }

    /// Returns the largest number of user contexts, including the kernel's.
    pub fn contexts(&self) -> u32 {
        self.guest.contexts.saturating_add(1)
    }
}

/// The use of resources that all objects of a device share.
#[derive(Debug, Default)]
pub(super) struct Quota {
    /// Number of memory extents.
    extents: u64,
    /// Number of requests that all QPs and shared receive queues may have outstanding.
    requests: u64,
}

impl Quota {
    /// Returns the number of memory extents in use.
    pub fn extents(&self) -> u64 {
        self.extents
    }

    /// Takes extents for a region or ring.
    ///
    /// # Errors
    /// `NoResources`: fewer are left.
    pub fn take_extents(&mut self, extents: u64, limits: &DeviceLimits) -> Result<(), Error> {
        if self.extents + extents > limits.guest.total_runs {
            return Err(Error::NoResources);
        }
        self.extents += extents;
        Ok(())
    }

    /// Takes extents for a region or ring that returns its old ones.
    ///
    /// # Errors
    /// `NoResources`: fewer are left.
    pub fn exchange_extents(&mut self, old: u64, new: u64, limits: &DeviceLimits) -> Result<(), Error> {
        self.return_extents(old);
        self.take_extents(new, limits).inspect_err(|_| self.extents += old)
    }

    /// Returns the extents of a region or ring that is gone.
    pub fn return_extents(&mut self, extents: u64) {
        self.extents -= extents;
    }

    /// Checks whether `requests` outstanding requests are left.
    ///
    /// # Errors
    /// `NoResources`: fewer are left.
    pub fn check_requests(&self, requests: u64, limits: &DeviceLimits) -> Result<(), Error> {
        if self.requests + requests > limits.guest.total_requests { Err(Error::NoResources) } else { Ok(()) }
    }

    /// Takes outstanding requests that [`Quota::check_requests`] has checked.
    pub fn take_requests(&mut self, requests: u64) {
        self.requests += requests;
    }

    /// Returns the outstanding requests of a queue that is gone.
    pub fn return_requests(&mut self, requests: u64) {
        self.requests -= requests;
    }
}
