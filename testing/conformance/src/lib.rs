//! Other people's programs between VMs.
//!
//! The modules are demos, conformance, soak tests, tests on the debug kernel, and checks of
//! captures.

pub mod capture;
pub mod demo;
pub mod families;
pub mod kernel_faults;
pub mod lineup;
pub mod rdmacore;
pub mod soak;
