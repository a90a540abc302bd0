//! Random numbers that depend on a seed only.

/// SplitMix64.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number in `range`, which is not empty.
    pub fn range(&mut self, range: core::ops::RangeInclusive<u64>) -> u64 {
        let width = range.end() - range.start();
        range.start() + if width == u64::MAX { self.next() } else { self.next() % (width + 1) }
    }

    pub fn index(&mut self, length: usize) -> usize {
        self.range(0..=length as u64 - 1) as usize
    }

    /// Returns true with this probability in millionths.
    pub fn ppm(&mut self, times: u32) -> bool {
        self.next() % 1_000_000 < u64::from(times)
    }

    /// Returns true with probability 1/n.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Returns a length up to `most`, small ones more often than large ones.
    pub fn length(&mut self, most: u64) -> u64 {
        let scale = most >> self.range(0..=16);
        self.range(0..=scale.max(1)).min(most)
    }
}
