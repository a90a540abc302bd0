//! Memory layouts that a guest and the vrdma device exchange.
//!
//! This crate declares layouts only; it has no behaviour. Its pages suffice to write another
//! driver. `docs/device.md` has the text of these pages as one chapter, with the names of C. The
//! test `chapter_is_current` renders it (`VRDMA_BLESS=1 cargo test -p vrdma-abi` rewrites it).
//!
//! | module | what it lays out |
//! |---|---|
//! | [`config`] | virtio configuration space, feature bits, the order of the virtqueues |
//! | [`control`] | commands and replies of the control virtqueue |
//! | [`wqe`] | work requests, as 64-byte units in the slots of a channel |
//! | [`cqe`] | completion queue entries and the shared words of a completion queue |
//! | [`event`] | entries of the event virtqueues |
//! | [`ah`] | the address handle table |
//! | [`width`] | fields that are wider than the values they carry |
//! | [`connections`] | the guarantees for iWARP connections |
//! | [`user`] | the messages between the rdma-core provider and the kernel driver (the device never sees them) |
//!
//! # Conventions
//!
//! * Every integer is little-endian unless its type says otherwise (`__be32` in C).
//! * Fields are naturally aligned, and structures have no implicit padding.
//! * Fields named `reserved*` are written as zero and ignored when read, unless a command says that
//!   it refuses them.
//! * Enumerations are *open*: a number without a name is legal. The reader refuses or ignores it.
//! * An address is a guest-physical address (GPA) unless it is called `iova` or `remote_addr`. An
//!   `iova` is the address by which work requests name a byte of a memory region. A `remote_addr`
//!   is an iova of the peer.
//! * An *extent* is a contiguous piece of guest memory (`struct vrdma_run`).
//! * A *full barrier* orders a store before a load, as the device sees them. The device is another
//!   processor than any of the guest's. On x86 the barrier is `mfence`. A `lock`ed instruction or
//!   `xchg` is no full barrier under an emulator that runs one virtual processor: QEMU's TCG makes
//!   it a plain instruction there.
//! * The device chooses QPNs, CQNs, PDNs and context numbers. The driver chooses AH numbers.
//! * MUST, MUST NOT, SHOULD and MAY are those of RFC 2119. The *driver* is everything that acts for
//!   the guest: its kernel, and the processes to which the kernel gives channels and completion
//!   queues.
//! * A driver that violates a MUST harms at most its own guest. A process that does so harms at
//!   most itself. The device relies on no MUST of the driver for its own safety, nor for that of
//!   other guests.
//!
//! # The device
//!
//! The device is a virtio device (virtio specification 1.2) with split virtqueues.
//!
//! * The driver creates, changes and destroys objects by the *control* virtqueue. The objects are
//!   user contexts, protection domains, memory regions, completion queues, queue pairs and shared
//!   receive queues.
//! * The device reports completions and asynchronous events by *event* virtqueues.
//! * Work requests of all queue pairs come through *channels*: virtqueues whose slots a process can
//!   fill without its kernel. One channel belongs to the kernel. Each of the others belongs to one
//!   user context at a time.
//! * The device writes completions into completion queues. These are plain guest memory, and
//!   programs poll them without the device.
//!
//! A process posts and polls without its kernel if it has a channel, its doorbell and the memory of
//! its completion queues. Such a process has these limits:
//!
//! * It names memory only by keys of regions that the kernel registered for its context.
//! * It cannot name objects of other contexts.
//! * It addresses datagrams only by entries of a table that the kernel alone writes.
//!
//! # The C header
//!
//! The test `c_header_is_current` generates `guest-driver/kernel/vrdma_abi.h` from the declarations
//! of this crate (`VRDMA_BLESS=1 cargo test -p vrdma-abi` rewrites it). The header asserts each
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

/// All declarations of this crate, in the order of the C header.
pub const HEADER: &[&[layout::Item]] =
    &[config::ITEMS, control::ITEMS, wqe::ITEMS, cqe::ITEMS, event::ITEMS, ah::ITEMS, user::ITEMS];
