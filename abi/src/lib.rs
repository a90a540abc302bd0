//! What a guest and the vrdma device say to each other in memory.
//!
//! Layout only: nothing here acts. Another driver can be written from these pages alone.
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
//! | [`user`] | what the rdma-core provider and the kernel driver say to each other (the device never sees it) |
//!
//! # Conventions
//!
//! * Every integer is little-endian unless its type says otherwise ([`zerocopy::big_endian`]).
//! * Fields are naturally aligned, structures have no implicit padding, and fields named `reserved*` are written as
//!   zero and ignored when read, unless a command says that it refuses them.
//! * Enumerations are *open*: a number without a name is a value like any other, which the reader refuses or ignores.
//! * An address is a guest-physical address (GPA) unless it is called `iova` (the address by which a memory region
//!   is named in work requests) or `remote_addr` (an iova of the peer).
//! * A *full barrier* orders a store before a load in the eyes of the device, which is another processor than any of the guest's. On x86 it
//!   is `mfence`: a `lock`ed instruction or `xchg` is none under an emulator that runs one virtual processor (QEMU's TCG makes it plain).
//! * QPN, CQN, PDN, context and AH numbers are chosen by the device, apart from AH numbers, which the driver chooses.
//!
//! # The C header
//!
//! `guest-driver/kernel/vrdma_abi.h` is generated from the declarations here by the test `c_header_is_current`
//! (`VRDMA_BLESS=1 cargo test -p vrdma-abi` rewrites it) and asserts each size and offset when it is compiled.
#![no_std]
#![forbid(unsafe_code)]

#[macro_use]
pub mod layout;
pub mod ah;
pub mod config;
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
