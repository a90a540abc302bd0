//! The content of all streams: random bytes that repeat after a prime number of bytes. So bytes at
//! a wrong offset differ from the expected ones.

use crate::rng::Rng;
use std::sync::LazyLock;

const PERIOD: usize = 1_000_003;
/// Maximum number of bytes of one call.
pub const MOST: usize = 1 << 16;

static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut rng = Rng(7);
    let mut bytes: Vec<u8> = (0..PERIOD).map(|_| rng.next() as u8).collect();
    bytes.extend_from_within(..MOST);
    bytes
});

/// Returns the bytes at an offset, at most [`MOST`].
pub fn bytes(place: u64, length: usize) -> &'static [u8] {
    let at = (place % PERIOD as u64) as usize;
    &BYTES[at..at + length]
}

/// Panics if these are not the bytes at an offset.
pub fn check(place: u64, data: &[u8]) {
    assert!(data == bytes(place, data.len()), "the stream at {place} and {} bytes on", data.len());
}
