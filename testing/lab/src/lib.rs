//! The lab: VMs and hosts for tests, and what they are made of.
//!
//! It builds the Debian roots, the VM image and the project's programs. It boots VMs on hosts that
//! wires join, and runs commands in them. All other test tooling uses it.

pub mod accel;
pub mod apt;
pub mod artefacts;
pub mod cpio;
pub mod device;
pub mod driver;
pub mod hash;
pub mod image;
pub mod kernel;
pub mod needs;
pub mod older;
pub mod packages;
pub mod paths;
pub mod proc;
pub mod programs;
pub mod repeats;
pub mod roots;
pub mod shell;
pub mod siw;
pub mod space;
pub mod storage;
pub mod third;
pub mod ui;
pub mod vm;
pub mod wait;
pub mod watch;
pub mod wheels;
