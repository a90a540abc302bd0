//! Protocols between threads, in all orders that the memory model allows. They are the daemon's
//! source with loom's atomics.
//!
//! They are a test program of their own. loom's threads install a signal handler, which would take
//! other tests' SIGBUS for its own.

mod gates;
mod mail;
mod ring;
mod slots;
