//! Safe use of DPDK: its environment (EAL), packet buffers (mbufs), and Ethernet devices.
#![allow(unsafe_code, reason = "this folder is the border to DPDK, and to the sockets beneath its drivers")]

mod attached;
mod claim;
mod comeback;
mod device;
mod dma;
mod eal;
mod ethdev;
mod interface;
mod mbuf;
mod queues;
mod quirks;
mod removal;
mod setup;
mod wake;

pub use eal::Eal;
pub use ethdev::Ethdev;

pub(super) use claim::{ClaimedInterface, InterfacePresence};
pub(super) use interface::{DriverSocket, bind_packet, packet_socket};
pub(super) use mbuf::{Mbuf, MbufPool};
