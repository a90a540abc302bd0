//! The header before each frame on a packet socket.
//!
//! It is that of virtio-net (virtio 1.2, 5.1.6), in the byte order of this host.

use crate::frames::{HEADER as VIRTIO_HEADER, VirtioOffload};

/// Its length in bytes: that of virtio's header without the number of buffers.
pub const HEADER: usize = 10;
/// The positions of its 16-bit fields.
const FIELDS: [usize; 4] = [2, 4, 6, 8];
/// The position of the field that tells where the checksummed bytes begin.
const START: usize = 6;

/// Converts the kernel's header to that of a guest's driver.
pub fn to_virtio(header: &[u8; HEADER]) -> [u8; VIRTIO_HEADER] {
    let mut virtio = [0; VIRTIO_HEADER];
    virtio[..HEADER].copy_from_slice(header);
    for at in FIELDS {
        let field = u16::from_ne_bytes([header[at], header[at + 1]]);
        virtio[at..at + 2].copy_from_slice(&field.to_le_bytes());
    }
    virtio
}

/// Adjusts the header after `by` more bytes were inserted before the packet.
pub fn shift(header: &mut [u8; VIRTIO_HEADER], by: u16) {
    let start = u16::from_le_bytes([header[START], header[START + 1]]).saturating_add(by);
    header[START..START + 2].copy_from_slice(&start.to_le_bytes());
}

/// Converts the offload that is left to do to the kernel's header.
pub fn from_virtio(offload: &VirtioOffload) -> [u8; HEADER] {
    let virtio = offload.header(0);
    let mut header = [0; HEADER];
    header.copy_from_slice(&virtio[..HEADER]);
    for at in FIELDS {
        let field = u16::from_le_bytes([virtio[at], virtio[at + 1]]);
        header[at..at + 2].copy_from_slice(&field.to_ne_bytes());
    }
    header
}
