//! Congestion marks in IP headers (RFC 3168, 5).

/// Marks a frame as having met congestion, if its ends understand ECN.
///
/// Returns false for any other frame, which is unchanged. IPv4's checksum stays right. The ICRC
/// does not cover the field.
pub fn mark(frame: &mut [u8]) -> bool {
    let ip = if frame.get(12..14) == Some(&[0x81, 0]) { 18 } else { 14 };
    match frame.get_mut(ip - 2..) {
        Some([0x08, 0x00, header @ ..]) if header.len() >= 20 => mark_v4(&mut header[..20]),
        // The traffic class is in the low half of the first byte and the high half of the second.
        Some([0x86, 0xdd, _, second, ..]) if *second & 0x30 != 0 => {
            *second |= 0x30;
            true
        }
        _ => false,
    }
}

/// Marks an IPv4 header without options.
fn mark_v4(header: &mut [u8]) -> bool {
    if header[0] != 0x45 || header[1] & 3 == 0 {
        return false;
    }
    header[1] |= 3;
    header[10..12].fill(0);
    let words = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let folded = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!folded as u16).to_be_bytes());
    true
}
