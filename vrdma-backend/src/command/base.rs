//! What a command is.

use super::caller::Caller;
use crate::config::Transport;
use crate::device;
use crate::memory::Run;
use crate::worker::{Job, Order, Worker};
use vrdma_abi::control::{ObjectReq, ObjectResp, Opcode, RegMrResp, Status};
use vrdma_abi::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use vrdma_transport::DeviceId;
use vrdma_wire::num::Qpn;

/// What a request comes to; the error is the status of the reply.
pub(super) type Result<T> = std::result::Result<T, Status>;

/// A request or a reply without a structure of its own.
pub type Nothing = [u8; 0];

/// Whether runs of memory follow the structure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// None may.
    Never,
    /// One or more have to.
    Always,
    /// They may.
    Perhaps,
}

/// A command that a driver gives its device.
pub trait Command: Sized + Send + 'static {
    /// Its number.
    const OPCODE: Opcode;
    /// The transport of the functions that have it; `None` if all have it.
    const TRANSPORT: Option<Transport> = None;
    /// Structure of the request.
    type Request: FromBytes + KnownLayout + Immutable + Unaligned;
    /// Whether the request names memory.
    const RUNS: Runs = Runs::Never;
    /// Structure of the reply.
    type Reply: IntoBytes + Immutable + Send + 'static;
    /// Bytes of the reply that a driver has to give room for: its structure in ABI 1.0.
    const FIRST_REPLY: usize = size_of::<Self::Reply>();
    /// The command changes what several guests share, so a panic within it ends the process.
    const IS_SHARED: bool = false;

    /// Understands a request, and the runs of guest memory that it names.
    ///
    /// # Errors
    /// The status for the driver, as `abi/src/control.rs` has it for this command.
    fn parse(request: &Self::Request, runs: &[Run], caller: &Caller<'_>) -> Result<Self>;

    /// What the command waits for, and its driver.
    fn order(&self) -> Order {
        Order::Now
    }

    /// Whether the guest may use memory again, after the command, that it had lent to other
    /// workers.
    fn ends_loans(&self) -> bool {
        false
    }

    /// Carries it out for a device.
    ///
    /// # Errors
    /// Why it is refused. Nothing has changed then.
    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Self::Reply>;

    /// The command as a worker takes it.
    fn job(self) -> Job<Self::Reply> {
        let (order, ends_loans, is_shared) = (self.order(), self.ends_loans(), Self::IS_SHARED);
        Job { order, ends_loans, is_shared, run: Box::new(|worker, id| self.run(worker, id)) }
    }
}

/// The number in a request that names one object.
///
/// # Errors
/// `INVALID`: its reserved field is not zero.
pub(super) fn object(request: &ObjectReq) -> Result<u32> {
    if request.reserved.get() == 0 { Ok(request.object.get()) } else { Err(Status::INVALID) }
}

/// The QP with this number.
///
/// # Errors
/// `NOT_FOUND`: it is more than 24 bits.
pub(super) fn qpn(number: u32) -> Result<Qpn> {
    Qpn::new(number).ok_or(Status::NOT_FOUND)
}

/// The reply of a command without a reply structure.
pub(super) fn nothing(_: ()) -> Nothing {
    []
}

/// The reply that names a new object.
pub(super) fn new_object(number: u32) -> ObjectResp {
    ObjectResp { object: number.into(), reserved: 0.into() }
}

/// The reply with the keys of a region: it has one key, for both purposes.
pub(super) fn keys(key: u32) -> RegMrResp {
    RegMrResp { lkey: key.into(), rkey: key.into() }
}
