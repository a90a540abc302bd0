//! The project's lints and its suite: the steps of `cargo xtask test`, continuous integration, the
//! bare machine, benches. The binary (`main.rs`) only reads the command line. VMs and what runs in
//! them are crates of their own, in `testing/`.

pub mod bare;
pub mod bench;
pub mod flaky;
pub mod repeat;
pub mod suite;
