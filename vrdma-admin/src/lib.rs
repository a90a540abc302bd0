//! The administration of the daemon `vrdma-backend`.
//!
//! The daemon has two Unix sockets that speak [varlink](https://varlink.org): `observe` for those
//! who may look, and `admin` for those who may change something. `docs/admin.md` tells how to use
//! them. The files `idl/*.varlink` describe the interfaces, and the types here agree with them: the
//! tests in `tests/idl.rs` compare both.
//!
//! * `frame.rs` cuts a stream of bytes into messages. `message.rs` has calls and replies.
//! * `fault.rs` has the errors of all interfaces.
//! * `interface.rs` has the descriptions of the interfaces. `method.rs` defines what a method is.
//! * `service.rs`, `daemon.rs`, `guest.rs`, `qp.rs`, `mr.rs`, `worker.rs`, `port.rs`, `log.rs` and
//!   `capture.rs` have the types of one interface each.
//! * `client.rs` is a client that blocks.
#![forbid(unsafe_code)]

pub mod capture;
pub mod client;
pub mod daemon;
mod fault;
mod frame;
pub mod guest;
mod interface;
pub mod log;
mod message;
mod method;
pub mod mr;
pub mod port;
pub mod qp;
pub mod service;
pub mod worker;

pub use client::{Client, ClientError, Closer, Replies};
pub use fault::Fault;
pub use frame::{Frames, TooLong, frame};
pub use interface::{INTERFACES, Interface, interface};
pub use message::{Call, Reply};
pub use method::Method;

/// Where the daemon listens for those who may look, unless it is told otherwise.
pub const OBSERVE: &str = "/run/vrdma/observe";
/// Where the daemon listens for those who may change something, unless it is told otherwise.
pub const ADMIN: &str = "/run/vrdma/admin";
