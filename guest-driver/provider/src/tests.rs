//! The provider as libibverbs sees it, against a kernel and a device played by [`crate::fake`].
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
// The fake libibverbs and the guest below are C programs at heart: they hold pointers that the provider gave them.
#![allow(clippy::undocumented_unsafe_blocks)]

mod batches;
mod completions;
mod guest;
mod requests;
mod setup;
mod threads;
