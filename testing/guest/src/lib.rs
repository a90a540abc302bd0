//! A guest without a VM, for tests and benchmarks.
//!
//! It drives a daemon over a real vhost-user socket, with real rings in memory that both processes
//! map. It runs as fast as this host. Tests play their guests with it, and `vrdma-perf` measures
//! with it.
//!
//! | module | what it plays |
//! |---|---|
//! | [`memory`] | the guest's memory: memfds that the daemon maps too, with gaps between regions if wanted |
//! | [`front_end`] | the VMM: a vhost-user front-end |
//! | [`cloud_hypervisor`] | the VMM, if it is cloud-hypervisor |
//! | [`ring`], [`virtqueue`] | split virtqueues as a driver sees them; hostile guests can write every word |
//! | [`guest`], [`control`], [`commands`], [`events`] | the guest kernel's driver: its control queue, commands, events |
//! | [`ah`] | the guest kernel's table of address handles |
//! | [`cm`] | the guest kernel's connection manager, for connections that the device makes (iWARP) |
//! | [`context`], [`cq`], [`mr`], [`qp`], [`side`] | a process of the guest: its channel and objects, on `vrdma-verbs` |
//! | [`threads`] | where threads of the guest and of the daemon run |
//! | [`wait`], [`readable`] | how tests wait for what must happen |
//!
//! If something happens that a well-behaved guest cannot run into, this crate panics with a
//! message. Each wait has a limit ([`wait::PATIENCE`]).

pub mod ah;
pub mod cloud_hypervisor;
pub mod cm;
pub mod commands;
pub mod context;
pub mod control;
pub mod cq;
pub mod events;
pub mod front_end;
pub mod guest;
pub mod memory;
pub mod mr;
pub mod qp;
pub mod ring;
pub mod side;
pub mod threads;
pub mod virtqueue;
pub mod wait;

pub use context::Context;
pub use cq::Cq;
pub use guest::{Guest, GuestOptions, GuestTcp};
pub use mr::Mr;
pub use qp::{Qp, QpOptions, connect};
pub use side::Side;
pub use virtqueue::readable;
pub use vrdma_abi as abi;
pub use vrdma_verbs as verbs;
