//! A guest in this process, for tests and benchmarks: it drives the real daemon over a real socket, without a VM.
//!
//! | module | what it plays |
//! |---|---|
//! | [`memory`] | the guest's memory: memfds that the daemon maps too, with holes if wanted |
//! | [`front_end`] | the VMM: a vhost-user front-end |
//! | [`ring`], [`virtqueue`] | split virtqueues as a driver sees them; every word of them can be written, for hostile guests |
//! | [`guest`], [`control`], [`events`] | the guest kernel's driver: control commands, events |
//! | [`ah`] | its table of address handles |
//! | [`context`], [`cq`], [`mr`], [`qp`], [`side`] | a process of the guest: its channel and objects, on `vrdma-verbs` |
//! | [`raw`] | a process that writes its requests word by word |
//! | [`net`], [`packets`] | the guest kernel's driver of its Ethernet function, and what it sends |
//! | [`daemon`] | the daemon, in a thread of this process or as a child process |
//! | [`vm_peer`] | a guest without a VM that plays ping-pong with a VM's process |
//! | [`lab`] | a daemon with some guests |
//! | [`pingpong`] | bystanders that a hostile guest must not disturb |
//! | [`floor`] | what benchmarks compare with: a device without any check |
//!
//! What a well-behaved guest cannot run into panics here with a message; each wait has an end ([`wait::PATIENCE`]).

pub mod ah;
pub mod cm;
pub mod context;
pub mod control;
pub mod cq;
pub mod daemon;
pub mod events;
pub mod floor;
pub mod front_end;
pub mod guest;
pub mod header;
pub mod lab;
pub mod memory;
pub mod mr;
pub mod net;
pub mod packets;
pub mod pingpong;
pub mod proc;
pub mod qp;
pub mod raw;
pub mod ring;
pub mod rng;
pub mod side;
pub mod virtqueue;
pub mod vm_peer;
pub mod wait;

pub use context::Context;
pub use cq::Cq;
pub use guest::{Guest, GuestOptions};
pub use lab::{CableOptions, Lab, LabOptions};
pub use mr::Mr;
pub use qp::{Qp, QpOptions, connect};
pub use rng::Rng;
pub use vrdma_abi as abi;
pub use vrdma_verbs as verbs;
