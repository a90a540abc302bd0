//! The CRC of FPDUs (RFC 5044, 4.4): CRC32c, as iSCSI has it (RFC 3720, 12.1).
//!
//! It covers an FPDU from its first byte (a marker, if one lies directly before the length) to the last before the CRC: markers too. It goes on
//! the wire least significant byte first.

/// Bytes of a CRC.
pub const LEN: usize = 4;

/// A CRC in the making.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crc(u32);

impl Crc {
    /// That of nothing.
    pub const fn new() -> Crc {
        Crc(0)
    }

    /// Goes on with these bytes.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    /// The CRC as it goes on the wire.
    #[inline]
    pub const fn finish(self) -> [u8; LEN] {
        self.0.to_le_bytes()
    }

    /// The CRC of these bytes as it goes on the wire.
    #[inline]
    pub fn of(bytes: &[u8]) -> [u8; LEN] {
        let mut crc = Crc::new();
        crc.update(bytes);
        crc.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, B.4.
    #[test]
    fn it_is_that_of_iscsi() {
        let up: [u8; 32] = core::array::from_fn(|i| i as u8);
        let down: [u8; 32] = core::array::from_fn(|i| 31 - i as u8);
        assert_eq!(Crc::of(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(Crc::of(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(Crc::of(&up), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(Crc::of(&down), [0x5c, 0xdb, 0x3f, 0x11]);
    }

    #[test]
    fn pieces_count_as_the_whole() {
        let bytes: [u8; 100] = core::array::from_fn(|i| (i * 7) as u8);
        for cut in 0..bytes.len() {
            let mut crc = Crc::new();
            crc.update(&bytes[..cut]);
            crc.update(&bytes[cut..]);
            assert_eq!(crc.finish(), Crc::of(&bytes), "{cut}");
        }
    }
}
