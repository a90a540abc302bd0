//! The control virtqueue: reads commands from descriptor chains, and writes the replies.

use super::caller::Caller;
use super::request::CommandRequest;
use crate::memory::Extent;
use crate::translate::status::status;
use crate::worker::{CommandError, Job};
use virtio_queue::{DescriptorChain, Queue, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vrdma_abi::control::{RespHeader, Run as AbiRun, Status};
use vrdma_abi::zerocopy::IntoBytes;

/// Serves the commands that are available in the control queue.
///
/// `execute` has a worker execute a job, and returns the structure of the reply. Returns whether
/// the driver wants an interrupt.
///
/// # Errors
/// The ring cannot be read. The queue is broken then.
pub fn serve(
    queue: &mut Queue,
    caller: &Caller<'_>,
    mut execute: impl FnMut(Job<Vec<u8>>) -> Result<Vec<u8>, CommandError>,
) -> Result<bool, virtio_queue::Error> {
    let memory = caller.memory.mmap();
    let mut used = false;
    // A driver can make at most as many chains available as the ring holds. Chains that arrive
    // during the loop are served by the next call.
    for _ in 0..queue.size() {
        // `pop_descriptor_chain` does not report an unreadable ring. `avail_idx` does.
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

/// Answers one chain. Returns the number of bytes written to it.
fn answer(
    memory: &GuestMemoryMmap<()>,
    chain: DescriptorChain<&GuestMemoryMmap<()>>,
    run: impl FnOnce(&CommandRequest<'_>) -> Result<Vec<u8>, Status>,
) -> u32 {
    let Some((request, writable)) = gather(memory, chain) else { return 0 };
    let room: u64 = writable.iter().map(|w| w.len).sum();
    if room < RespHeader::SIZE as u64 {
        return 0;
    }
    let request = CommandRequest::new(&request);
    let cookie = request.as_ref().map_or(0.into(), CommandRequest::cookie);
    let result = request.and_then(|request| {
        let size = request.reply_size();
        if room < size.least {
            return Err(Status::INVALID);
        }
        // The command must not run if the guest could not receive the reply.
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
        // An older driver provides room only for the fields it knows.
        response.truncate(usize::try_from(room).unwrap_or(usize::MAX));
    }
    scatter(memory, &writable, &response)
}

/// Largest request in bytes. This is the longest extent list that any configuration allows, and
/// what precedes the list.
const MAX_REQUEST: u64 = 128 + (1 << 20) * AbiRun::SIZE as u64;

/// Returns the readable bytes of a chain, and its writable extents.
///
/// Returns `None` if the chain cannot be read, is too long, or has a readable part behind a
/// writable one.
fn gather(
    memory: &GuestMemoryMmap<()>,
    chain: DescriptorChain<&GuestMemoryMmap<()>>,
) -> Option<(Vec<u8>, Vec<Extent>)> {
    let (mut request, mut writable) = (Vec::new(), Vec::new());
    for descriptor in chain {
        let (gpa, len) = (descriptor.addr().0, u64::from(descriptor.len()));
        if descriptor.is_write_only() {
            writable.push(Extent { gpa, len });
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

/// Returns whether the first `bytes` of the writable part of a chain are guest memory.
fn is_memory(memory: &GuestMemoryMmap<()>, writable: &[Extent], mut bytes: u64) -> bool {
    writable.iter().all(|extent| {
        let now = extent.len.min(bytes);
        bytes -= now;
        memory.check_range(GuestAddress(extent.gpa), now as usize)
    })
}

/// Writes bytes to the writable part of a chain.
///
/// Returns the number of bytes, or 0 if not all of the part is guest memory.
fn scatter(memory: &GuestMemoryMmap<()>, writable: &[Extent], mut bytes: &[u8]) -> u32 {
    let total = bytes.len() as u32;
    for extent in writable {
        let (now, rest) = bytes.split_at(bytes.len().min(extent.len as usize));
        if memory.write_slice(now, GuestAddress(extent.gpa)).is_err() {
            return 0;
        }
        bytes = rest;
    }
    total
}
