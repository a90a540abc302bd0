//! `libvrdma-rdmav34.so`: the rdma-core provider, by which unmodified verbs programs of a guest use
//! vrdma.
//!
//! libibverbs loads it by `/etc/libibverbs.d/vrdma.driver`, which is the file `vrdma.driver` here.
//! The provider then registers the table of [`driver`].
//!
//! The kernel driver (`vrdma.ko`) makes objects, through uverbs. Requests and completions bypass
//! the kernel. They use a channel and completion queues in memory of this process
//! ([`vrdma_verbs`]).
//!
//! | module | what it answers |
//! |---|---|
//! | [`driver`] | which devices are ours, and how libibverbs finds the provider |
//! | [`context`] | opening and closing a device: the channel and its mappings |
//! | [`clock`] | the device's clock, and its offset to the wall clock |
//! | [`objects`] | queries of device and port |
//! | [`pd`] | protection domains, thread domains, parent domains |
//! | [`mr`], [`dm`], [`ah`] | memory regions, device memory, address handles |
//! | [`windows`] | memory windows |
//! | [`cq`], [`qp`], [`srq`] | completion queues, queue pairs, shared receive queues |
//! | [`xrcd`] | XRC domains |
//! | [`resize`] | how a completion queue gets another ring while threads poll it |
//! | [`ring_lock`] | the lock of a completion queue |
//! | [`post`], [`poll`] | the data path: verbs requests into the channel, CQEs into `ibv_wc` |
//! | [`keys`] | requests that change what a key names: bind and invalidate |
//! | [`flush`] | FLUSH requests, which complete when written data is visible or persistent |
//! | [`batch`] | send requests made by function calls (ibv_wr_post(3)) |
//! | [`poll_ex`] | completions read one by one (ibv_create_cq_ex(3)) |
//! | [`work`] | how requests reach the device: through the context's own channel, or the kernel's |
//! | [`memory`] | memory of queues, which a parent domain may give |
//! | [`refs`] | objects that other objects refer to |
//! | [`uverbs`] | the driver's own ioctls |
//! | [`table`] | lookup of a QP or shared receive queue by its number, without a lock |
//! | [`slots`] | which receives of a shared receive queue are outstanding |
//!
//! # Environment
//!
//! `VRDMA_NO_CHANNEL=1` opens devices without their own channel, so that every post is a system
//! call. The same happens without the variable if the device's pool of channels is empty. The
//! variable exists for tests of that path.
//!
//! # Rules
//!
//! The provider runs in processes of other people:
//!
//! - It prints nothing.
//! - It does not panic. If it does nevertheless, the process aborts instead of unwinding into C.
//! - The data path does not allocate.
//! - The data path makes two kinds of system calls only. One is a kick that the device asked for.
//!   The other is a query of the clock once a second, if completions have wall-clock time stamps.
//!
//! # Locks
//!
//! | lock | taken by | before |
//! |---|---|---|
//! | of a QP's batch | ibv_wr_start(), until ibv_wr_complete() | the channel's |
//! | `resizing` of a CQ or of a shared receive queue | a resize, which waits for the device | all below |
//! | of a CQ | a poll, an arm, and a removal of completions; by ibv_start_poll() until ibv_end_poll() | all below |
//! | of the channel | a post, which may wait for the device; a modify to RESET | the queue's |
//! | of a shared receive queue | posts and polls, for a moment | |
//!
//! A CQ has no lock if the program promises that only one thread uses it. A thread that has started
//! a poll already has the lock of the CQ. Meanwhile it may arm the CQ, and destroy QPs that use it
//! ([`ring_lock`]).
//!
//! No lock is held while a verb waits for the program. Destroying an object waits until the program
//! has acknowledged the object's events. Before it does so, the program's thread may poll, post,
//! and make and destroy other objects ([`table`]).
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "there is no public item: these pages are made with --document-private-items"
)]

mod ah;
mod batch;
mod clock;
mod context;
mod cq;
mod dm;
mod driver;
mod errno;
mod ffi;
mod flush;
mod keys;
mod mapping;
mod memory;
mod mr;
mod objects;
mod pd;
mod poll;
mod poll_ex;
mod post;
mod qp;
mod refs;
mod resize;
mod ring_lock;
mod slots;
mod srq;
mod table;
mod uverbs;
mod windows;
mod work;
mod xrcd;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
// The test helper that all crates share. Its crate belongs to another workspace.
#[cfg(test)]
#[path = "../../../testing/guest/src/wait.rs"]
#[allow(
    dead_code,
    clippy::panic,
    clippy::expect_used,
    reason = "tests of other crates use the rest; a test fails by a panic"
)]
mod wait;
