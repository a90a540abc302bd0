//! The project's lints and test suite: `cargo xtask test`, continuous integration, the bare
//! machine, and benches.
//!
//! The binary (`main.rs`) only parses the command line. VMs, and the programs and tests in them,
//! are separate crates in `testing/`.

pub mod bare;
pub mod bench;
pub mod evidence;
pub mod flaky;
pub mod package;
pub mod repeat;
pub mod suite;
pub mod ten_minutes;
