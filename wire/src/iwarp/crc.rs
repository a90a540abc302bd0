//! The CRC of FPDUs (RFC 5044, 4.4): CRC32c, as in iSCSI (RFC 3720, 12.1).
//!
//! It covers an FPDU from its first byte to the last one before the CRC, markers included. The
//! first byte is that of a marker, if one lies directly before the length. The CRC goes on the wire
//! least significant byte first.

/// Length of a CRC in bytes.
pub const LEN: usize = 4;

/// Returns the CRC of these bytes as it goes on the wire.
#[inline]
pub fn of(bytes: &[u8]) -> [u8; LEN] {
    crc_fast::crc32_iscsi(bytes).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of RFC 3720, B.4.
    #[test]
    fn it_is_that_of_iscsi() {
        let up: [u8; 32] = core::array::from_fn(|i| i as u8);
        let down: [u8; 32] = core::array::from_fn(|i| 31 - i as u8);
        assert_eq!(of(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(of(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(of(&up), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(of(&down), [0x5c, 0xdb, 0x3f, 0x11]);
    }

    /// The library uses different code for different lengths and alignments.
    #[test]
    fn it_is_the_same_for_every_length_and_place() {
        let bytes: [u8; 1500] = core::array::from_fn(|i| (i * i * 7 + i) as u8);
        for start in 0..64 {
            for end in (start..bytes.len()).step_by(37) {
                let mut crc = !0u32;
                for byte in &bytes[start..end] {
                    crc ^= u32::from(*byte);
                    for _ in 0..8 {
                        crc = (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78);
                    }
                }
                assert_eq!(of(&bytes[start..end]), (!crc).to_le_bytes(), "{start}..{end}");
            }
        }
    }
}
