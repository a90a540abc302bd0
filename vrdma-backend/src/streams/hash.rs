//! A fast hash for numbers that vrdma assigns itself.
//!
//! No peer chooses them, so collisions cannot be provoked. Each segment or FPDU needs several
//! look-ups.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are numbers that vrdma assigns.
pub(super) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// The hasher of [`NumberMap`].
///
/// It multiplies by 2^64 over the golden ratio, which spreads close numbers.
#[derive(Default)]
pub(super) struct NumberHasher(u64);

impl NumberHasher {
    fn add(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.add(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.add(number.into());
    }

    fn finish(&self) -> u64 {
        // A map uses the lowest bits, which the product spreads least.
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, Hash};

    #[test]
    fn numbers_that_are_close_are_spread() {
        #[derive(Hash)]
        struct Id(u32, u32);
        let build = BuildHasherDefault::<NumberHasher>::default();
        let mut buckets = [0; 1024];
        for id in (0..1024).map(|index| Id(index, index % 3)) {
            buckets[build.hash_one(id) as usize % 1024] += 1;
        }
        assert!(buckets.iter().all(|count| *count <= 8), "{buckets:?}");
    }
}
