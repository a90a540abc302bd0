//! A guest without a VM: it drives a daemon over a real socket, with real rings in memory that both
//! map, as fast as this host is. Tests play their guests with it, and `vrdma-perf` measures with
//! it.
//!
//! | module | what it plays |
//! |---|---|
//! | [`memory`] | the guest's memory: memfds that the daemon maps too, with holes if wanted |
//! | [`front_end`] | the VMM: a vhost-user front-end |
//! | [`ring`], [`virtqueue`] | split virtqueues as a driver sees them; every word of them can be written, for hostile guests |
//! | [`guest`], [`control`], [`commands`], [`events`] | the guest kernel's driver: its control queue, commands, events |
//! | [`ah`] | its table of address handles |
//! | [`cm`] | its connection manager, where the device makes connections (iWARP) |
//! | [`context`], [`cq`], [`mr`], [`qp`], [`side`] | a process of the guest: its channel and objects, on `vrdma-verbs` |
//! | [`threads`] | where its threads, and the daemon's, run |
//! | [`wait`], [`mod@readable`] | how tests wait for what must happen |
//!
//! What a well-behaved guest cannot run into panics here with a message; each wait has an end
//! ([`wait::PATIENCE`]).

pub mod ah;
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
pub mod readable;
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
pub use readable::readable;
pub use side::Side;
pub use vrdma_abi as abi;
pub use vrdma_verbs as verbs;
