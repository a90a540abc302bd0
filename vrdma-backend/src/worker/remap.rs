//! Applies a new memory table to a worker's objects.
//!
//! The guest's session translates everything in its own thread (`functions/rdma.rs`), and
//! sends short messages. The previous translation stays valid and mapped until the new one replaces
//! it.

use super::Worker;
use crate::memory::{Extents, GuestMemory, Pins, Translation};
use crate::queue::channel::ChannelError;
use crate::queue::cq::{CqLayout, CqMapping};
use std::ops::Range;
use std::sync::Arc;
use vrdma_transport::{CqId, DeviceId};

/// What of a device has to be translated anew.
#[derive(Debug)]
pub struct Inventory {
    /// The exclusive end of the indices of regions.
    pub regions: usize,
    /// The exclusive end of the numbers of CQs.
    pub cqs: u32,
    /// Virtqueues that are bound as channels.
    pub channels: Vec<u16>,
}

impl Worker {
    /// Returns what of a device has to be translated anew.
    pub fn inventory(&mut self, id: DeviceId) -> Inventory {
        Inventory {
            regions: self.engine.region_indices(id),
            cqs: self.outputs.device(id).cq_end(),
            channels: self.channels.iter().filter(|b| b.device == id).map(|b| b.channel.index()).collect(),
        }
    }

    /// Returns the guest's addresses of its regions with these indices.
    pub fn region_places(&mut self, id: DeviceId, indices: Range<usize>) -> Vec<(usize, Extents)> {
        self.engine.regions_mut(id, indices).map(|(at, region)| (at, region.places())).collect()
    }

    /// Installs new translations of regions. Returns the old ones.
    ///
    /// It also returns which of the old memory frames may still carry.
    pub fn install_regions(
        &mut self,
        id: DeviceId,
        memory: &Arc<GuestMemory>,
        new: Vec<(usize, Translation)>,
    ) -> Vec<(Translation, Pins)> {
        let install = |(at, translation)| {
            let (_, region) = self.engine.regions_mut(id, at..at + 1).next()?;
            Some(region.install(memory, translation))
        };
        new.into_iter().filter_map(install).collect()
    }

    /// Returns the guest's addresses of its CQs with these numbers.
    pub fn cq_layouts(&mut self, id: DeviceId, numbers: Range<u32>) -> Vec<(CqId, CqLayout)> {
        self.outputs.device(id).cq_layouts(numbers)
    }

    /// Installs new mappings of CQs, and returns the old ones. A CQ without a new mapping fails.
    pub fn install_cqs(&mut self, id: DeviceId, new: Vec<(CqId, Option<CqMapping>)>) -> Vec<CqMapping> {
        let mut old = Vec::with_capacity(new.len());
        for (cq, mapping) in new {
            let is_gone = mapping.is_none();
            old.extend(self.outputs.device(id).install_cq(cq, mapping));
            if is_gone {
                self.outputs.fail_cq(id, cq);
            }
        }
        self.fail_cqs();
        old
    }

    /// Applies a new memory table to a channel.
    pub fn remap_channel(&mut self, id: DeviceId, channel: u16, memory: &Arc<GuestMemory>) {
        let Some(at) = self.position(id, channel) else { return };
        let channel = &mut self.channels[at].channel;
        let was_broken = channel.is_broken();
        if !channel.remap(memory) && !was_broken {
            self.channel_broken(at, ChannelError::Memory);
        }
    }

    /// Applies a new memory table to the rest of a device.
    pub fn remap_device(&mut self, id: DeviceId, memory: &Arc<GuestMemory>) {
        let device = self.outputs.device(id);
        device.remap(memory);
        // Revokes what is pinned of the old memory. Nothing more of it is pinned.
        self.outputs.take_loans_back(id);
    }
}
