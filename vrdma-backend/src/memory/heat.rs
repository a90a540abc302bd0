//! Which of the memory that messages are copied to may still be in the processor's caches?
//!
//! A copy to memory that is not there is faster past the caches: a line that is stored to whole
//! need not be read first, and what others use stays. A copy to memory that is there is faster
//! through them. So each worker remembers what it copied to lately, as far back as a cache could
//! hold.

use std::cell::RefCell;
use std::path::Path;
use std::sync::LazyLock;

/// Memory is told apart in blocks of so many bytes.
const BLOCK: usize = 16 << 10;
/// Blocks that are remembered; two may have the same place, and then the older one is forgotten.
const PLACES: usize = 8192;
/// What a shared cache holds, if the system does not say.
const UNKNOWN: u64 = 16 << 20;

thread_local! {
    static LATELY: RefCell<Lately> = RefCell::new(Lately::new(*CACHE / 2));
}

/// Bytes of the largest cache.
static CACHE: LazyLock<u64> =
    LazyLock::new(|| largest_cache(Path::new("/sys/devices/system/cpu/cpu0/cache")).unwrap_or(UNKNOWN));

/// Notes that `len` bytes at `to`, at least two blocks, are copied to by this thread. Whether they
/// have likely left the caches since they last were, if they ever were.
pub fn is_cold(to: *const u8, len: usize) -> bool {
    LATELY.with_borrow_mut(|lately| lately.copied(to.addr(), len))
}

/// What a thread copied to.
struct Lately {
    /// The block that was last copied to in each place, and how much had been copied by then.
    places: Box<[(usize, u64)]>,
    /// Bytes copied in all.
    total: u64,
    /// After so many bytes others have taken a block's place in the cache.
    holds: u64,
}

impl Lately {
    fn new(holds: u64) -> Lately {
        Lately { places: vec![(usize::MAX, 0); PLACES].into(), total: 0, holds }
    }

    fn copied(&mut self, to: usize, len: usize) -> bool {
        // Blocks that are copied to whole: a neighbour, which the copy before may have touched,
        // tells nothing.
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

/// Where a block is remembered. Buffers lie at multiples of large powers of two, so all bits of its
/// number count (Fibonacci hashing).
fn place(block: usize) -> usize {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    (block as u64).wrapping_mul(FACTOR).checked_shr(u64::BITS - PLACES.ilog2()).unwrap_or(0) as usize
}

/// The size of the largest cache in a directory of sysfs.
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
