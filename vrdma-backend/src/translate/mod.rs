//! Translates between types of [`vrdma_abi`] and of [`vrdma_transport`], for the data path and
//! events.
//!
//! `command/` does so for commands. No other module names both crates: `src/tests.rs` checks that.

pub mod config_space;
pub mod cqe;
pub mod event;
pub mod limits;
pub mod status;
pub mod wqe;
