//! Protocols between threads, in all orders that the memory model allows: the daemon's own source,
//! with loom's atomics.
//!
//! A program of their own: loom's threads bring a signal handler along, which takes the SIGBUS of
//! others for theirs.

mod gates;
mod mail;
mod ring;
mod slots;
