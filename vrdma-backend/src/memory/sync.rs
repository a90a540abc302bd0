//! What `slot`, `sigbus` and `gate` synchronise by. Under loom it is loom's.

pub use std::hint::spin_loop;
pub use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
pub use std::thread::yield_now;
