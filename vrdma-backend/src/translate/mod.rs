//! The types of [`vrdma_abi`] as those of [`vrdma_transport`], and back, for the data path and for
//! events. For commands, `command/` does that. No other module names both crates: `src/tests.rs`
//! checks that.

pub mod access;
pub mod config_space;
pub mod cqe;
pub mod event;
pub mod limits;
pub mod status;
pub mod wqe;
