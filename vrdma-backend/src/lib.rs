//! The vhost-user daemon that is a virtual machine's RDMA NIC: each guest has an RDMA function and an Ethernet function, which meet in a switch with
//! an uplink that DPDK drives. What people do with it is in `docs/vrdma-backend.md`; `ARCHITECTURE.md` walks through how the parts work together.
//!
//! This page is a place to begin. The crates, from the inside out:
//!
//! | crate | question |
//! |---|---|
//! | [`vrdma_abi`] | what do guest and device say to each other in memory? |
//! | [`vrdma_wire`] | what do two NICs say to each other? |
//! | [`vrdma_transport`] | what does a queue pair do? No I/O, clock, or unsafe code |
//! | [`dpdk_sys`] | how are functions of the installed libdpdk called? |
//! | `vrdma_backend` | the daemon: the only crate that touches the world |
//! | `vrdma_verbs` | the guest driver's data path, for the provider and for tests |
//! | `vrdma_guest` | a guest without a VM, for `vrdma-perf` and for tests |
//! | `vrdma_tests` | such guests against the real daemon |
//!
//! # How it runs
//!
//! [`daemon::Daemon`] claims the sockets of its [`config::Config`], opens the uplink, and starts
//!
//! * one worker thread (`worker`), which owns the engine, all rings, the switch (`net`) and the [`port::Port`]: nothing in it is locked;
//! * a thread for each function of a guest (`session`, `vhost`), which speaks vhost-user with the VMM; that of an RDMA function parses control commands (`control`) and hands
//!   them to the worker as closures;
//! * a thread that rings the front-ends whose eventfds are slow (`queue::call`), and one that frees what takes long to free (`memory`);
//! * a thread for the admin socket (`admin`).
//!
//! `streams` has the connections of iWARP functions, in sockets of the host's TCP (`tcp`). `device` says what a guest's objects are, `translate` says the words of abi in those of transport and back, `queue` moves rings, `memory` is where guest memory is mapped and touched, `frames` what lies in an Ethernet frame, `socket` who may connect.
//! The modules are private, but documented: `cargo doc --document-private-items -p vrdma-backend`.
#![deny(unsafe_code)]

mod admin;
pub mod allocator;
pub mod allowed;
pub mod config;
mod control;
mod cycles;
pub mod daemon;
mod device;
mod frames;
mod functions;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../fuzz/src/backend/mod.rs"]
pub mod fuzzing;
mod gids;
#[cfg(feature = "hooks")]
pub mod hooks;
pub mod logger;
mod memory;
mod nearest;
mod net;
pub mod panics;
pub mod port;
mod processors;
mod queue;
pub mod ratelimit;
mod session;
mod socket;
mod stats;
mod streams;
/// Our own TCP as the worker has it, for who measures it alone (`vrdma-perf wire --iwarp`).
pub mod own_tcp {
    pub use crate::memory::fetch_ahead;
    pub use crate::streams::{Came, Handle, Output, Own, SEGMENTS, Socket, TURN_BYTES, Taker};
    pub use crate::tcp::{Path, TrafficClass};
}
/// What leads workers to each other, for who measures it alone (`vrdma-perf near`).
pub mod near {
    pub use crate::memory::{GuestMemory, LoanGate, MapOptions, MrMemory, RegionSpec, Run};
    pub use crate::port::Station;
    pub use crate::worker::near::{NearPort, near_ports};
}
mod tcp;
mod translate;
mod vhost;
mod worker;

#[cfg(test)]
mod tests;
// The helper of all tests: the crate that has it is above this one.
#[cfg(test)]
#[path = "../../guest/src/wait.rs"]
#[allow(dead_code, reason = "tests of other crates use the rest")]
mod wait;
