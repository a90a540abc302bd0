//! How a step of the suite went.

use anyhow::{Error, Result};

use super::counts::Counts;

/// How a step went.
pub enum Verdict {
    /// Well.
    Passed(Counts),
    /// Not well, and why.
    Failed(Counts, Error),
    /// Tests failed that pass when they run alone: their names, which the counts leave out. Others,
    /// which the counts have, may have failed for good.
    Flaky(Counts, Vec<String>, Error),
    /// Not run, and why.
    Skipped(String),
}

impl From<Result<()>> for Verdict {
    fn from(result: Result<()>) -> Self {
        match result {
            Ok(()) => Self::Passed(Counts::PASSED),
            Err(error) => Self::Failed(Counts::FAILED, error),
        }
    }
}
