//! Remembers packages that could not be installed, so that not every command asks for them again.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::paths;

/// Seconds for which a failure is remembered.
const VALID: u64 = 24 * 60 * 60;

/// The last failure to install packages.
#[derive(Clone, Debug)]
pub struct Failure {
    /// A file with the failure's time, in seconds since 1970, and the packages in a second line.
    pub file: PathBuf,
    /// The current time, in seconds since 1970.
    pub now: u64,
}

impl Failure {
    /// Returns the record of this working tree, at the present time.
    pub fn here() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::new(paths::vm().join("packages-not-to-be-had"), now.as_secs())
    }

    /// Returns the record in this file, at this time.
    pub fn new(file: PathBuf, now: u64) -> Self {
        Self { file, now }
    }

    /// Whether exactly these packages could not be installed in the last 24 hours.
    pub fn is_of(&self, packages: &[&str]) -> bool {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let Some((time, list)) = text.split_once('\n') else { return false };
        let age = time.parse().ok().and_then(|time| self.now.checked_sub(time));
        age.is_some_and(|age| age < VALID) && list == packages.join(" ")
    }

    /// Records that these packages could not be installed.
    ///
    /// If it cannot be recorded, they are asked for again.
    pub fn remember(&self, packages: &[&str]) {
        let directory = self.file.parent().map(paths::make_dir);
        if directory.is_some_and(|made| made.is_ok()) {
            let _ = std::fs::write(&self.file, format!("{}\n{}", self.now, packages.join(" ")));
        }
    }

    /// Removes the record, because nothing is missing any more.
    pub fn forget(&self) {
        let _ = std::fs::remove_file(&self.file);
    }

    /// Returns the note to print if the packages are not asked for.
    pub fn note(&self) -> String {
        format!("not asked for again until a day is over or {} is removed", self.file.display())
    }
}
