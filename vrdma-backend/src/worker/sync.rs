//! The synchronisation types of `mail`. Loom's types replace them under loom.

pub use std::sync::atomic::{AtomicBool, Ordering};
