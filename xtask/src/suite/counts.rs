//! How many tests passed and failed, from what the runners report.

use anyhow::{Context, Result};

/// How many tests passed and failed; a check without tests of its own counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed, or did not end in time.
    pub failed: u64,
}

impl Counts {
    /// A check that passed.
    pub const PASSED: Self = Self { passed: 1, failed: 0 };
    /// A check that failed.
    pub const FAILED: Self = Self { passed: 0, failed: 1 };

    /// Adds up the lines `test result: ok. N passed; N failed` of libtest.
    pub fn of_libtest(log: &str) -> Self {
        let mut counts = Self::default();
        for line in log.lines().filter(|line| line.starts_with("test result:")) {
            let words: Vec<&str> = line.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
            for pair in words.windows(2) {
                let number = pair[0].parse().unwrap_or(0);
                match pair[1] {
                    "passed" => counts.passed += number,
                    "failed" => counts.failed += number,
                    _ => {}
                }
            }
        }
        counts
    }

    /// Reads a report in JUnit's format, as nextest writes it.
    pub fn of_junit(report: &str) -> Result<Self> {
        let document = roxmltree::Document::parse(report).context("the JUnit report is not XML")?;
        let number = |name: &str| -> Result<u64> {
            let value = document.root_element().attribute(name);
            value
                .and_then(|value| value.parse().ok())
                .with_context(|| format!("the JUnit report has no {name}"))
        };
        // An error is a test that could not be run to its end, for instance one that took too long.
        let failed = number("failures")? + number("errors")?;
        Ok(Self { passed: number("tests")?.saturating_sub(failed), failed })
    }
}

/// What a runner's log says of tests that did not pass, once each: the names of the first ones, where some of them panicked and why, and by which signal a process of
/// tests ended.
pub fn culprits(log: &str) -> Vec<String> {
    const NAMES: usize = 10;
    const PANICS: usize = 3;
    let lines: Vec<&str> = log.lines().collect();
    let names = lines.iter().filter_map(|line| of_libtest(line).or_else(|| of_nextest(line)));
    let panics = lines.windows(2).filter_map(|lines| panic(lines[0], lines[1])).take(PANICS);
    let signals = lines.iter().filter_map(|line| signal(line));
    let mut culprits = Vec::new();
    let add = |culprits: &mut Vec<String>, culprit| {
        if !culprits.contains(&culprit) {
            culprits.push(culprit);
        }
    };
    names.for_each(|name| add(&mut culprits, name));
    if let Some(more) = culprits.len().checked_sub(NAMES).filter(|&more| more != 0) {
        culprits.truncate(NAMES);
        culprits.push(format!("and {more} more"));
    }
    panics.chain(signals).for_each(|why| add(&mut culprits, why));
    culprits
}

/// `test NAME ... FAILED`; one that ended its process has no end.
fn of_libtest(line: &str) -> Option<String> {
    let (name, end) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let is_failure = end == "FAILED" || end.is_empty() || end.starts_with("error: test failed");
    is_failure.then(|| name.to_owned())
}

/// `thread 'NAME' (ID) panicked at PLACE:`, and in the next line why. Tests that pass have their output kept back.
fn panic(line: &str, next: &str) -> Option<String> {
    let (_, place) = line.split_once(" panicked at ")?;
    Some(format!("{} {}", place.trim_end(), next.trim()))
}

/// `FAIL [   0.012s] CRATE::BINARY NAME`, or with a signal's name in the place of `FAIL`.
fn of_nextest(line: &str) -> Option<String> {
    let (what, rest) = line.trim_start().split_once(" [")?;
    let is_failure = matches!(what, "FAIL" | "TIMEOUT" | "ABORT") || what.starts_with("SIG");
    let (_, names) = rest.split_once("] ").filter(|_| is_failure)?;
    let name = names.trim_start_matches(|c: char| "( /)".contains(c) || c.is_ascii_digit()).trim();
    Some(if what == "FAIL" { name.to_owned() } else { format!("{name} ({what})") })
}

/// `process didn't exit successfully: ... (signal: 6, SIGABRT: process abort signal)`, and what the process said of it itself: `signal 6, code -6, ...`
fn signal(line: &str) -> Option<String> {
    if line.starts_with("signal ") && line.contains(", code ") {
        return Some(line.trim_end_matches(':').to_owned());
    }
    let (_, rest) = line.split_once("(signal: ")?;
    Some(format!("signal {}", rest.trim_end_matches(')')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_failed_is_told_of_both_runners() {
        let log = "test a ... ok\ntest b::c ... FAILED\nfailures:\n---- b::c stdout ----\n\
            thread 'b::c' (7) panicked at tests/b.rs:1:2:\nit is wrong\nfailures:\n    b::c\n\
            test d ... error: test failed, to rerun pass `--test x`\n\nCaused by:\n\
            \x20 process didn't exit successfully: `x --test-threads=1` (signal: 6, SIGABRT: process abort signal)\n";
        let wanted = ["b::c", "d", "tests/b.rs:1:2: it is wrong", "signal 6, SIGABRT: process abort signal"];
        assert_eq!(culprits(log), wanted);
        let log = "test e ... \nsignal 6, code -6, from process 9, in thread worker 1:\n";
        assert_eq!(culprits(log), ["e", "signal 6, code -6, from process 9, in thread worker 1"]);
        let log = "        PASS [   0.010s] (1/3) x::y one\n        FAIL [   0.012s] (2/3) x::y two\n\
            \x20    SIGABRT [   0.5s] x::y three\n     TIMEOUT [  60.0s] x four\n        FAIL [   0.012s] x::y two\n";
        assert_eq!(culprits(log), ["x::y two", "x::y three (SIGABRT)", "x four (TIMEOUT)"]);
        let many: String = (0..12).map(|n| format!("test t{n} ... FAILED\n")).collect();
        let told = culprits(&many);
        assert_eq!((told.len(), &*told[9], &*told[10]), (11, "t9", "and 2 more"));
    }

    #[test]
    fn libtest_is_counted() {
        let log = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured\n\
            test result: FAILED. 1 passed; 2 failed;\n  3 passed of something else\n";
        assert_eq!(Counts::of_libtest(log), Counts { passed: 4, failed: 2 });
    }

    #[test]
    fn junit_is_counted() {
        let report = r#"<?xml version="1.0" encoding="UTF-8"?>
            <testsuites name="nextest-run" tests="12" failures="2" errors="1" uuid="1" time="0.1">
                <testsuite name="a" tests="12" disabled="0" errors="1" failures="2"></testsuite>
            </testsuites>"#;
        assert_eq!(Counts::of_junit(report).unwrap(), Counts { passed: 9, failed: 3 });
        assert!(Counts::of_junit("<testsuites tests='1'/>").is_err());
        assert!(Counts::of_junit("12 passed").is_err());
    }
}
