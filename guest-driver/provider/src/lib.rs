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
//! The table begins with the lowest files. A file uses files of earlier rows, or of its own. So no
//! files use each other in a cycle, calls of methods included.
//!
//! | module | what it answers |
//! |---|---|
//! | [`ffi`] | rdma-core's declarations, and what we assume about them |
//! | [`errno`], [`heap`], [`locks`] | errors, values on the heap, and how a mutex is locked |
//! | [`refs`] | objects that other objects refer to |
//! | [`mapping`] | mapped memory |
//! | [`uverbs`] | the driver's own ioctls |
//! | [`pd`] | protection domains, thread domains, parent domains |
//! | [`memory`] | memory of queues, which a parent domain may give |
//! | [`slots`] | which receives of a shared receive queue are outstanding |
//! | [`table`] | lookup of a QP or shared receive queue by its number, without a lock |
//! | [`work`] | how requests reach the device: through the context's own channel, or the kernel's |
//! | [`batch::list`] | the requests of a batch |
//! | [`srq::state`] | what posts and polls need of a shared receive queue |
//! | [`qp::kind`], [`qp::state`] | what posts and polls need of a QP |
//! | [`context`] | an open device: the path of requests, QPs by their numbers, limits |
//! | [`queries`] | queries of device and port |
//! | [`clock`] | the device's clock, and its offset to the wall clock |
//! | [`mr`], [`dm`], [`ah`], [`xrcd`] | memory regions, device memory, address handles, XRC domains |
//! | [`keys`] | requests that change what a key names: bind and invalidate |
//! | [`flush`] | FLUSH requests, which complete when written data is visible or persistent |
//! | [`post`] | the data path of requests: from verbs into the channel |
//! | [`windows`] | memory windows |
//! | [`batch::calls`] | send requests made by function calls (ibv_wr_post(3)) |
//! | [`cq::ring`], [`cq::lock`] | the ring of a completion queue, and its lock |
//! | [`cq::started`], [`cq::state`] | a poll that a thread has started; a completion queue |
//! | [`cq::poll`] | the data path of completions: CQEs into `ibv_wc` |
//! | [`cq::poll_ex`] | completions read one by one (ibv_create_cq_ex(3)) |
//! | [`cq::create`] | how a completion queue is made and destroyed |
//! | [`cq::resize`] | how a completion queue gets another ring while threads poll it |
//! | [`srq::create`], [`srq::modify`] | how a shared receive queue is made, resized and destroyed |
//! | [`qp::asked`], [`qp::create`] | which QPs a program may ask for, and how they are made |
//! | [`qp::modify`] | how QPs are modified and destroyed |
//! | [`device`] | how a device is opened: limits, the channel and its mappings |
//! | [`ops`] | which functions libibverbs calls |
//! | [`driver`] | which devices are ours, and how libibverbs finds the provider |
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
//! ([`cq::lock`]).
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
mod device;
mod dm;
mod driver;
mod errno;
mod ffi;
mod flush;
mod heap;
mod keys;
mod locks;
mod mapping;
mod memory;
mod mr;
mod ops;
mod pd;
mod post;
mod qp;
mod queries;
mod refs;
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
