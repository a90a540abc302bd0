//! A guest's functions, as their front-ends set them up.
//!
//! Each runs in its session's thread. The worker serves its virtqueues.

mod ethernet;
mod rdma;

pub use ethernet::EthernetFunction;
pub use rdma::RdmaFunction;
#[cfg(any(test, feature = "fuzzing"))]
pub use rdma::remap;
