//! Tests that run in a pair of VMs. They share one booted pair; a test that breaks it gets the next
//! one a new pair.
//!
//! To add a test, write a function `fn(&mut Pair) -> Result<()>` in a module here, and declare it
//! with [`vm_test`](vrdma_vm_macros::vm_test) where it stands:
//!
//! ```text
//! #[vm_test("vm-ping", lab = Usual)]
//! fn ping(pair: &mut Pair) -> Result<()> { .. }
//! ```
//!
//! A test that takes more than a minute or two is declared `long`: it runs with `cargo xtask test
//! --long` only.

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
