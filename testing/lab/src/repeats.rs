//! Tests that failed are repeated, each alone: those that pass each time then are flaky.

use std::path::PathBuf;

use anyhow::Result;

use crate::paths;

/// How often a test that failed is repeated. It has to pass each time to be flaky.
pub const REPEATS: u32 = 3;

/// Where more tests of a step fail they are no flaky ones: two of those fail the run as well.
const MOST: usize = 5;

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
}
