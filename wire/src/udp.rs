//! The UDP header (RFC 768).

use crate::DropReason;
use crate::rw::{Reader, Writer};
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The UDP port of RoCEv2 (IBTA annex A17).
pub(crate) const ROCE_PORT: u16 = 4791;
pub(crate) const LEN: usize = 8;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawUdp {
    src_port: U16,
    dst_port: U16,
    length: U16,
    checksum: U16,
}

/// Returns whether a UDP packet goes to RoCE's port.
pub(crate) fn is_roce(packet: &[u8]) -> bool {
    RawUdp::ref_from_prefix(packet).is_ok_and(|(raw, _)| raw.dst_port.get() == ROCE_PORT)
}

/// Reads the header of a UDP packet. Returns the source port, and the payload.
///
/// `packet` is the whole payload of the IP packet.
#[inline]
pub(crate) fn parse(packet: &[u8]) -> Result<(u16, &[u8]), DropReason> {
    let mut reader = Reader(packet);
    let raw: &RawUdp = reader.take()?;
    if raw.dst_port.get() != ROCE_PORT {
        return Err(DropReason::NotRoce);
    }
    if usize::from(raw.length.get()) != packet.len() {
        return Err(DropReason::UdpLength);
    }
    // The checksum is not checked. The ICRC covers more, and RoCE hardware sends 0 even over IPv6.
    Ok((raw.src_port.get(), reader.0))
}

/// Writes the header of a packet with `payload` bytes of payload.
///
/// The checksum is 0, "none". Annex A17 allows it for both versions of IP.
#[inline]
pub(crate) fn put(src_port: u16, payload: u16, writer: &mut Writer<'_>) {
    writer.put(&RawUdp {
        src_port: src_port.into(),
        dst_port: ROCE_PORT.into(),
        length: (LEN as u16 + payload).into(),
        checksum: U16::ZERO,
    });
}
