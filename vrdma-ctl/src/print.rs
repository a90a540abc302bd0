//! Prints tables and JSON.

use crate::sheet::Sheet;
use serde::Serialize;
use std::io::{self, Write};

/// Prints a value as one line of JSON.
///
/// # Errors
/// The output is closed.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string(value)?)
}

/// Prints a table, or a line that says that it is empty.
///
/// # Errors
/// The output is closed.
pub fn table(sheet: &Sheet, empty: &str) -> anyhow::Result<()> {
    if sheet.rows.is_empty() {
        return line(empty);
    }
    text(&aligned(sheet))
}

/// Prints names and values, one pair in each line.
///
/// # Errors
/// The output is closed.
pub fn pairs(pairs: &[(String, String)]) -> anyhow::Result<()> {
    let width = pairs.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let lines: Vec<String> = pairs.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect();
    text(&lines.concat())
}

/// Prints a line.
///
/// # Errors
/// The output is closed.
pub fn line(line: &str) -> anyhow::Result<()> {
    text(&format!("{line}\n"))
}

fn text(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(printable(text).as_bytes())?;
    Ok(out.flush()?)
}

/// Replaces characters that would control the terminal. Names come from files of others.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '?' } else { c }).collect()
}

/// Returns a table with aligned columns.
fn aligned(sheet: &Sheet) -> String {
    let widths = sheet.widths();
    let head = sheet.columns.iter().enumerate().map(|(at, name)| (at, *name)).collect::<Vec<_>>();
    let rows =
        sheet.rows.iter().map(|row| row.iter().map(|cell| cell.shown()).enumerate().collect::<Vec<_>>());
    let line = |cells: Vec<(usize, &str)>| {
        let cells: Vec<String> = cells
            .into_iter()
            .map(|(at, cell)| match sheet.is_numeric(at) {
                true => format!("{cell:>width$}", width = widths[at]),
                false => format!("{cell:<width$}", width = widths[at]),
            })
            .collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    std::iter::once(head).chain(rows).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::Cell;

    #[test]
    fn columns_are_aligned() {
        let mut sheet = Sheet::new(&["NAME", "QPS", "STATE"]);
        sheet.add([Cell::text("vm1"), Cell::count(7), Cell::text("up")]);
        sheet.add([Cell::text("database"), Cell::count(1234), Cell::Unknown]);
        assert_eq!(aligned(&sheet), "NAME       QPS  STATE\nvm1          7  up\ndatabase  1234  -\n");
    }

    #[test]
    fn names_do_not_control_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a?[2Jb\n");
    }
}
