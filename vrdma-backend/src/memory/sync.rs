//! Synchronisation for `slot`, `sigbus` and `gate`. Under loom, `tests/loom` replaces it by loom's
//! types.

pub use std::hint::spin_loop;
pub use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
pub use std::thread::yield_now;
