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

#[cfg(test)]
mod tests {
    use super::*;

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
