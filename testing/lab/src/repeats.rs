//! Repeats tests that failed, each alone. Tests that pass each repeat are flaky.

use std::path::PathBuf;

use anyhow::Result;

use crate::paths;

/// How often a failed test is repeated. A flaky test passes each time.
pub const REPEATS: u32 = 3;

/// The highest number of failures of a step that are repeated.
///
/// More failures are no flakiness. Besides, two flaky tests already fail the run.
const MOST: usize = 5;

/// Failed tests, sorted by their repeats.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sorted {
    /// Tests that passed each repeat.
    pub flaky: Vec<String>,
    /// Tests that failed again, or that were not repeated.
    pub failed: Vec<String>,
}

/// Repeats each of these tests until one repeat fails, at most [`REPEATS`] times.
///
/// `once` runs a test alone. Its second argument is the number of the repeat, from 1 on.
pub fn repeat(failed: &[String], mut once: impl FnMut(&str, u32) -> Result<()>) -> Sorted {
    let mut sorted = Sorted::default();
    for name in failed {
        let passes = failed.len() <= MOST && (1..=REPEATS).all(|round| once(name, round).is_ok());
        let kind = if passes { &mut sorted.flaky } else { &mut sorted.failed };
        kind.push(name.clone());
    }
    sorted
}

/// Returns the log file of a repeat. The log of the failure itself, which is that of its step,
/// stays.
pub fn log(step: &str, test: &str, round: u32) -> Result<PathBuf> {
    // A file name has at most 255 bytes.
    const LONGEST: usize = 150;
    let begin = test.char_indices().rev().nth(LONGEST - 1).map_or(0, |(at, _)| at);
    paths::log(&format!("{step}.{}.alone-{round}", &test[begin..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// Repeats these tests. The repeats for which `fails` is true fail.
    ///
    /// Returns how the tests were sorted, and which repeats ran.
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
}
