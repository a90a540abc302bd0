//! What a guest and the vrdma device say to each other in memory.
//!
//! Layout only: nothing here acts. Another driver can be written from these pages alone;
//! `docs/device.md` is the same as one chapter, with the names of C, rendered by the test
//! `chapter_is_current` (`VRDMA_BLESS=1 cargo test -p vrdma-abi` rewrites it).
//!
//! | module | what it lays out |
//! |---|---|
//! | [`config`] | virtio configuration space, feature bits, the order of the virtqueues |
//! | [`control`] | commands and replies of the control virtqueue |
//! | [`wqe`] | work requests, as 64-byte units in the slots of a channel |
//! | [`cqe`] | completion queue entries and the shared words of a completion queue |
//! | [`event`] | entries of the event virtqueues |
//! | [`ah`] | the address handle table |
//! | [`width`] | fields that are wider than their meaning |
//! | [`connections`] | what a driver may rely on of connections of iWARP |
//! | [`user`] | what the rdma-core provider and the kernel driver say to each other (the device never sees it) |
//!
//! # Conventions
//!
//! * Every integer is little-endian unless its type says otherwise (`__be32` in C).
//! * Fields are naturally aligned, structures have no implicit padding, and fields named
//!   `reserved*` are written as zero and ignored when read, unless a command says that it refuses
//!   them.
//! * Enumerations are *open*: a number without a name is a value like any other, which the reader
//!   refuses or ignores.
//! * An address is a guest-physical address (GPA) unless it is called `iova` (the address by which
//!   a memory region is named in work requests) or `remote_addr` (an iova of the peer).
//! * A *full barrier* orders a store before a load in the eyes of the device, which is another
//!   processor than any of the guest's. On x86 it is `mfence`: a `lock`ed instruction or `xchg` is
//!   none under an emulator that runs one virtual processor (QEMU's TCG makes it plain).
//! * QPN, CQN, PDN, context and AH numbers are chosen by the device, apart from AH numbers, which
//!   the driver chooses.
//! * MUST, MUST NOT, SHOULD and MAY are those of RFC 2119. The *driver* is all that acts for the
//!   guest: its kernel, and the processes to which the kernel gives channels and completion queues.
//!   What a driver does against a MUST harms that guest at most, what a process does that process
//!   at most: the device relies on none of it for its own sake, nor for that of other guests.
//!
//! # The device
//!
//! The device is a virtio device (virtio specification 1.2) with split virtqueues. By the *control*
//! virtqueue the driver makes, changes and destroys objects: user contexts, protection domains,
//! memory regions, completion queues, queue pairs, shared receive queues. By *event* virtqueues the
//! device tells of completions and of what happened to objects. Work requests of all queue pairs
//! come through *channels*, virtqueues whose slots a process can fill by itself: one belongs to the
//! kernel, each of the others to one user context at a time. Completions are written into
//! completion queues, which are plain memory of the guest, polled without the device.
//!
//! A process that has a channel, its doorbell and the memory of its completion queues posts and
//! polls without its kernel. It cannot name memory but by keys of regions that the kernel
//! registered for its context, nor objects of other contexts, nor any address to which a datagram
//! goes but by entries of a table that the kernel alone writes.
//!
//! # The C header
//!
//! `guest-driver/kernel/vrdma_abi.h` is generated from the declarations here by the test
//! `c_header_is_current` (`VRDMA_BLESS=1 cargo test -p vrdma-abi` rewrites it) and asserts each
//! size and offset when it is compiled.
#![no_std]
#![forbid(unsafe_code)]

#[macro_use]
pub mod layout;
pub mod ah;
pub mod config;
pub mod connections;
pub mod control;
pub mod cqe;
pub mod event;
pub mod user;
pub mod width;
pub mod wqe;

pub use zerocopy;

/// Every declaration of this crate in the order in which the C header shows them.
pub const HEADER: &[&[layout::Item]] =
    &[config::ITEMS, control::ITEMS, wqe::ITEMS, cqe::ITEMS, event::ITEMS, ah::ITEMS, user::ITEMS];
