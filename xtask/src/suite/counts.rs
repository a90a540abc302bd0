//! How many tests passed and failed, and which failed, from what the runners report.

use std::fmt;

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

/// A test that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The program that it is of, as nextest names it; empty where the runner names the test alone.
    pub program: String,
    /// Its name in that program.
    pub test: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.program.is_empty() {
            f.write_str(&self.test)
        } else {
            write!(f, "{} {}", self.program, self.test)
        }
    }
}

/// The tests that failed by a log of libtest. None where a process of tests did not come to its
/// end, by a signal or since it was killed: others of its tests did not run, so nobody knows
/// whether they pass.
pub fn failures_of_libtest(log: &str) -> Vec<Failure> {
    let count = |is: fn(&str) -> bool| log.lines().filter(|line| is(line)).count();
    let begun =
        count(|line| line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")));
    let ended = count(|line| line.starts_with("test result:"));
    if begun != ended || log.contains("process didn't exit successfully") {
        return Vec::new();
    }
    let failure = |test| Failure { program: String::new(), test };
    log.lines().filter_map(of_libtest).map(failure).collect()
}

/// The tests that failed, or did not end, by a report in JUnit's format.
pub fn failures_of_junit(report: &str) -> Result<Vec<Failure>> {
    let document = roxmltree::Document::parse(report).context("the JUnit report is not XML")?;
    let is_failure = |node: &roxmltree::Node<'_, '_>| {
        let ends = ["failure", "error"];
        node.has_tag_name("testcase") && node.children().any(|child| ends.contains(&child.tag_name().name()))
    };
    let name = |node: &roxmltree::Node<'_, '_>, name: &str| -> Result<String> {
        Ok(node
            .attribute(name)
            .with_context(|| format!("a test in the JUnit report has no {name}"))?
            .to_owned())
    };
    let failures = document.descendants().filter(is_failure);
    failures
        .map(|test| Ok(Failure { program: name(&test, "classname")?, test: name(&test, "name")? }))
        .collect()
}

/// The tests that took longest, with their seconds, by a report in JUnit's format.
pub fn longest_of_junit(report: &str) -> Vec<(f64, String)> {
    const SHOWN: usize = 8;
    let Ok(document) = roxmltree::Document::parse(report) else { return Vec::new() };
    let time = |test: roxmltree::Node<'_, '_>| {
        let name = format!("{} {}", test.attribute("classname")?, test.attribute("name")?);
        Some((test.attribute("time")?.parse().ok()?, name))
    };
    let tests = document.descendants().filter(|node| node.has_tag_name("testcase"));
    let mut times: Vec<(f64, String)> = tests.filter_map(time).collect();
    times.sort_by(|one, other| other.0.total_cmp(&one.0));
    times.truncate(SHOWN);
    times
}

/// Whether a test was run and passed, by the log of either runner.
pub fn ran_one(log: &str) -> bool {
    Counts::of_libtest(log).passed > 0 || log.contains(" 1 test run: 1 passed")
}

/// What a runner's log says of tests that did not pass, once each: the names of the first ones,
/// where some of them panicked and why, and by which signal a process of tests ended.
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

/// `thread 'NAME' (ID) panicked at PLACE:`, and in the next line why. Tests that pass have their
/// output kept back.
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

/// `process didn't exit successfully: ... (signal: 6, SIGABRT: process abort signal)`, and what the
/// process said of it itself: `signal 6, code -6, ...`
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

    fn failure(program: &str, test: &str) -> Failure {
        Failure { program: program.into(), test: test.into() }
    }

    #[test]
    fn tests_that_failed_are_found_in_libtests_log() {
        let log = "\nrunning 2 tests\ntest a ... ok\ntest b::c ... FAILED\n\nfailures:\n    b::c\n\n\
            test result: FAILED. 1 passed; 1 failed;\n\nerror: test failed, to rerun pass `--test x`\n\
            \nrunning 1 test\ntest abi/src/lib.rs - f (line 12) ... FAILED\ntest result: FAILED. 0 passed; 1 failed;\n";
        let wanted = [failure("", "b::c"), failure("", "abi/src/lib.rs - f (line 12)")];
        assert_eq!(failures_of_libtest(log), wanted);
        assert_eq!(wanted[1].to_string(), "abi/src/lib.rs - f (line 12)");
    }

    #[test]
    fn a_process_that_did_not_end_by_itself_has_no_failures_to_repeat() {
        let one = "running 1 test\ntest a ... FAILED\ntest result: FAILED. 0 passed; 1 failed;\n";
        assert_eq!(failures_of_libtest(one), [failure("", "a")]);
        // The one that hangs is killed with the runner, one that dies leaves its cause.
        for rest in [
            "running 3 tests\ntest b ... ",
            "running 3 tests\n",
            "  process didn't exit successfully: `x` (signal: 6)\n",
        ] {
            assert!(failures_of_libtest(&format!("{one}{rest}")).is_empty(), "{rest}");
        }
    }

    #[test]
    fn tests_that_failed_are_found_in_junit() {
        let report = r#"<testsuites name="nextest-run" tests="4" failures="2" errors="1">
            <testsuite name="x::y" tests="4">
                <testcase name="a::one" classname="x::y" time="0.1"></testcase>
                <testcase name="a::two" classname="x::y"><failure type="test failure with exit code 101">
                    panicked</failure><system-out>o</system-out></testcase>
                <testcase name="three" classname="x::y"><error type="test abort"/></testcase>
            </testsuite></testsuites>"#;
        let failures = failures_of_junit(report).unwrap();
        assert_eq!(failures, [failure("x::y", "a::two"), failure("x::y", "three")]);
        assert_eq!(failures[0].to_string(), "x::y a::two");
        assert!(failures_of_junit("no").is_err());
    }

    #[test]
    fn the_longest_tests_are_found_in_junit() {
        let report = r#"<testsuites><testsuite name="x">
            <testcase name="one" classname="x" time="0.1"/><testcase name="two" classname="x" time="30.5"/>
            <testcase name="three" classname="x" time="soon"/></testsuite></testsuites>"#;
        assert_eq!(longest_of_junit(report), [(30.5, "x two".to_owned()), (0.1, "x one".to_owned())]);
        assert!(longest_of_junit("no").is_empty());
    }

    #[test]
    fn a_filter_that_picks_nothing_ran_nothing() {
        assert!(ran_one("test result: ok. 0 passed; 0 failed;\ntest result: ok. 1 passed; 0 failed;\n"));
        assert!(ran_one("     Summary [   0.015s] 1 test run: 1 passed (1 slow), 7 skipped\n"));
        assert!(!ran_one(
            "test result: ok. 0 passed; 0 failed;\n     Summary [ 0.0s] 0 tests run: 0 passed\n"
        ));
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
