//! The table of the series, for people.

use crate::families;
use crate::family::{Family, Kind, Row};
use std::fmt::Write;

/// Returns the table in Markdown: series, labels, unit, the daemon's numbers, meaning and cause.
pub fn table() -> String {
    let mut table = String::from("| series | labels | unit | made of | meaning | usual cause |\n");
    table.push_str("|---|---|---|---|---|---|\n");
    for family in families::all() {
        let labels = family.all_labels().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let rows = family.rows.iter().map(|row| origin(family, row)).collect::<Vec<_>>().join("; ");
        let unit = match family.kind {
            Kind::Info => "1",
            Kind::Counter | Kind::Gauge | Kind::Histogram => family.quantity.noun(),
        };
        let name = family.full_name();
        let cells = [labels.as_str(), unit, &rows, family.help, family.cause];
        writeln!(table, "| `{name}` | {} |", cells.join(" | ")).expect("a string takes all text");
    }
    table
}

/// Says what a series is made of.
fn origin(family: &Family, row: &Row) -> String {
    let sources: Vec<String> = row.sources.iter().map(|source| format!("`{source}`")).collect();
    match family.kind {
        Kind::Info => sources.join(", "),
        _ if row.values.is_empty() => sources.join(" + "),
        _ => format!("`{}`: {}", row.values.join(" "), sources.join(" + ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_all_series_and_no_others() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (before, rest) = page.split_once("| series |").unwrap();
        let (_, after) = rest.split_once("\n\n").unwrap();
        let expected = format!("{before}{}\n{after}", table());
        if std::env::var_os("VRDMA_BLESS").is_some() {
            std::fs::write(path, expected).unwrap();
        } else {
            assert!(
                page == expected,
                "docs/metrics.md: VRDMA_BLESS=1 cargo test -p vrdma-exporter writes it"
            );
        }
    }
}
