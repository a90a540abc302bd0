//! A new memory table, as the worker follows it: in short messages of the guest's session, which
//! translates everything in its own thread ([`crate::functions::remap`]). What was translated
//! before stays valid, and mapped, until the new translation takes its place.

use super::Worker;
use crate::memory::{GuestMemory, Loans, Runs, Translation};
use crate::queue::channel::ChannelError;
use crate::queue::cq::{CqLayout, CqMapping};
use std::ops::Range;
use std::sync::Arc;
use vrdma_transport::{CqId, DeviceId};

/// What of a device has to be translated anew.
#[derive(Debug)]
pub struct Inventory {
    /// Regions have indices below this.
    pub regions: usize,
    /// CQs have numbers below this.
    pub cqs: u32,
    /// Virtqueues that are bound as channels.
    pub channels: Vec<u16>,
}

impl Worker {
    /// What of a device has to be translated anew.
    pub fn inventory(&mut self, id: DeviceId) -> Inventory {
        Inventory {
            regions: self.engine.region_indices(id),
            cqs: self.outputs.device(id).cq_end(),
            channels: self.channels.iter().filter(|b| b.device == id).map(|b| b.channel.index()).collect(),
        }
    }

    /// Where the guest says that its regions with these indices are.
    pub fn region_places(&mut self, id: DeviceId, indices: Range<usize>) -> Vec<(usize, Runs)> {
        self.engine.regions_mut(id, indices).map(|(at, region)| (at, region.places())).collect()
    }

    /// Puts new translations of regions in the place of the old ones, which are returned, with what
    /// is loaned of the old memory.
    pub fn install_regions(
        &mut self,
        id: DeviceId,
        memory: &Arc<GuestMemory>,
        new: Vec<(usize, Translation)>,
    ) -> Vec<(Translation, Loans)> {
        let install = |(at, translation)| {
            let (_, region) = self.engine.regions_mut(id, at..at + 1).next()?;
            Some(region.install(memory, translation))
        };
        new.into_iter().filter_map(install).collect()
    }

    /// Where the guest says that its CQs with these numbers are.
    pub fn cq_layouts(&mut self, id: DeviceId, numbers: Range<u32>) -> Vec<(CqId, CqLayout)> {
        self.outputs.device(id).cq_layouts(numbers)
    }

    /// Puts new mappings of CQs in the place of the old ones, which are returned; those without one
    /// fail.
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

    /// A channel follows a new memory table.
    pub fn remap_channel(&mut self, id: DeviceId, channel: u16, memory: &Arc<GuestMemory>) {
        let Some(at) = self.position(id, channel) else { return };
        let channel = &mut self.channels[at].channel;
        let was_broken = channel.is_broken();
        if !channel.remap(memory) && !was_broken {
            self.channel_broken(at, ChannelError::Memory);
        }
    }

    /// The rest of a device follows a new memory table.
    pub fn remap_device(&mut self, id: DeviceId, memory: &Arc<GuestMemory>) {
        let device = self.outputs.device(id);
        device.remap(memory);
        // What was lent of the old memory: nothing more is.
        self.outputs.take_loans_back(id);
    }
}
