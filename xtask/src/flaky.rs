//! Tests that fail in a run of the suite and pass alone. This file decides what counts as flaky,
//! and when that fails the run.
//!
//! The rules are in docs/testing.md, "Flaky tests". [`vrdma_lab::repeats`] repeats the tests.

use anyhow::{Context, Result, ensure};
use vrdma_lab::paths;

/// Number of flaky tests with which a run may still pass.
const LET_PASS: usize = 1;

/// Returns why these flaky tests fail the run, or `None` if it may pass.
///
/// `known` are the tests that were flaky in an earlier run.
pub fn refusal(flaky: &[String], known: &[String]) -> Option<String> {
    if let Some(again) = flaky.iter().find(|name| known.iter().any(|known| is(name, known))) {
        return Some(format!("{again} is flaky and was before (docs/testing.md)"));
    }
    (flaky.len() > LET_PASS).then(|| format!("{} tests are flaky", flaky.len()))
}

/// Whether a test runner's name denotes a test of the table.
///
/// The runner's name may begin with the test's program and module.
fn is(name: &str, known: &str) -> bool {
    name == known || name.strip_suffix(known).is_some_and(|before| before.ends_with([' ', ':']))
}

/// Returns the tests that were flaky in an earlier run.
pub fn known() -> Result<Vec<String>> {
    table(&paths::read(&paths::workspace().join("docs/testing.md"))?)
}

/// Returns the first column of the table in the section "Flaky tests": names in backticks.
fn table(text: &str) -> Result<Vec<String>> {
    let section = text.split("\n## ").find(|section| section.starts_with("Flaky tests\n"));
    let section = section.context("docs/testing.md has no section \"Flaky tests\"")?;
    let mut rows = section.lines().skip_while(|line| !line.starts_with("|---"));
    ensure!(rows.next().is_some(), "section \"Flaky tests\" of docs/testing.md has no table");
    let name = |row: &str| {
        let cell = row.split('|').nth(1).unwrap_or_default().trim();
        let name = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`'));
        name.map(str::to_owned).with_context(|| format!("docs/testing.md: no `NAME` of a test in: {row}"))
    };
    rows.take_while(|row| row.starts_with('|')).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn one_flaky_test_lets_a_run_pass_and_two_fail_it() {
        assert_eq!(refusal(&[], &[]), None);
        assert_eq!(refusal(&names(&["a"]), &names(&["b"])), None);
        assert_eq!(refusal(&names(&["a", "c"]), &[]).unwrap(), "2 tests are flaky");
        // The tests may be from two steps.
        assert!(refusal(&names(&["a", "a"]), &[]).is_some());
    }

    #[test]
    fn a_test_that_was_flaky_before_fails_a_run() {
        let known = names(&["wire::a_test", "vm-x"]);
        let refused = |name: &str| refusal(&names(&[name]), &known);
        assert_eq!(refused("vm-x").unwrap(), "vm-x is flaky and was before (docs/testing.md)");
        // nextest adds the name of the program.
        assert!(refused("vrdma-tests::verbs wire::a_test").is_some());
        assert!(refused("wire::a_test").is_some());
        // A test may move to another file.
        assert!(refused("vrdma-tests::end_to_end verbs::wire::a_test").is_some());
        assert_eq!(refused("vrdma-tests::verbs other_wire::a_test"), None);
        assert_eq!(refused("vm-x-two-hosts"), None);
    }

    #[test]
    fn the_table_gives_its_first_column() {
        let text = "# T\n\n## Flaky tests\n\nWords `no`.\n\n| test | what |\n|---|---|\n| `a::b` | x `y` |\n| `vm-c` | z |\n\n| `no` | |\n## More\n| `no` | |\n";
        assert_eq!(table(text).unwrap(), names(&["a::b", "vm-c"]));
        assert!(table("# T\n## Other\n").is_err());
        assert!(table("## Flaky tests\n").is_err());
        assert!(table("\n## Flaky tests\n|---|\n| b |\n").is_err());
        assert_eq!(table("\n## Flaky tests\n| test |\n|---|\n").unwrap(), names(&[]));
    }

    #[test]
    fn the_paper_has_such_a_table() {
        known().unwrap();
    }
}
