//! The control virtqueue: from descriptor chains to commands, and the replies back.

use super::caller::Caller;
use super::request::Request;
use crate::memory::Run;
use crate::translate::status::status;
use crate::worker::{CommandError, Job};
use virtio_queue::{DescriptorChain, Queue, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vrdma_abi::control::{RespHeader, Run as AbiRun, Status};
use vrdma_abi::zerocopy::IntoBytes;

/// Serves the commands that are available in the control queue. `execute` has a worker carry one
/// out, and returns the structure of its reply. Returns whether the driver wants an interrupt.
///
/// # Errors
/// The ring itself cannot be read: the queue is broken.
pub fn serve(
    queue: &mut Queue,
    caller: &Caller<'_>,
    mut execute: impl FnMut(Job<Vec<u8>>) -> Result<Vec<u8>, CommandError>,
) -> Result<bool, virtio_queue::Error> {
    let memory = caller.memory.mmap();
    let mut used = false;
    // No driver makes more chains available at once than the ring holds. Others are served later.
    for _ in 0..queue.size() {
        // Popping a chain does not say that the ring cannot be read. This does.
        let avail = queue.avail_idx(memory, std::sync::atomic::Ordering::Acquire)?;
        if avail.0.wrapping_sub(queue.next_avail()) > queue.size() {
            return Err(virtio_queue::Error::InvalidAvailRingIndex);
        }
        let Some(chain) = queue.pop_descriptor_chain(memory) else { break };
        let head = chain.head_index();
        let written = answer(memory, chain, |request| {
            execute(request.job(caller)?).map_err(|error| match error {
                CommandError::Refused(error) => status(error),
                CommandError::Internal => Status::INTERNAL,
            })
        });
        queue.add_used(memory, head, written)?;
        used = true;
    }
    Ok(used && queue.needs_notification(memory)?)
}

/// Answers one chain. Returns how many bytes were written to it.
fn answer(
    memory: &GuestMemoryMmap<()>,
    chain: DescriptorChain<&GuestMemoryMmap<()>>,
    run: impl FnOnce(&Request<'_>) -> Result<Vec<u8>, Status>,
) -> u32 {
    let Some((request, writable)) = gather(memory, chain) else { return 0 };
    let room: u64 = writable.iter().map(|w| w.len).sum();
    if room < RespHeader::SIZE as u64 {
        return 0;
    }
    let request = Request::new(&request);
    let cookie = request.as_ref().map_or(0.into(), Request::cookie);
    let result = request.and_then(|request| {
        let size = request.reply_size();
        if room < size.least {
            return Err(Status::INVALID);
        }
        // A command is not carried out if the guest could not be told of it.
        if !is_memory(memory, &writable, size.all.min(room)) {
            return Err(Status::FAULT);
        }
        run(&request)
    });
    let status = result.as_ref().err().copied().unwrap_or(Status::OK);
    let header = RespHeader { status: status.0.into(), reserved: 0.into(), cookie };
    let mut response = header.as_bytes().to_vec();
    if let Ok(reply) = result {
        response.extend(reply);
        // An older driver gives room for what it knows.
        response.truncate(usize::try_from(room).unwrap_or(usize::MAX));
    }
    scatter(memory, &writable, &response)
}

/// Most bytes of a request: the largest list of runs that any configuration allows, and what comes
/// before it.
const MAX_REQUEST: u64 = 128 + (1 << 20) * AbiRun::SIZE as u64;

/// The readable bytes of a chain, and where to write. `None` for a chain that cannot be read, or
/// has a readable part behind a writable one.
fn gather(
    memory: &GuestMemoryMmap<()>,
    chain: DescriptorChain<&GuestMemoryMmap<()>>,
) -> Option<(Vec<u8>, Vec<Run>)> {
    let (mut request, mut writable) = (Vec::new(), Vec::new());
    for descriptor in chain {
        let (gpa, len) = (descriptor.addr().0, u64::from(descriptor.len()));
        if descriptor.is_write_only() {
            writable.push(Run { gpa, len });
            continue;
        }
        let start = request.len();
        if !writable.is_empty() || start as u64 + len > MAX_REQUEST {
            return None;
        }
        request.resize(start + len as usize, 0);
        memory.read_slice(&mut request[start..], GuestAddress(gpa)).ok()?;
    }
    Some((request, writable))
}

/// Whether the first `bytes` of the writable part of a chain are guest memory.
fn is_memory(memory: &GuestMemoryMmap<()>, writable: &[Run], mut bytes: u64) -> bool {
    writable.iter().all(|run| {
        let now = run.len.min(bytes);
        bytes -= now;
        memory.check_range(GuestAddress(run.gpa), now as usize)
    })
}

/// Writes bytes to the writable part of a chain. Returns how many, 0 if it is not all guest memory.
fn scatter(memory: &GuestMemoryMmap<()>, writable: &[Run], mut bytes: &[u8]) -> u32 {
    let total = bytes.len() as u32;
    for run in writable {
        let (now, rest) = bytes.split_at(bytes.len().min(run.len as usize));
        if memory.write_slice(now, GuestAddress(run.gpa)).is_err() {
            return 0;
        }
        bytes = rest;
    }
    total
}
