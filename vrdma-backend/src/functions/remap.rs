//! Moves a device to a new memory table.
//!
//! The session's thread translates millions of extents itself. It passes the results to the worker
//! in slices between rounds, so no other guest waits. Old memory stays mapped, because it may be
//! accessed until the front-end has its answer. No command comes in between, because commands come
//! through the same thread.

use crate::memory::{GuestMemory, Loans, Runs};
use crate::worker::{Stopped, WorkerHandle};
use std::sync::Arc;
use vrdma_transport::DeviceId;

/// Number of regions or CQs in one message to the worker.
const SLICE: usize = 256;

/// Moves a device to a new memory table.
///
/// # Errors
/// The worker has stopped.
pub fn remap(worker: &WorkerHandle, device: DeviceId, memory: &Arc<GuestMemory>) -> Result<(), Stopped> {
    let mut budget = memory.len();
    let mut loaned = Loans::default();
    let inventory = worker.call(move |worker| worker.inventory(device))?;
    for start in (0..inventory.regions).step_by(SLICE) {
        let places = worker.call(move |worker| worker.region_places(device, start..start + SLICE))?;
        let translate = |(at, runs): (usize, Runs)| {
            // Pages beyond the limit are allocated when they are used, if they are.
            if runs.populate(memory, &mut budget).is_err() {
                memory.refuse();
            }
            (at, runs.translate(memory))
        };
        let new: Vec<_> = places.into_iter().map(translate).collect();
        let memory = memory.clone();
        // Drop the old translations in this thread: freeing much memory would delay the worker.
        for (_, loans) in worker.call(move |worker| worker.install_regions(device, &memory, new))? {
            loaned.extend(loans);
        }
    }
    for start in (0..inventory.cqs).step_by(SLICE) {
        let layouts = worker.call(move |worker| worker.cq_layouts(device, start..start + SLICE as u32))?;
        let new: Vec<_> = layouts.into_iter().map(|(cq, layout)| (cq, layout.map(memory))).collect();
        drop(worker.call(move |worker| worker.install_cqs(device, new))?);
    }
    for channel in inventory.channels {
        let memory = memory.clone();
        worker.call(move |worker| worker.remap_channel(device, channel, &memory))?;
    }
    let memory = memory.clone();
    worker.call(move |worker| worker.remap_device(device, &memory))?;
    worker.wait_for(loaned)
}
