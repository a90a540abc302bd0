//! rdma-core's own tests, with a row for each.

use anyhow::{Context, Result, ensure};
use vrdma_lab::device::Device;
use vrdma_lab::vm::Pair;

use super::results::Outcome;
use crate::rdmacore;

/// Runs the wanted tests in VM a.
///
/// A test that ends the process of all tests has failed. The remaining ones then run without it.
pub fn run(pair: &Pair, device: Device, wanted: impl Fn(&str) -> bool) -> Result<Vec<(String, Outcome)>> {
    let mut rest = rdmacore::names(pair)?;
    rest.retain(|name| wanted(short(name)));
    let mut found = Vec::new();
    while !rest.is_empty() {
        let said = rdmacore::report(pair, device, &rest)?;
        let report = Report::read(&said);
        ensure!(!report.whole || report.outcomes.len() == rest.len(), "some tests did not run: {said}");
        found.extend(report.outcomes);
        if report.whole {
            break;
        }
        let last = report.last.context("the tests ended before the first one")?;
        let index = rest.iter().position(|name| short(name) == last);
        rest.drain(..=index.with_context(|| format!("{last} ran, and was not asked for"))?);
        found.push((last, Outcome::failed("the test's process ended")));
    }
    Ok(found)
}

/// Returns a test's name in the results page.
fn short(name: &str) -> &str {
    name.strip_prefix("tests.").unwrap_or(name)
}

/// The parsed output of tests.
struct Report {
    /// Name and outcome of each test.
    outcomes: Vec<(String, Outcome)>,
    /// The test that had begun last and had not ended.
    last: Option<String>,
    /// Whether all tests ran.
    whole: bool,
}

impl Report {
    /// Parses the output of tests.
    ///
    /// A test's first line has its name in parentheses. The outcome is at the end of that line or
    /// of a later one.
    fn read(report: &str) -> Self {
        let mut outcomes: Vec<(String, Outcome)> = Vec::new();
        let mut name: Option<String> = None;
        let mut whole = false;
        for line in report.lines() {
            if line.starts_with("====") || line.starts_with("----") {
                whole = true;
                break;
            }
            if line.starts_with("test_")
                && let Some((_, rest)) = line.split_once('(')
                && let Some((path, _)) = rest.split_once(')')
            {
                name = Some(short(path).to_owned());
            }
            let end = line.rsplit_once(" ... ").map_or(line, |(_, end)| end).trim();
            let outcome = match end {
                "ok" => Outcome::Passed,
                "FAIL" | "ERROR" => Outcome::Failed(end.to_lowercase()),
                _ => match end.strip_prefix("skipped ") {
                    Some(why) => Outcome::Skipped(why.trim_matches(['\'', '"']).to_owned()),
                    None => continue,
                },
            };
            outcomes.extend(name.take().map(|name| (name, outcome)));
        }
        Self { outcomes, last: name, whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_found_wherever_they_stand() {
        let report = "\
test_a (tests.test_qp.QPTest.test_a)
Does a. ... ok
test_b (tests.test_qp.QPTest.test_b) ... skipped 'There is no b'
test_c (tests.test_qp.QPTest.test_c) ... warning: something
ok
test_d (tests.test_qp.QPTest.test_d)
Does d. ... FAIL
test_e (tests.test_qp.QPTest.test_e) ... ERROR

======================================================================
FAIL: test_d (tests.test_qp.QPTest.test_d)
ok
";
        let Report { outcomes: found, whole, .. } = Report::read(report);
        assert!(whole);
        let short: Vec<(&str, String)> = found
            .iter()
            .map(|(name, outcome)| (name.rsplit_once('.').map_or("", |(_, last)| last), outcome.to_string()))
            .collect();
        assert_eq!(
            short,
            [
                ("test_a", "pass".to_owned()),
                ("test_b", "skip: There is no b".to_owned()),
                ("test_c", "pass".to_owned()),
                ("test_d", "FAIL: fail".to_owned()),
                ("test_e", "FAIL: error".to_owned()),
            ]
        );
        assert!(found[0].0 == "test_qp.QPTest.test_a");
    }
    #[test]
    fn the_test_that_ended_all_is_known() {
        let report = "\
test_a (tests.test_qp.QPTest.test_a) ... ok
test_b (tests.test_qp.QPTest.test_b)
Does b. ... Segmentation fault
";
        let Report { outcomes, last, whole } = Report::read(report);
        assert_eq!(outcomes, [("test_qp.QPTest.test_a".to_owned(), Outcome::Passed)]);
        assert_eq!(last.as_deref(), Some("test_qp.QPTest.test_b"));
        assert!(!whole);
    }
}
