//! The control queue.

use crate::front_end::Queue;
use crate::memory::{Memory, PAGE};
use crate::virtqueue::{Piece, Virtqueue};
use crate::wait;
use std::sync::Arc;
use std::time::Duration;
use vrdma_abi::control::*;
use vrdma_abi::zerocopy::{FromBytes, IntoBytes};

/// Bytes reserved for the requests and replies of usual commands.
const ARENA: u64 = 4 * PAGE;
/// Bytes at the end of the arena for the reply.
const REPLY: u64 = 512;

/// The driver's end of the control queue.
#[derive(Debug)]
pub struct ControlQueue {
    /// The virtqueue.
    pub queue: Virtqueue,
    memory: Arc<Memory>,
    arena: u64,
    cookie: u64,
}

impl ControlQueue {
    /// Creates the driver's end on a clear virtqueue.
    pub fn new(queue: &Queue, memory: &Arc<Memory>, event_idx: bool) -> ControlQueue {
        let virtqueue = Virtqueue::new(queue.ring.clone(), queue.kick.clone(), queue.call.clone(), event_idx);
        ControlQueue { queue: virtqueue, memory: memory.clone(), arena: memory.alloc(ARENA), cookie: 0x1000 }
    }

    /// Gives a request of arbitrary bytes to the device, with `reply_len` bytes of room for the
    /// reply.
    ///
    /// Returns the reply as written by the device, or `None` if there was no answer in time.
    pub fn exchange(&mut self, request: &[u8], reply_len: u64, time: Duration) -> Option<Vec<u8>> {
        let large = request.len() as u64 + REPLY > ARENA || reply_len > REPLY;
        let room = request.len() as u64 + reply_len;
        let at = if large { self.memory.alloc(room) } else { self.arena };
        let reply_at = if large { at + request.len() as u64 } else { at + ARENA - REPLY };
        let mut pieces = Vec::new();
        if !request.is_empty() {
            self.memory.write(at, request);
            pieces.push(Piece { gpa: at, len: request.len() as u32, writable: false });
        }
        if reply_len != 0 {
            self.memory.fill(reply_at, reply_len, 0xee);
            pieces.push(Piece { gpa: reply_at, len: reply_len as u32, writable: true });
        }
        let head = self.queue.add(&pieces).expect("room for a command");
        let (used, len) = self.queue.wait_used(time)?;
        assert_eq!(used, head, "the command that was given");
        assert!(u64::from(len) <= reply_len, "{len} bytes written of {reply_len}");
        let reply = self.memory.bytes(reply_at, len.into());
        if large {
            self.memory.free(at, room);
        }
        Some(reply)
    }

    /// Executes a well-formed command and returns the reply's bytes after its header.
    pub fn command(
        &mut self,
        opcode: Opcode,
        body: &[u8],
        runs: &[Run],
        reply_len: usize,
    ) -> Result<Vec<u8>, Status> {
        self.cookie += 1;
        let header = ReqHeader {
            opcode: opcode.0.into(),
            reserved: 0.into(),
            num_runs: (runs.len() as u32).into(),
            cookie: self.cookie.into(),
        };
        let request = [header.as_bytes(), body, runs.as_bytes()].concat();
        let room = (RespHeader::SIZE + reply_len) as u64;
        let reply = self.exchange(&request, room, wait::PATIENCE);
        let reply = reply.unwrap_or_else(|| panic!("no answer to {opcode:?}"));
        let (header, rest) = RespHeader::read_from_prefix(&reply).expect("a reply has a header");
        assert_eq!(header.cookie.get(), self.cookie, "cookie of the reply to {opcode:?}");
        assert_eq!(header.reserved.get(), 0);
        match Status(header.status.get()) {
            Status::OK => {
                assert_eq!(rest.len(), reply_len, "length of the reply to {opcode:?}");
                Ok(rest.to_vec())
            }
            status => {
                assert!(rest.is_empty(), "a refusal of {opcode:?} has no more to say");
                Err(status)
            }
        }
    }
}

/// The result of a command: its reply, or the status with which the device refused it.
pub type Answer<T> = Result<T, Status>;

/// Returns an extent of guest memory in the format of commands.
pub fn run(addr: u64, len: u64) -> Run {
    Run { addr: addr.into(), len: len.into() }
}
