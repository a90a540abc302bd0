//! Hashing of what we number ourselves: no peer chooses it, and each segment or FPDU looks up
//! several times.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by numbers of our own.
pub(super) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// See the module. (Multiplication by 2^64 over the golden ratio spreads numbers that are close.)
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
        // A map uses the lowest bits, where the product is spread least.
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
