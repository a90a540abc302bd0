//! The address handle table: where UD requests go.
//!
//! It lies in guest memory, given once by [`crate::control::Opcode::SET_AH_TABLE`]. The kernel
//! alone writes it; UD requests name an entry by index, and the device refuses an entry of another
//! PD than the QP's. To change an entry the driver sets `valid` to 0, makes a write barrier, writes
//! the rest, makes a write barrier, and sets `valid` to a number other than the entry ever had
//! lately (a generation). The device reads `valid`, the rest, then `valid` again, and takes the
//! entry as empty if they differ.
//!
//! # Driver requirements
//!
//! * The kernel MUST NOT let a process write the table.
//! * It MUST NOT use an entry for another address handle before all requests that name it have
//!   ended.
//!
//! # Device requirements
//!
//! * It MUST take an entry as it is when the request is taken from its channel; it MUST NOT keep
//!   one for later requests.
//! * It MUST send from the GID that the entry names, and from none that the host does not let the
//!   guest use.

use crate::layout::Item;
use zerocopy::little_endian::{U16, U32};

/// Declarations for the C header.
pub const ITEMS: &[Item] = &[Item::Struct(AhEntry::INFO)];

layout! {
    /// An address handle, 64 bytes.
    pub struct AhEntry = "vrdma_ah_entry" {
        /// 0: empty; otherwise the generation of the entry.
        valid: U32,
        /// Protection domain.
        pdn: U32,
        /// GID of the destination, in network byte order.
        dgid: [u8; 16],
        /// MAC address that leads to it.
        dmac: [u8; 6],
        /// That of the own GID: 1..4094, or 0xffff for none.
        vlan: U16,
        /// Flow label; the low 20 bits count.
        flow_label: U32,
        /// UDP source port, or 0 for the device's choice.
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
