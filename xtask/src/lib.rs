//! The project's own tooling as a library: building the VMs' image, booting VMs and running
//! commands inside them, and the steps of `cargo xtask test`. The binary (`main.rs`) only reads the
//! command line.

pub mod accel;
pub mod apt;
pub mod artefacts;
pub mod bare;
pub mod bench;
pub mod capture;
pub mod conformance;
pub mod cpio;
pub mod demo;
pub mod flaky;
pub mod hash;
pub mod image;
pub mod kernel;
pub mod kernel_faults;
pub mod lineup;
pub mod needs;
pub mod older;
pub mod paths;
pub mod proc;
pub mod programs;
pub mod repeat;
pub mod roots;
pub mod shell;
pub mod siw;
pub mod soak;
pub mod space;
pub mod storage;
pub mod suite;
pub mod ui;
pub mod vm;
pub mod vmtest;
pub mod wait;
pub mod wheels;
