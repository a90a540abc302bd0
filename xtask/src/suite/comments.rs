//! Comments are read on a screen: a line of one has at most 100 columns.
//!
//! The doc of an item is readable alone: it does not begin with a reference to another one.

use anyhow::{Result, bail};
use vrdma_lab::proc::indent;

use super::sources::texts;

/// Most columns of a line that is a comment as a whole.
const MOST: usize = 100;
/// Columns of a tab, as in Linux.
const TAB: &str = "        ";

/// Beginnings of docs that say nothing without another doc.
const REFERENCES: [&str; 2] = ["The same", "See the module"];

/// Fails if a line of a comment is longer, or if a doc begins with a reference to another one.
///
/// Rows of tables may be longer, and lines with a word that is longer than half of that.
pub fn check() -> Result<()> {
    let mut faults = Vec::new();
    for (file, text) in texts()? {
        if file.contains("/golden/") {
            continue;
        }
        faults.extend(
            long_lines(text).into_iter().map(|(line, columns)| format!("{file}:{line}: {columns} columns")),
        );
        faults.extend(
            dependent_docs(text).into_iter().map(|line| format!("{file}:{line}: not readable alone")),
        );
    }
    if faults.is_empty() {
        return Ok(());
    }
    bail!("comments of more than {MOST} columns, or not readable alone:\n{}", indent(&faults.join("\n")))
}

/// Numbers of the lines that are longer, each with its columns.
fn long_lines(text: &str) -> Vec<(usize, usize)> {
    let mut is_inside = false;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let begins = line.trim_start();
        let is_comment = is_inside || begins.starts_with("//") || begins.starts_with("/*");
        if is_comment && !begins.starts_with("//") {
            is_inside = !line.contains("*/");
        }
        let words = begins.trim_start_matches(['/', '!', '*', ' ']);
        let stays = words.starts_with('|') || words.split(' ').any(|word| word.len() > MOST / 2);
        let columns = line.replace('\t', TAB).chars().count();
        if is_comment && !stays && columns > MOST {
            found.push((at + 1, columns));
        }
    }
    found
}

/// Numbers of the lines that begin a doc with one of [`REFERENCES`].
fn dependent_docs(text: &str) -> Vec<usize> {
    let doc = |line: &str| {
        let line = line.trim_start();
        let words = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
        Some(words.trim_start().to_owned())
    };
    let mut found = Vec::new();
    let mut is_inside = false;
    for (at, words) in text.lines().map(doc).enumerate() {
        let begins = words.as_deref().filter(|_| !is_inside);
        if begins.is_some_and(|words| REFERENCES.iter().any(|reference| words.starts_with(reference))) {
            found.push(at + 1);
        }
        is_inside = words.is_some();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_of_comments_are_found() {
        let long = "x ".repeat(MOST / 2);
        let text = format!(
            "// {long}\n\t/// {long}\n/*\n * {long}\n */\nlet a = {long};\n/// | {long} |\n/* a */\n{long}\n//! a\n//! {}\n",
            long.replace(' ', "x")
        );
        let lines: Vec<usize> = long_lines(&text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 2, 4]);
        assert_eq!(long_lines(&format!("\t/* {}x*/", "x ".repeat(43))), []);
        assert_eq!(long_lines(&format!("\t/* {}*/", "x ".repeat(44))), [(1, MOST + 1)]);
    }

    #[test]
    fn docs_that_refer_to_others_are_found() {
        let text =
            "/// The same\nfn a() {}\n  //! See the module\n\n/// A.\n/// The same as that.\n// The same\n";
        assert_eq!(dependent_docs(text), [1, 3]);
    }
}
