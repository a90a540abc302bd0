//! Tests that run in a pair of VMs. They share one booted pair; a test that breaks it gets the next
//! one a new pair.
//!
//! To add a test, write a function `fn(&mut Pair) -> Result<()>` in a module here and list it in
//! `table.rs`. One that takes more than a minute or two is listed as `test(...).long()`: it runs
//! with `cargo xtask test --long` only.

mod answers;
mod basics;
mod cleanup;
mod counters;
mod endings;
mod families;
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
mod table;
mod test;
mod vlans;

pub use lab::Lab;
pub use runner::{Outcome, run};
pub use table::{all, of_kernel_faults};
pub use test::{Needs, Run, VmTest};
