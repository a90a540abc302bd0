//! What two RDMA NICs say to each other.
//!
//! So far the numbers that name things on the wire ([`num`]): the headers come with the wire itself.
#![no_std]
#![forbid(unsafe_code)]

pub mod num;
