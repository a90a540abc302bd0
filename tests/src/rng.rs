//! Random numbers that a printed seed reproduces.

/// A generator of random numbers: xorshift64*.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Creates a generator from the seed in `VRDMA_SEED`, or from the test's name, and prints the
    /// seed.
    ///
    /// Each run has the same numbers unless the variable asks for others.
    pub fn from_env(test: &str) -> Rng {
        let given =
            std::env::var("VRDMA_SEED").ok().map(|text| text.parse().expect("VRDMA_SEED is a number"));
        let of_name =
            || test.bytes().fold(1, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        let seed = given.unwrap_or_else(of_name);
        eprintln!("{test}: VRDMA_SEED={seed}");
        Rng::new(seed)
    }

    /// Returns any 64-bit number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns any 32-bit number.
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// Returns a number less than `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end.max(1)
    }

    /// Returns true once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of the elements.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// Fills bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Returns random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }

    /// Returns a number near values at which arithmetic goes wrong.
    pub fn nasty(&mut self) -> u64 {
        const EDGES: [u64; 14] = [
            0,
            1,
            2,
            63,
            64,
            4095,
            4096,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            0x1_0000_0000,
            i64::MAX as u64,
            u64::MAX - 4095,
            u64::MAX,
        ];
        match self.below(4) {
            0 => self.next_u64(),
            1 => self.next_u64() >> self.below(64),
            2 => self.pick(&EDGES).wrapping_add(self.below(3)).wrapping_sub(1),
            _ => *self.pick(&EDGES),
        }
    }
}
