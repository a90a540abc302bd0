//! Commands of the control virtqueue, from the bytes of the request to the bytes of the reply.
//!
//! Each file is about one kind of object. It has a type for each command about such an object. The
//! type implements [`Command`](base::Command):
//!
//! 1. [`parse`](base::Command::parse) runs in the session of the guest. It makes handles from the
//!    numbers in the request, and resolves the memory that the request names.
//! 2. [`order`](base::Command::order) says what the command waits for.
//! 3. [`run`](base::Command::run) runs in the worker that has the guest, and returns the structure
//!    of the reply. A command that is refused has changed nothing.
//!
//! [`rows`] lists all commands. [`queue`] reads descriptor chains, and [`request`] finds the row of
//! a request. `abi/src/control.rs` documents what each command means.

mod ah;
mod base;
mod body;
mod caller;
mod channel;
mod cm;
mod context;
mod cq;
mod gid;
mod mcast;
mod mr;
mod mw;
mod pd;
mod port;
mod qp;
mod query;
mod queue;
mod request;
mod rows;
mod srq;
mod xrcd;

pub use caller::Caller;
pub use queue::serve;
// Commands that tests of the worker, and the fuzz targets, execute.
#[cfg(any(test, feature = "fuzzing"))]
pub use {ah::*, base::Command, context::*, cq::*, gid::*, mr::*, pd::*, qp::*};
