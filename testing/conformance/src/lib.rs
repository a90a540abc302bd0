//! Other people's programs between VMs: demos, conformance, soak, the kernel that finds faults, and
//! the check of what passed a wire.

pub mod capture;
pub mod demo;
pub mod families;
pub mod kernel_faults;
pub mod lineup;
pub mod rdmacore;
pub mod soak;
