//! The data path of a vrdma driver: requests into channels, completions out of completion queues.
//!
//! Used by the rdma-core provider in a guest, and on the host by tests and the perf harness, which
//! play the guest. Everything here works on memory that the caller has mapped; nothing allocates,
//! locks or makes a system call (but for whatever a [`Doorbell`] does).
//!
//! | module | what it does |
//! |---|---|
//! | [`wqe`] | a work request as a value ([`Request`]), and how it becomes 64-byte units |
//! | [`channel`] | the ring that takes units to the device ([`Channel`]), and when to kick |
//! | [`cq`] | polling and arming a completion queue ([`Cq`]) |
//! | [`qp`] | which requests of a QP are outstanding, and their wr_ids ([`WrRing`]) |
//!
//! The layouts are those of [`vrdma_abi`]; its pages are the specification.
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
//! // channel.push(&request)?, then channel.ring(); here into plain memory:
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
// The helper of all tests: the crate that has it is above this one.
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
