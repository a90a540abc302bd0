//! The words of [`vrdma_abi`] in those of [`vrdma_transport`], and back: no other module names both crates (`src/tests.rs` holds them to it).

pub mod access;
pub mod cm;
pub mod config_space;
pub mod counters;
pub mod cqe;
pub mod event;
pub mod gid;
pub mod limits;
pub mod mr;
pub mod port;
pub mod qp;
pub mod srq;
pub mod status;
pub mod wqe;
