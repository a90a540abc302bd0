//! What a device may have, and what of it is in use. The engine counts its own objects.

use super::queues::first_channel;
use crate::config::{self, Config};
use vrdma_transport::Error;

/// What a device may have: its guest's quota, and its virtqueues.
#[derive(Clone, Debug)]
pub struct DeviceLimits {
    /// The guest's quota.
    pub guest: config::GuestLimits,
    /// Completion vectors.
    pub comp_vectors: u16,
    /// Virtqueue of the kernel's channel; the other channels follow.
    pub first_channel: u16,
    /// Virtqueues.
    pub num_queues: u32,
    /// Its connections of iWARP to guests of its worker go over TCP, too.
    pub tcp_between_guests: bool,
    /// Seconds without a word of a peer of own TCP after which it is asked; 0 is never.
    pub tcp_keepalive: u16,
}

impl DeviceLimits {
    /// From the configuration.
    pub fn new(config: &Config) -> DeviceLimits {
        let mut guest = config.limits.clone();
        // Each worker has its part of what all guests may have together.
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

    /// Most user contexts, the kernel's included.
    pub fn contexts(&self) -> u32 {
        self.guest.contexts.saturating_add(1)
    }
}

/// What is in use of amounts that all objects of a device share.
#[derive(Debug, Default)]
pub(super) struct Quota {
    /// Runs of memory.
    runs: u64,
    /// Requests that all QPs may have outstanding.
    requests: u64,
}

impl Quota {
    /// Runs of memory in use.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Takes runs of memory for a region or ring.
    ///
    /// # Errors
    /// `NoResources`: there are not so many left.
    pub fn take_runs(&mut self, runs: u64, limits: &DeviceLimits) -> Result<(), Error> {
        if self.runs + runs > limits.guest.total_runs {
            return Err(Error::NoResources);
        }
        self.runs += runs;
        Ok(())
    }

    /// Takes runs of memory for a region or ring in the place of those that it had.
    ///
    /// # Errors
    /// `NoResources`: there are not so many left.
    pub fn exchange_runs(&mut self, old: u64, new: u64, limits: &DeviceLimits) -> Result<(), Error> {
        self.return_runs(old);
        self.take_runs(new, limits).inspect_err(|_| self.runs += old)
    }

    /// Those of a region or ring that is gone.
    pub fn return_runs(&mut self, runs: u64) {
        self.runs -= runs;
    }

    /// Whether so many requests outstanding are left.
    ///
    /// # Errors
    /// `NoResources`: they are not.
    pub fn check_requests(&self, requests: u64, limits: &DeviceLimits) -> Result<(), Error> {
        if self.requests + requests > limits.guest.total_requests { Err(Error::NoResources) } else { Ok(()) }
    }

    /// Takes requests for a QP, which were checked.
    pub fn take_requests(&mut self, requests: u64) {
        self.requests += requests;
    }

    /// Those of a QP that is gone.
    pub fn return_requests(&mut self, requests: u64) {
        self.requests -= requests;
    }
}
