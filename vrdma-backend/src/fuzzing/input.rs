//! Reads the input of a target as choices.

use arbitrary::Unstructured;

/// The input, read from front to back. After its end, all reads return zeros, which choose harmless
/// steps.
pub struct Input<'a>(Unstructured<'a>);

impl<'a> Input<'a> {
    pub fn new(data: &'a [u8]) -> Input<'a> {
        Input(Unstructured::new(data))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or_default()
    }

    pub fn word(&mut self) -> u16 {
        self.0.arbitrary().unwrap_or_default()
    }

    pub fn long(&mut self) -> u32 {
        self.0.arbitrary().unwrap_or_default()
    }

    pub fn quad(&mut self) -> u64 {
        self.0.arbitrary().unwrap_or_default()
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0.int_in_range(0..=end.saturating_sub(1)).unwrap_or_default()
    }

    /// Returns true once in this number of times.
    pub fn once_in(&mut self, times: u8) -> bool {
        self.byte() % times == times - 1
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Takes up to `most` bytes; fewer at the end of the input.
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let len = self.below(most + 1).min(self.0.len());
        self.0.bytes(len).unwrap_or_default()
    }

    /// Returns `right` mostly, otherwise a number near it, or any number.
    pub fn near(&mut self, right: u32) -> u32 {
        match self.byte() {
            0..=191 => right,
            b @ 192..=247 => right.wrapping_add(u32::from(b)).wrapping_sub(220),
            _ => self.long(),
        }
    }
}
