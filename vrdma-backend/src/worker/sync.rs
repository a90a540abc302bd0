//! What `mail` synchronises by. Under loom it is loom's.

pub use std::sync::atomic::{AtomicBool, Ordering};
