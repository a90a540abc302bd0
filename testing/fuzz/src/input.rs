//! An input as numbers.

/// The rest of the input. Where it ends, all is 0.
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    /// One byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Two bytes, little-endian.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Four bytes, little-endian.
    pub fn word(&mut self) -> u32 {
        u32::from(self.short()) | u32::from(self.short()) << 16
    }

    /// A number near one that is right, or any.
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
