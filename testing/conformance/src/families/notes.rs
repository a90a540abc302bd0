//! How programs went is taken down at once.

use anyhow::{Result, ensure};

use super::plan::{Family, Plan};
use super::results::{Outcome, Results};

/// Takes down how a program went.
pub type Note<'a> = &'a mut dyn FnMut(&str, &Outcome) -> Result<()>;

/// What is taken down.
pub struct Notes {
    results: Results,
    column: String,
    /// How many ended how.
    pub counts: Counts,
}

impl Notes {
    /// For the results of a plan, beside those that are kept.
    pub fn new(plan: &Plan) -> Result<Self> {
        Ok(Self { results: Results::read()?, column: plan.column(), counts: Counts::default() })
    }

    /// Writes it at once: a run of an hour may be interrupted.
    pub fn add(&mut self, family: Family, name: &str, outcome: &Outcome) -> Result<()> {
        let column = self.column.clone();
        self.add_to(family, name, &column, outcome)
    }

    /// Likewise, where the column is not that of all families.
    pub fn add_to(&mut self, family: Family, name: &str, column: &str, outcome: &Outcome) -> Result<()> {
        self.counts.add(outcome);
        self.results.put(family.name(), name, column, outcome);
        self.results.write()
    }

    /// An error if no program of the family ran since so many had.
    pub fn expect_more_than(&self, before: u32, plan: &Plan, family: Family) -> Result<()> {
        ensure!(
            self.counts.sum() != before,
            "no program of {} has {:?} in its name",
            family.name(),
            plan.only
        );
        Ok(())
    }
}

/// How many ended how.
#[derive(Debug, Default)]
pub struct Counts {
    passed: u32,
    skipped: u32,
    /// Those that did not end well.
    pub failed: u32,
}

impl Counts {
    fn add(&mut self, outcome: &Outcome) {
        let count = match outcome {
            Outcome::Passed => &mut self.passed,
            Outcome::Skipped(_) => &mut self.skipped,
            Outcome::Failed(_) => &mut self.failed,
        };
        *count += 1;
    }

    /// All of them.
    pub fn sum(&self) -> u32 {
        self.passed + self.skipped + self.failed
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}
