//! The address handle table: the destinations of UD requests.
//!
//! The table lies in guest memory. The driver gives it to the device once, by
//! [`crate::control::Opcode::SET_AH_TABLE`]. Only the kernel writes it. A UD request names an entry
//! by its index, and the device refuses an entry whose PD is not that of the QP.
//!
//! To change an entry, the driver takes these steps:
//!
//! 1. It sets `valid` to 0 and makes a write barrier.
//! 2. It writes the other fields and makes a write barrier.
//! 3. It sets `valid` to a generation: a number that the entry did not have recently.
//!
//! The device reads `valid`, then the other fields, then `valid` again. If the two values of
//! `valid` differ, it treats the entry as empty.
//!
//! # Driver requirements
//!
//! * The kernel MUST NOT let a process write the table.
//! * The driver MUST NOT use an entry for another address handle before all requests that name it
//!   have ended.
//!
//! # Device requirements
//!
//! * The device MUST use an entry as it is when the request is taken from its channel. It MUST NOT
//!   keep an entry for later requests.
//! * The device MUST send from the GID that the entry names. It MUST NOT send from a GID that the
//!   host does not let the guest use.

use crate::layout::Item;
use zerocopy::little_endian::{U16, U32};

/// Declarations for the C header.
pub const ITEMS: &[Item] = &[Item::Struct(AhEntry::INFO)];

layout! {
    /// An entry of the address handle table, 64 bytes.
    pub struct AhEntry = "vrdma_ah_entry" {
        /// 0 if the entry is empty, otherwise its generation.
        valid: U32,
        /// Protection domain.
        pdn: U32,
        /// GID of the destination, in network byte order.
        dgid: [u8; 16],
        /// MAC address to which frames for the destination are sent.
        dmac: [u8; 6],
        /// VLAN of the own GID: 1..4094, or 0xffff for none.
        vlan: U16,
        /// Flow label; the low 20 bits count.
        flow_label: U32,
        /// UDP source port; 0 lets the device choose it.
        udp_sport: U16,
        /// Index of the own GID.
        sgid_index: u8,
        /// Hop limit.
        hop_limit: u8,
        /// Traffic class.
        traffic_class: u8,
        /// Service level; the low 4 bits count.
        sl: u8,
        /// Zero.
        reserved: [u8; 22],
    }
}
