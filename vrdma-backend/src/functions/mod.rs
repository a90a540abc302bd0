//! A guest's functions as their front-ends set them up, each in its session's thread; the worker
//! serves them.

mod ethernet;
mod rdma;
pub mod remap;

pub use ethernet::EthernetFunction;
pub use rdma::RdmaFunction;
