//! The data path of a vrdma driver: requests into channels, completions out of completion queues.
//!
//! The rdma-core provider in a guest uses it. On the host, tests and the perf harness use it as if
//! they were a guest. Everything here works on memory that the caller has mapped. Nothing
//! allocates, locks or makes a system call, except for what a [`Doorbell`] does.
//!
//! | module | what it does |
//! |---|---|
//! | [`wqe`] | a work request as a value ([`Request`]), and its encoding into 64-byte units |
//! | [`channel`] | the ring that passes units to the device ([`Channel`]), and when to kick |
//! | [`cq`] | polling and arming a completion queue ([`Cq`]) |
//! | [`qp`] | the outstanding requests of a QP and their wr_ids ([`WrRing`]) |
//!
//! [`vrdma_abi`] specifies the layouts.
//!
//! # One request, from post to completion
//!
//! ```
//! use vrdma_verbs::{Data, Request, Sge, Tag, Unit, WrRing};
//!
//! let sends = WrRing::new([const { core::sync::atomic::AtomicU64::new(0) }; 4], 4).unwrap();
//! let wqe_id = sends.next().expect("fewer than 4 are outstanding");
//! let element = [Sge { addr: 0x1000, length: 64, lkey: 7 }];
//! let request = Request::send(Tag { qpn: 5, wqe_id }, Data::Sges(&element)).signaled(true);
//!
//! // channel.push(&request)?, then channel.ring(); here it is written into plain memory:
//! let mut units = [Unit::default(); 1];
//! assert_eq!(request.encode(&mut units), Ok(1));
//! sends.push(0xfeed);
//!
//! // cq.poll() gives a Cqe that names the request:
//! assert_eq!(sends.complete(wqe_id), Some(0xfeed));
//! ```
#![no_std]

#[cfg(test)]
extern crate std;

#[cfg(test)]
mod litmus;
#[cfg(test)]
mod model;
#[cfg(test)]
mod stress;
// The helper of all tests. Its crate depends on this one, so the file is included.
#[cfg(test)]
#[path = "../../../testing/guest/src/wait.rs"]
#[allow(dead_code, reason = "tests of other crates use the rest")]
mod wait;

mod barrier;
pub mod channel;
pub mod cq;
pub mod qp;
mod span;
mod unit;
pub mod wqe;

pub use channel::{Channel, ChannelParts, Doorbell, MappedDoorbell, PostError};
pub use cq::{Arm, Cq, CqLayout, Cqe};
pub use qp::WrRing;
pub use unit::Unit;
pub use vrdma_abi as abi;
pub use wqe::{Bind, Data, Flush, Gather, Remote, Request, Sge, Tag, UdTarget, WqeError};
