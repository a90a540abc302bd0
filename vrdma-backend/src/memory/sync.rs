//! What `slot` and `sigbus` synchronise by. Under loom it is loom's.

pub use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
