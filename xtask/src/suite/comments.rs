//! Comments are read on a screen: a line of one has at most 100 columns.

use anyhow::{Result, bail};
use vrdma_lab::proc::indent;

use super::sources::texts;

/// Most columns of a line that is a comment as a whole.
const MOST: usize = 100;
/// Columns of a tab, as in Linux.
const TAB: &str = "        ";

/// Fails if a line of a comment is longer. Rows of tables may be, and lines with a
/// word that is longer than half of that.
pub fn check() -> Result<()> {
    let mut faults = Vec::new();
    for (file, text) in texts()? {
        if file.contains("/golden/") {
            continue;
        }
        faults.extend(
            long_lines(text).into_iter().map(|(line, columns)| format!("{file}:{line}: {columns} columns")),
        );
    }
    if faults.is_empty() {
        return Ok(());
    }
    bail!("lines of comments of more than {MOST} columns:\n{}", indent(&faults.join("\n")))
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
}
