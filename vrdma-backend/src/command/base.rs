//! The interface of a command.

use super::caller::Caller;
use crate::config::Transport;
use crate::device;
use crate::memory::Extent;
use crate::worker::{Job, Order, Worker};
use vrdma_abi::control::{ObjectReq, ObjectResp, Opcode, RegMrResp, Status};
use vrdma_abi::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use vrdma_transport::DeviceId;
use vrdma_wire::num::Qpn;

/// The result of a request. The error is the status of the reply.
pub(super) type StatusResult<T> = std::result::Result<T, Status>;

/// A request or a reply without a structure of its own.
pub type Nothing = [u8; 0];

/// Whether memory extents ([`Extent`]) follow the structure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentList {
    /// No extent may follow.
    Never,
    /// At least one extent has to follow.
    Always,
    /// Extents may follow.
    Perhaps,
}

/// A control command from a driver to its device.
pub trait Command: Sized + Send + 'static {
    /// The number of the command.
    const OPCODE: Opcode;
    /// The transport of the functions that have the command. `None` if all functions have it.
    const TRANSPORT: Option<Transport> = None;
    /// Structure of the request.
    type Request: FromBytes + KnownLayout + Immutable + Unaligned;
    /// Whether memory extents follow the request.
    const EXTENTS: ExtentList = ExtentList::Never;
    /// Structure of the reply.
    type Reply: IntoBytes + Immutable + Send + 'static;
    /// Least room for the structure of the reply, in bytes: its size in ABI 1.0. A driver has to
    /// provide it.
    const FIRST_REPLY: usize = size_of::<Self::Reply>();
    /// Whether the command changes state that several guests share. If so, a panic within it ends
    /// the process.
    const IS_SHARED: bool = false;

    /// Parses a request, and the extents of guest memory that it names.
    ///
    /// # Errors
    /// The status for the driver, as `abi/src/control.rs` documents it for this command.
    fn parse(request: &Self::Request, extents: &[Extent], caller: &Caller<'_>) -> StatusResult<Self>;

    /// Returns what the command, and its driver, have to wait for.
    fn order(&self) -> Order {
        Order::Now
    }

    /// Returns whether the guest may reuse memory after the command that is pinned by other
    /// workers.
    fn revokes_pins(&self) -> bool {
        false
    }

    /// Executes the command for a device.
    ///
    /// # Errors
    /// The reason of the refusal. Nothing has changed then.
    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Self::Reply>;

    /// Turns the command into a job for a worker.
    fn job(self) -> Job<Self::Reply> {
        let (order, revokes_pins, is_shared) = (self.order(), self.revokes_pins(), Self::IS_SHARED);
        Job { order, revokes_pins, is_shared, run: Box::new(|worker, id| self.run(worker, id)) }
    }
}

/// Returns the object number of a request that names one object.
///
/// # Errors
/// `INVALID`: the reserved field is not zero.
pub(super) fn object(request: &ObjectReq) -> StatusResult<u32> {
    if request.reserved.get() == 0 { Ok(request.object.get()) } else { Err(Status::INVALID) }
}

/// Returns the QP number.
///
/// # Errors
/// `NOT_FOUND`: the number has more than 24 bits.
pub(super) fn qpn(number: u32) -> StatusResult<Qpn> {
    Qpn::new(number).ok_or(Status::NOT_FOUND)
}

/// Returns the reply of a command without a reply structure.
pub(super) fn nothing(_: ()) -> Nothing {
    []
}

/// Returns the reply that names a new object.
pub(super) fn new_object(number: u32) -> ObjectResp {
    ObjectResp { object: number.into(), reserved: 0.into() }
}

/// Returns the reply with the keys of a region. A region has one key, which is both lkey and rkey.
pub(super) fn keys(key: u32) -> RegMrResp {
    RegMrResp { lkey: key.into(), rkey: key.into() }
}
