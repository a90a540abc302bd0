//! Records the outcomes of programs at once.

use anyhow::{Result, ensure};

use super::plan::{Family, Plan};
use super::results::{Outcome, Results};

/// Records the outcome of a program.
pub type Note<'a> = &'a mut dyn FnMut(&str, &Outcome) -> Result<()>;

/// The recorded outcomes.
pub struct Notes {
    results: Results,
    column: String,
    /// Numbers of each outcome.
    pub counts: Counts,
}

impl Notes {
    /// Returns the record for a plan, which is added to the stored results.
    pub fn new(plan: &Plan) -> Result<Self> {
        Ok(Self { results: Results::read()?, column: plan.column(), counts: Counts::default() })
    }

    /// Records an outcome and writes it at once, because a run of an hour may be interrupted.
    pub fn add(&mut self, family: Family, name: &str, outcome: &Outcome) -> Result<()> {
        let column = self.column.clone();
        self.add_to(family, name, &column, outcome)
    }

    /// Records an outcome in a column of its own, and writes it at once.
    pub fn add_to(&mut self, family: Family, name: &str, column: &str, outcome: &Outcome) -> Result<()> {
        self.counts.add(outcome);
        self.results.put(family.name(), name, column, outcome);
        self.results.write()
    }

    /// Fails if no program of the family ran since the sum was `before`.
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

/// Numbers of each outcome.
#[derive(Debug, Default)]
pub struct Counts {
    passed: u32,
    skipped: u32,
    /// Programs that failed.
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

    /// Returns the number of all outcomes.
    pub fn sum(&self) -> u32 {
        self.passed + self.skipped + self.failed
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}
