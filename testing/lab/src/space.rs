//! Disk space: a warning before the tests, and a note after a failure if the disk is full.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::paths;

/// Size of `target`, in MiB, after `cargo xtask test` without cargo's incremental data.
///
/// That is with `CARGO_INCREMENTAL=0`; 8,500 were measured.
const TESTS: u64 = 9 * 1024;
/// If less than this is free, in MiB, a linker fails with a message that is easily overlooked.
const FULL: u64 = 256;

/// Returns a warning if the tests may fill the disk.
pub fn warning() -> Option<String> {
    let target = paths::cargo_target();
    let free = paths::free_space(paths::workspace()).ok()?;
    // Measuring all of `target` takes a while, so it is done only if it matters.
    let more = lacking(free, if free < TESTS { used(&target) } else { 0 })?;
    let at = target.display();
    Some(format!(
        "{free} MiB are free for {at}, the tests may take {more}: remove a `target` that nobody needs"
    ))
}

/// Returns what the tests need beyond the present size of `target`, if that is not free. All in
/// MiB.
fn lacking(free: u64, held: u64) -> Option<u64> {
    let more = TESTS.saturating_sub(held);
    (free < more).then_some(more)
}

/// Returns a note for a failure if the disk is full.
pub fn full() -> Option<String> {
    let free = paths::free_space(paths::workspace()).ok()?;
    (free < FULL).then(|| format!("the disk is full ({free} MiB free): that may be why"))
}

/// Returns the disk space of all files below this path, in MiB. Unreadable files count as nothing.
fn used(path: &Path) -> u64 {
    blocks(path) / 2048
}

/// Returns the disk space of all files below this path, in blocks of 512 bytes.
///
/// Symbolic links are not followed.
fn blocks(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    let below = if metadata.is_dir() { fs::read_dir(path).ok() } else { None };
    let entries = below.into_iter().flatten().flatten();
    metadata.blocks() + entries.map(|entry| blocks(&entry.path())).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::Ephemeral;

    #[test]
    fn what_target_holds_already_is_not_wanted_again() {
        assert_eq!(lacking(TESTS, 0), None);
        assert_eq!(lacking(TESTS - 1, 0), Some(TESTS));
        assert_eq!(lacking(TESTS - 1, 1), None);
        assert_eq!(lacking(0, TESTS + 1), None);
    }

    #[test]
    fn files_are_counted_and_links_are_not_followed() {
        let ephemeral =
            Ephemeral::new(std::env::temp_dir().join(format!("vrdma-space-{}", std::process::id())));
        let directory = ephemeral.path();
        fs::create_dir_all(directory.join("below")).unwrap();
        fs::write(directory.join("below/file"), vec![1; 3 << 20]).unwrap();
        std::os::unix::fs::symlink("/usr", directory.join("link")).unwrap();
        let used = used(directory);
        assert!((3..=4).contains(&used), "{used} MiB");
    }
}
