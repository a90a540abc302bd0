//! Tests of the provider as libibverbs sees it. [`crate::fake`] plays the kernel and the device.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::expect_used,
    reason = "a test fails by a panic"
)]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the fake libibverbs and the guest call the provider as C programs do: with pointers that it gave them"
)]

mod batches;
mod clock;
mod completions;
mod domains;
mod guest;
mod imports;
mod keys;
mod locks;
mod refusals;
mod requests;
mod resize;
mod setup;
mod shared;
mod threads;
mod xrc;
