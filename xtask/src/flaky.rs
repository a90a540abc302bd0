//! Tests that fail in a run of the suite and pass alone: what is repeated, what counts as flaky,
//! and when that fails the run. docs/testing.md, "Flaky tests".

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::paths;

/// How often a test that failed is repeated. It has to pass each time to be flaky.
pub const REPEATS: u32 = 3;

/// Where more tests of a step fail they are no flaky ones: two of those fail the run as well.
const MOST: usize = 5;

/// Flaky tests that a run may have and pass.
const LET_PASS: usize = 1;

/// What became of tests that failed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sorted {
    /// Those that passed each time alone.
    pub flaky: Vec<String>,
    /// Those that did not.
    pub failed: Vec<String>,
}

/// Has each of these tests repeated until one repeat fails, at most [`REPEATS`] times. `once` runs
/// a test alone, for the time that it is told.
pub fn repeat(failed: &[String], mut once: impl FnMut(&str, u32) -> Result<()>) -> Sorted {
    let mut sorted = Sorted::default();
    for name in failed {
        let passes = failed.len() <= MOST && (1..=REPEATS).all(|round| once(name, round).is_ok());
        let kind = if passes { &mut sorted.flaky } else { &mut sorted.failed };
        kind.push(name.clone());
    }
    sorted
}

/// The log of a repeat. A failure's own, which is that of its step, stays beside it.
pub fn log(step: &str, test: &str, round: u32) -> Result<PathBuf> {
    // A file's name has at most 255 bytes.
    const LONGEST: usize = 150;
    let begin = test.char_indices().rev().nth(LONGEST - 1).map_or(0, |(at, _)| at);
    paths::log(&format!("{step}.{}.alone-{round}", &test[begin..]))
}

/// Why these flaky tests fail the run; `None` if it may pass. `known` are those that were flaky
/// before.
pub fn refusal(flaky: &[String], known: &[String]) -> Option<String> {
    if let Some(again) = flaky.iter().find(|name| known.iter().any(|known| is(name, known))) {
        return Some(format!("{again} is flaky and was before (docs/testing.md)"));
    }
    (flaky.len() > LET_PASS).then(|| format!("{} tests are flaky", flaky.len()))
}

/// Whether a runner's name of a test, which may have its program and its module before it, is of a
/// test in the table.
fn is(name: &str, known: &str) -> bool {
    name == known || name.strip_suffix(known).is_some_and(|before| before.ends_with([' ', ':']))
}

/// The tests that were flaky before.
pub fn known() -> Result<Vec<String>> {
    table(&paths::read(&paths::workspace().join("docs/testing.md"))?)
}

/// The first column of the table in the section "Flaky tests": names in backticks.
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
    use anyhow::anyhow;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// Repeats of these tests, of which the round that `fails` names fails. How they are sorted,
    /// and what ran.
    fn repeated(failed: &[&str], fails: impl Fn(&str, u32) -> bool) -> (Sorted, Vec<(String, u32)>) {
        let mut ran = Vec::new();
        let sorted = repeat(&names(failed), |name, round| {
            ran.push((name.to_owned(), round));
            if fails(name, round) { Err(anyhow!("it fails")) } else { Ok(()) }
        });
        (sorted, ran)
    }

    #[test]
    fn a_test_that_passes_three_times_alone_is_flaky() {
        let (sorted, ran) = repeated(&["a"], |_, _| false);
        assert_eq!(sorted, Sorted { flaky: names(&["a"]), failed: Vec::new() });
        assert_eq!(ran, [1, 2, 3].map(|round| ("a".to_owned(), round)));
    }

    #[test]
    fn a_test_that_fails_once_more_has_failed() {
        for last in 1..=3 {
            let (sorted, ran) = repeated(&["a"], |_, round| round == last);
            assert_eq!(sorted, Sorted { flaky: Vec::new(), failed: names(&["a"]) });
            assert_eq!(ran.len(), last as usize, "no repeat after the one that failed");
        }
        let (sorted, _) = repeated(&["a", "b", "c"], |name, _| name == "b");
        assert_eq!(sorted, Sorted { flaky: names(&["a", "c"]), failed: names(&["b"]) });
    }

    #[test]
    fn a_step_of_which_much_fails_is_not_repeated() {
        let many = ["a", "b", "c", "d", "e", "f"];
        let (sorted, ran) = repeated(&many, |_, _| false);
        assert_eq!(sorted, Sorted { flaky: Vec::new(), failed: names(&many) });
        assert!(ran.is_empty());
        assert_eq!(repeated(&many[1..], |_, _| false).0.flaky, names(&many[1..]));
    }

    #[test]
    fn one_flaky_test_lets_a_run_pass_and_two_fail_it() {
        assert_eq!(refusal(&[], &[]), None);
        assert_eq!(refusal(&names(&["a"]), &names(&["b"])), None);
        assert_eq!(refusal(&names(&["a", "c"]), &[]).unwrap(), "2 tests are flaky");
        // Of two steps, too.
        assert!(refusal(&names(&["a", "a"]), &[]).is_some());
    }

    #[test]
    fn a_test_that_was_flaky_before_fails_a_run() {
        let known = names(&["wire::a_test", "vm-x"]);
        let refused = |name: &str| refusal(&names(&[name]), &known);
        assert_eq!(refused("vm-x").unwrap(), "vm-x is flaky and was before (docs/testing.md)");
        // nextest says of which program it is.
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
