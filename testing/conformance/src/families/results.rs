//! The outcome of each program, and the pages that show them.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use vrdma_lab::paths;

/// The outcome of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Passed,
    /// It did not run, for this reason.
    Skipped(String),
    /// It failed, for this reason.
    Failed(String),
}

/// Longest reason in the pages, in characters.
const LONGEST: usize = 140;

impl Outcome {
    /// Returns a failure, with the last line of the output that contains a letter.
    pub fn failed(said: &str) -> Self {
        let mut lines = said.lines().map(str::trim);
        let line = lines.rfind(|line| line.contains(char::is_alphabetic)).unwrap_or("it said nothing");
        Self::Failed(line.chars().take(LONGEST).collect())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("pass"),
            Self::Skipped(why) => write!(f, "skip: {why}"),
            Self::Failed(why) => write!(f, "FAIL: {why}"),
        }
    }
}

/// The outcome by family of programs, program, and column.
type Table = BTreeMap<String, BTreeMap<String, BTreeMap<String, String>>>;

/// All recorded outcomes.
#[derive(Debug, Default)]
pub struct Results(Table);

impl Results {
    /// Reads `docs/conformance.json`. Returns no results if there is no such file.
    pub fn read() -> Result<Self> {
        let file = json();
        if !file.exists() {
            return Ok(Self::default());
        }
        let table = serde_json::from_str(&paths::read(&file)?);
        table.map(Self).with_context(|| format!("{} is not what this command writes", file.display()))
    }

    /// Records the outcome of a program.
    pub fn put(&mut self, family: &str, program: &str, column: &str, outcome: &Outcome) {
        let programs = self.0.entry(family.to_owned()).or_default();
        let columns = programs.entry(program.to_owned()).or_default();
        columns.insert(column.to_owned(), outcome.to_string());
    }

    /// Writes `docs/conformance.json` and `docs/conformance.md`.
    pub fn write(&self) -> Result<()> {
        paths::write(&json(), serde_json::to_string_pretty(&self.0)? + "\n")?;
        paths::write(&markdown(), self.page())
    }

    /// Returns the text of `docs/conformance.md`.
    fn page(&self) -> String {
        let mut page = String::from(
            "<!-- Made by `cargo xtask conformance` from docs/conformance.json. -->\n\n# Other people's programs\n\n\
             Each program runs between two VMs (those of pyverbs in one). `skip` says what the program or the device lacks.\n",
        );
        for (family, programs) in &self.0 {
            let mut columns: Vec<&String> = programs.values().flat_map(BTreeMap::keys).collect();
            columns.sort_by_key(|column| (column.starts_with("rdma_rxe"), column.as_str()));
            columns.dedup();
            writeln!(page, "\n## {family}\n").expect("text can be written");
            line(&mut page, "", columns.iter().map(|column| (*column).clone()));
            line(&mut page, "---", columns.iter().map(|_| "---".to_owned()));
            line(&mut page, "", columns.iter().map(|column| sum(programs, column)));
            for (program, outcomes) in programs {
                let cells = columns.iter().map(|column| outcomes.get(*column).cloned().unwrap_or_default());
                line(&mut page, &format!("`{program}`"), cells);
            }
        }
        page
    }
}

fn json() -> PathBuf {
    paths::workspace().join("docs/conformance.json")
}

fn markdown() -> PathBuf {
    paths::workspace().join("docs/conformance.md")
}

fn line(page: &mut String, first: &str, cells: impl Iterator<Item = String>) {
    // Output of programs may contain any characters.
    let plain = |cell: String| cell.replace(char::is_control, "").replace('|', "\\|");
    let cells: Vec<String> = cells.map(plain).collect();
    writeln!(page, "| {first} | {} |", cells.join(" | ")).expect("text can be written");
}

/// Returns the numbers of each outcome in this column.
fn sum(programs: &BTreeMap<String, BTreeMap<String, String>>, column: &str) -> String {
    let count = |start: &str| {
        let of_column = programs.values().filter_map(|outcomes| outcomes.get(column));
        of_column.filter(|outcome| outcome.starts_with(start)).count()
    };
    format!("**{} pass, {} fail, {} skip**", count("pass"), count("FAIL"), count("skip"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_is_a_row_and_rxe_stands_last() {
        let mut results = Results::default();
        results.put("cm", "rping", "rdma_rxe, two hosts", &Outcome::Skipped("a|\0b".into()));
        results.put("cm", "rping", "vrdma, one host", &Outcome::Passed);
        results.put("cm", "mckey", "vrdma, one host", &Outcome::failed("first\n  last\n=====\n\n"));
        let page = results.page();
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(
            rows,
            [
                "|  | vrdma, one host | rdma_rxe, two hosts |",
                "| --- | --- | --- |",
                "|  | **1 pass, 1 fail, 0 skip** | **0 pass, 0 fail, 1 skip** |",
                "| `mckey` | FAIL: last |  |",
                "| `rping` | pass | skip: a\\|b |",
            ]
        );
    }

    /// With `VRDMA_BLESS` the test writes the page, e.g. after a merge of the results of two runs.
    #[test]
    fn the_page_says_what_the_results_say() {
        let results = Results::read().expect("the results can be read");
        if std::env::var_os("VRDMA_BLESS").is_some() {
            results.write().expect("the page can be written");
        }
        let page = paths::read(&markdown()).expect("there is a page");
        assert!(
            page == results.page(),
            "VRDMA_BLESS=1 cargo test -p vrdma-conformance --lib the_page writes the page anew"
        );
    }
}
