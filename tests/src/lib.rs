//! A guest in this process, for tests and benchmarks, without a VM.
//!
//! It drives the real daemon over a real socket. The guest itself is [`vrdma_guest`], whose modules
//! are re-exported here. Tests also have:
//!
//! | module | what it plays |
//! |---|---|
//! | [`side`] | a process of the guest with all that a connection needs |
//! | [`raw`] | a process that writes its requests word by word |
//! | [`net`], [`packets`] | the guest kernel's driver of its Ethernet function, and the packets it sends |
//! | [`daemon`] | the daemon, in a thread of this process or as a child process |
//! | [`vm_peer`] | a guest without a VM that plays ping-pong with a VM's process |
//! | [`stock_peer`] | a guest without a VM that plays with a server of `ibv_*_pingpong` |
//! | [`remote_host`] | a host on the wire with an independent TCP implementation |
//! | [`lab`] | a daemon with some guests |
//! | [`greedy`] | a guest that wants to send all the time |
//! | [`pingpong`] | bystanders that a hostile guest must not disturb |
//! | [`fatal`] | a report from a test's process that a signal ends |
//!
//! If something happens that a well-behaved guest cannot run into, this crate panics with a
//! message. Each wait has a limit ([`wait::PATIENCE`]).

pub mod daemon;
pub mod fatal;
pub mod greedy;
pub mod header;
pub mod lab;
pub mod net;
pub mod packets;
pub mod pingpong;
pub mod proc;
pub mod queues;
pub mod raw;
pub mod remote_host;
pub mod rng;
pub mod side;
pub mod stock_peer;
pub mod vm_peer;

pub use lab::{CableOptions, Lab, LabOptions, Setting};
pub use rng::Rng;
pub use vrdma_guest::{
    Context, Cq, Guest, GuestOptions, GuestTcp, Mr, Qp, QpOptions, abi, ah, cloud_hypervisor, cm, connect,
    context, control, cq, events, front_end, guest, memory, mr, qp, readable, ring, verbs, virtqueue, wait,
};
