//! rdma-core's own tests: a row for each.

use anyhow::Result;

use super::results::Outcome;
use crate::programs::Device;
use crate::vm::Pair;
use crate::vmtest::rdmacore;

/// Runs those that are wanted, in VM a.
pub fn run(pair: &mut Pair, device: Device, wanted: impl Fn(&str) -> bool) -> Result<Vec<(String, Outcome)>> {
    let report = rdmacore::report(pair, device)?;
    Ok(outcomes(&report).into_iter().filter(|(name, _)| wanted(name)).collect())
}

/// Of each test its name and how it went. A test's first line has its name in parentheses; how it went stands at the end of that line or of
/// a later one.
fn outcomes(report: &str) -> Vec<(String, Outcome)> {
    let mut found: Vec<(String, Outcome)> = Vec::new();
    let mut name: Option<String> = None;
    for line in report.lines() {
        if line.starts_with("====") || line.starts_with("----") {
            break;
        }
        if line.starts_with("test_")
            && let Some((_, rest)) = line.split_once('(')
            && let Some((path, _)) = rest.split_once(')')
        {
            name = Some(path.strip_prefix("tests.").unwrap_or(path).to_owned());
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
        found.extend(name.take().map(|name| (name, outcome)));
    }
    found
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
        let found = outcomes(report);
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
}
