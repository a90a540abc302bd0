//! What two RDMA NICs say to each other.
//!
//! Bytes to values and back, and nothing more: no state, no clock, no I/O.
//!
//! | module | what it knows |
//! |---|---|
//! | [`num`] | numbers that name things: PSN, QPN, keys, GIDs |
//! | [`roce`] | a RoCEv2 packet as a value, and how it is read and written |
//! | [`icrc`] | its invariant CRC |
//! | [`head`] | what the first headers of a frame say to whoever forwards it |
//! | [`eth`] | the Ethernet header and its 802.1Q tag |
//! | [`opcode`] | what IB packets there are |
//! | [`entropy`] | UDP source ports |
//! | [`iwarp`] | iWARP: MPA, DDP and RDMAP (with the feature `std`, which its CRC needs) |
//! | [`tcp`] | the header of a TCP segment and its options |
//! | [`icmp`] | the complaint of a router that a segment is too long |
//! | [`checksum`] | the Internet checksum |
//!
//! Each header is a view: a structure of bytes that is laid over a frame where the frame is long
//! enough ([`zerocopy`]). What is read from it becomes a value in which nonsense cannot be
//! expressed; what cannot become one has a [`Drop`] for a reason, or a [`Fault`](iwarp::Fault). All
//! multi-byte fields are big-endian on the wire (IBTA 1.5, RFC 791), but for CRCs.
#![no_std]
#![forbid(unsafe_code)]

mod bth;
pub mod checksum;
pub mod entropy;
pub mod eth;
mod ext;
pub mod head;
pub mod icmp;
pub mod icrc;
mod ip;
#[cfg(feature = "std")]
pub mod iwarp;
pub mod num;
pub mod opcode;
pub mod roce;
mod rw;
pub mod tcp;
mod udp;
mod verdict;

pub use verdict::Drop;
