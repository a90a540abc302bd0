//! `libvrdma-rdmav34.so`: what makes unmodified verbs programs of a guest use vrdma.
//!
//! libibverbs loads it (`/etc/libibverbs.d/vrdma.driver`, which is the file `vrdma.driver` here,
//! names it), and it registers the table of [`driver`]. Objects are made by the kernel driver
//! (`vrdma.ko`) through uverbs; requests and completions go straight to the device, through a
//! channel and completion queues in memory of this process ([`vrdma_verbs`]).
//!
//! | module | what it answers |
//! |---|---|
//! | [`driver`] | which devices are ours, and how libibverbs finds the provider |
//! | [`context`] | opening and closing a device: the channel and its mappings |
//! | [`clock`] | the device's clock, and that of the wall |
//! | [`objects`] | queries of device and port |
//! | [`pd`] | protection domains, thread domains, parent domains |
//! | [`mr`], [`dm`], [`ah`] | memory regions, device memory, address handles |
//! | [`windows`] | memory windows |
//! | [`cq`], [`qp`], [`srq`] | completion queues, queue pairs, shared receive queues |
//! | [`xrcd`] | XRC domains |
//! | [`resize`] | how a completion queue gets another ring while threads poll it |
//! | [`ring_lock`] | the lock of a completion queue |
//! | [`post`], [`poll`] | the data path: verbs requests into the channel, CQEs into ibv_wc |
//! | [`keys`] | requests that change what a key names |
//! | [`flush`] | requests that end when what was written is placed |
//! | [`batch`] | send requests made by function calls (ibv_wr_post(3)) |
//! | [`poll_ex`] | completions read one by one (ibv_create_cq_ex(3)) |
//! | [`work`] | how requests reach the device: through the own channel, or the kernel's |
//! | [`memory`] | memory of queues, which a parent domain may give |
//! | [`refs`] | objects that other objects refer to |
//! | [`uverbs`] | the driver's own ioctls |
//! | [`table`] | from a number to its QP or shared receive queue, without a lock |
//! | [`slots`] | which receives of a shared receive queue are outstanding |
//!
//! # Environment
//!
//! `VRDMA_NO_CHANNEL=1` opens devices without a channel of their own, so that every post is a
//! system call. That is what happens by itself when the device's pool of channels is empty; the
//! variable exists for tests of that path.
//!
//! # Rules
//!
//! It lives in other people's processes: nothing is printed, nothing panics (and should something
//! do so all the same, the process aborts instead of unwinding into C), and the data path neither
//! allocates nor makes a system call but for a kick that the device asked for, and once in a second
//! where completions are to have the time of the wall's clock.
//!
//! # Locks
//!
//! | lock | taken by | before |
//! |---|---|---|
//! | of a QP's batch | ibv_wr_start(), until ibv_wr_complete() | the channel's |
//! | `resizing` of a CQ, of a shared receive queue | a resize, which waits for the device | all below |
//! | of a CQ | a poll, an arm, and whoever removes completions; by ibv_start_poll() until ibv_end_poll() | all below |
//! | of the channel | a post, which may wait for the device; a modify to RESET | the queue's |
//! | of a shared receive queue | posts and polls, for a moment | |
//!
//! A CQ has no lock where a program promises that one thread uses it. A thread that has started a
//! poll has the CQ already, and may do with it what it likes ([`ring_lock`]). No lock is held while
//! a verb waits for the program. Destroying an object waits until its events are acknowledged; the
//! thread that does that may poll, post, and make and destroy other objects before ([`table`]).
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
// The helper of all tests: the crate that has it is of another workspace.
#[cfg(test)]
#[path = "../../../testing/guest/src/wait.rs"]
#[allow(
    dead_code,
    clippy::panic,
    clippy::expect_used,
    reason = "tests of other crates use the rest; a test fails by a panic"
)]
mod wait;
