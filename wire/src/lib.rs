//! Formats of the packets and frames between two RDMA NICs.
//!
//! The crate converts bytes to values and back. It has no state, no clock and no I/O.
//!
//! | module | contents |
//! |---|---|
//! | [`num`] | identifiers: PSN, QPN, keys, GIDs |
//! | [`roce`] | RoCEv2 packets as values, and how to read and write them |
//! | [`icrc`] | the invariant CRC of RoCEv2 |
//! | [`head`] | the first headers of a frame, by which a switch forwards it |
//! | [`eth`] | the Ethernet header and its 802.1Q tag |
//! | [`ecn`] | marks of congestion in IP headers |
//! | [`entropy`] | UDP source ports |
//! | [`iwarp`] | iWARP: MPA, DDP and RDMAP (with the feature `std`, which its CRC needs) |
//! | [`tcp`] | the header of a TCP segment and its options |
//! | [`icmp`] | a router's report that a segment is too long |
//! | [`checksum`] | the Internet checksum |
//!
//! Each header is a view ([`zerocopy`]): a structure of bytes that is laid over a frame, if the
//! frame is long enough. Reading a view gives a value that cannot express nonsense. Bytes that do
//! not form such a value give a reason: a [`Drop`], or a [`Fault`](iwarp::Fault). All multi-byte
//! fields are big-endian on the wire (IBTA 1.5, RFC 791), except CRCs.
#![no_std]
#![forbid(unsafe_code)]

mod bth;
pub mod checksum;
pub mod ecn;
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
pub mod roce;
mod rw;
pub mod tcp;
mod udp;
mod verdict;

pub use verdict::DropReason;
