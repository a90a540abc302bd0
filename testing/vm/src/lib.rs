//! Tests that run in a pair of VMs.
//!
//! They share one booted pair. If a test breaks the pair, the next test gets a new one.
//!
//! To add a test, write a function `fn(&mut Pair) -> Result<()>` in a module here. Declare it with
//! [`vm_test`](vrdma_vm_macros::vm_test) directly above the function:
//!
//! ```text
//! #[vm_test("vm-ping", lab = Usual)]
//! fn ping(pair: &mut Pair) -> Result<()> { .. }
//! ```
//!
//! Declare a test that takes more than a minute or two as `long`. It then runs only with
//! `cargo xtask test --long`.

mod answers;
mod basics;
mod cleanup;
mod commands;
mod counters;
mod endings;
pub mod family;
mod forged;
mod hostile;
mod hosts;
mod iwarp;
mod lab;
mod linux;
mod multicast;
mod perftest;
mod port;
mod posting;
mod rdmacore;
mod runner;
mod siw;
mod skew;
mod storage;
mod stress;
mod test;
mod vlans;

pub use commands::of_kernel_faults;
pub use lab::Lab;
pub use runner::{Outcome, run};
pub use test::{Needs, Run, VmTest, all};
