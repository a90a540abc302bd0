//! Estimates which destinations of copies may still be in the processor's caches.
//!
//! If the destination is not cached, a copy that bypasses the caches is faster. A line that is
//! stored whole need not be read first, and other cached data stays. If the destination is cached,
//! an ordinary copy is faster. Each worker therefore remembers its recent destinations, as far back
//! as a cache could hold them.

use std::cell::RefCell;
use std::path::Path;
use std::sync::LazyLock;

/// Size in bytes of the blocks by which memory is distinguished.
const BLOCK: usize = 16 << 10;
/// Number of blocks that are remembered. If two blocks have the same slot, the older one is
/// forgotten.
const PLACES: usize = 8192;
/// Assumed size in bytes of the largest cache, if the system does not say.
const UNKNOWN: u64 = 16 << 20;

thread_local! {
    static LATELY: RefCell<Lately> = RefCell::new(Lately::new(*CACHE / 2));
}

/// Size of the largest cache in bytes.
static CACHE: LazyLock<u64> =
    LazyLock::new(|| largest_cache(Path::new("/sys/devices/system/cpu/cpu0/cache")).unwrap_or(UNKNOWN));

/// Records that this thread copies `len` bytes to `to`. `len` is at least two blocks.
///
/// Returns whether the destination has likely left the caches since the last copy, or was never
/// copied to.
pub fn is_cold(to: *const u8, len: usize) -> bool {
    LATELY.with_borrow_mut(|lately| lately.copied(to.addr(), len))
}

/// The recent destinations of a thread.
struct Lately {
    /// For each slot, the last block copied to, and the total of bytes copied by then.
    places: Box<[(usize, u64)]>,
    /// Total of bytes copied.
    total: u64,
    /// Number of bytes after which a block has left the cache.
    holds: u64,
}

impl Lately {
    fn new(holds: u64) -> Lately {
        Lately { places: vec![(usize::MAX, 0); PLACES].into(), total: 0, holds }
    }

    fn copied(&mut self, to: usize, len: usize) -> bool {
        // Only whole blocks count. The previous copy may have touched a neighbour, which says
        // nothing.
        let (first, end) = (to.div_ceil(BLOCK), (to + len) / BLOCK);
        let mut cold = 0;
        for block in first..end {
            let place = &mut self.places[place(block)];
            let is_there = place.0 == block && self.total - place.1 < self.holds;
            cold += usize::from(!is_there);
            *place = (block, self.total);
        }
        self.total += len as u64;
        2 * cold > end - first
    }
}

/// Returns the slot of a block.
///
/// Buffers lie at multiples of large powers of two, so all bits of the block number have to count
/// (Fibonacci hashing).
fn place(block: usize) -> usize {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    (block as u64).wrapping_mul(FACTOR).checked_shr(u64::BITS - PLACES.ilog2()).unwrap_or(0) as usize
}

/// Returns the size of the largest cache, in bytes, from a directory of sysfs.
fn largest_cache(directory: &Path) -> Option<u64> {
    let entries = std::fs::read_dir(directory).ok()?;
    let size = |entry: std::fs::DirEntry| {
        let text = std::fs::read_to_string(entry.path().join("size")).ok()?;
        let kib: u64 = text.trim().strip_suffix('K')?.parse().ok()?;
        kib.checked_mul(1 << 10)
    };
    entries.flatten().filter_map(size).max().filter(|&size| size > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn what_was_copied_to_lately_is_there_and_what_is_long_ago_is_not() {
        let mut lately = Lately::new(4 << 20);
        assert!(lately.copied(10 * MIB, MIB), "the first time");
        assert!(!lately.copied(10 * MIB, MIB));
        assert!(!lately.copied(10 * MIB + 100, MIB - 200), "a part of it");
        for n in 0..4 {
            assert!(lately.copied((20 + n) * MIB, MIB));
        }
        assert!(lately.copied(10 * MIB, MIB), "four times as much came in between");
    }

    #[test]
    fn a_walk_over_much_memory_is_cold_each_time_whatever_its_step() {
        for step in [2 * BLOCK, 2 * BLOCK + 32, 3 * BLOCK - 1, 64 << 10] {
            let mut lately = Lately::new(4 << 20);
            for _ in 0..2 {
                for n in 0..(16 * MIB) / step {
                    assert!(lately.copied(MIB + 7 + n * step, step), "step {step}, {n}");
                }
            }
        }
    }

    #[test]
    fn buffers_at_round_addresses_do_not_take_each_others_place() {
        let mut lately = Lately::new(64 << 20);
        let buffers = || (0..64).map(|n| n << 27);
        buffers().for_each(|at| assert!(lately.copied(at, 2 * BLOCK)));
        let colder = buffers().filter(|&at| lately.copied(at, 2 * BLOCK)).count();
        assert!(colder <= 4, "{colder} of 64 are forgotten");
    }

    #[test]
    fn the_largest_cache_is_what_sysfs_says() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(largest_cache(directory.path()), None);
        assert_eq!(largest_cache(&directory.path().join("none")), None);
        for (index, size) in
            [("index0", "32K\n"), ("index3", "32768K\n"), ("index4", "much\n"), ("index2", "0K\n")]
        {
            std::fs::create_dir(directory.path().join(index)).unwrap();
            std::fs::write(directory.path().join(index).join("size"), size).unwrap();
        }
        assert_eq!(largest_cache(directory.path()), Some(32 << 20));
    }
}
