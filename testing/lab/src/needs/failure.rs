//! Packages that could not be had, so that not each command asks for them again.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::paths;

/// Seconds for which a failure counts.
const VALID: u64 = 24 * 60 * 60;

/// What is known of the last failure.
#[derive(Clone, Debug)]
pub struct Failure {
    /// When it was, in seconds since 1970, and below it the packages.
    pub file: PathBuf,
    /// Likewise.
    pub now: u64,
}

impl Failure {
    /// Of this working tree.
    pub fn here() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::new(paths::vm().join("packages-not-to-be-had"), now.as_secs())
    }

    /// In this file, at this time.
    pub fn new(file: PathBuf, now: u64) -> Self {
        Self { file, now }
    }

    /// Whether just these packages could not be had, not long ago.
    pub fn is_of(&self, packages: &[&str]) -> bool {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let Some((time, list)) = text.split_once('\n') else { return false };
        let age = time.parse().ok().and_then(|time| self.now.checked_sub(time));
        age.is_some_and(|age| age < VALID) && list == packages.join(" ")
    }

    /// They could not be had. Where that cannot be written down they are asked for again.
    pub fn remember(&self, packages: &[&str]) {
        let directory = self.file.parent().map(paths::make_dir);
        if directory.is_some_and(|made| made.is_ok()) {
            let _ = std::fs::write(&self.file, format!("{}\n{}", self.now, packages.join(" ")));
        }
    }

    /// Nothing is missing any more.
    pub fn forget(&self) {
        let _ = std::fs::remove_file(&self.file);
    }

    /// What to say instead of asking.
    pub fn note(&self) -> String {
        format!("not asked for again until a day is over or {} is removed", self.file.display())
    }
}
