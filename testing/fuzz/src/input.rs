//! Reads an input as numbers.

/// The rest of the input. After its end, all reads return 0.
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    /// Takes one byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Takes two bytes, little-endian.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Takes four bytes, little-endian.
    pub fn word(&mut self) -> u32 {
        u32::from(self.short()) | u32::from(self.short()) << 16
    }

    /// Returns one of the right numbers, a number near it, or any number.
    pub fn near(&mut self, right: &[u32]) -> u32 {
        let kind = self.byte();
        let base = right[usize::from(kind & 7) % right.len()];
        match kind >> 3 {
            0..16 => base,
            16..24 => base.wrapping_add_signed(i32::from(self.byte() as i8)),
            24..30 => base.wrapping_add_signed(i32::from(self.short() as i16)),
            30 => base.wrapping_add(0x8000_0000).wrapping_add_signed(i32::from(self.byte() as i8)),
            _ => self.word(),
        }
    }
}
