//! The vhost-user daemon that is a virtual machine's RDMA NIC. ARCHITECTURE.md shows how the parts work together.
#![deny(unsafe_code)]

mod admin;
pub mod config;
mod control;
pub mod daemon;
mod device;
mod memory;
mod net;
pub mod port;
mod queue;
mod ratelimit;
mod session;
mod vhost;
mod worker;
