//! Tables of cells that can be sorted.

use std::cmp::Ordering;

/// A cell: its text, and its place among the cells of its column.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A text, to the left.
    Text(String),
    /// A number, to the right, and how it is shown.
    Number(f64, String),
    /// Nothing is known.
    Unknown,
}

/// A table. All rows have as many cells as there are columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    /// Headings of the columns.
    pub columns: Vec<&'static str>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
}

impl Cell {
    /// Makes a cell of a text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// Makes a cell of a whole number.
    pub fn count(count: u64) -> Cell {
        Cell::Number(count as f64, count.to_string())
    }

    /// Makes a cell of a whole number that may be unknown.
    pub fn maybe(count: Option<u64>) -> Cell {
        count.map_or(Cell::Unknown, Cell::count)
    }

    /// Makes a cell of a number with a unit like k or M.
    pub fn rate(rate: f64) -> Cell {
        Cell::Number(rate, short(rate))
    }

    /// Makes a cell of a part of one, in percent.
    pub fn percent(part: f64) -> Cell {
        Cell::Number(part, format!("{:.0}%", 100.0 * part))
    }

    /// Returns the text that is shown.
    pub fn shown(&self) -> &str {
        match self {
            Cell::Text(text) | Cell::Number(_, text) => text,
            Cell::Unknown => "-",
        }
    }

    /// Whether it belongs to the right of its column.
    pub fn is_number(&self) -> bool {
        matches!(self, Cell::Number(..))
    }

    /// Returns the order of two cells. What is unknown comes first.
    pub fn order(&self, other: &Cell) -> Ordering {
        let rank = |cell: &Cell| match cell {
            Cell::Unknown => 0,
            Cell::Number(..) => 1,
            Cell::Text(_) => 2,
        };
        match (self, other) {
            (Cell::Number(one, _), Cell::Number(other, _)) => one.total_cmp(other),
            (Cell::Text(one), Cell::Text(other)) => one.cmp(other),
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

impl Sheet {
    /// Makes a table without rows.
    pub fn new(columns: &[&'static str]) -> Sheet {
        Sheet { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// It has more or fewer cells than there are columns.
    pub fn add<const N: usize>(&mut self, row: [Cell; N]) {
        assert_eq!(N, self.columns.len(), "each column has a cell");
        self.rows.push(row.into());
    }

    /// Sorts the rows by a column. Equal rows keep their order.
    pub fn sort(&mut self, column: usize, is_descending: bool) {
        self.rows.sort_by(|one, other| {
            let order = one[column].order(&other[column]);
            if is_descending { order.reverse() } else { order }
        });
    }

    /// Returns the width of each column in characters.
    pub fn widths(&self) -> Vec<usize> {
        let cells = |at: usize| self.rows.iter().map(move |row| row[at].shown().chars().count());
        let width = |(at, name): (usize, &&str)| cells(at).chain([name.chars().count()]).max().unwrap_or(0);
        self.columns.iter().enumerate().map(width).collect()
    }

    /// Whether the column has numbers.
    pub fn is_numeric(&self, column: usize) -> bool {
        let mut known = self.rows.iter().map(|row| &row[column]).filter(|cell| **cell != Cell::Unknown);
        known.next().is_some_and(Cell::is_number)
    }
}

/// Returns a number with at most four digits, and a unit.
fn short(number: f64) -> String {
    let units = ["", "k", "M", "G", "T", "P"];
    let (mut rest, mut unit) = (number, 0);
    while rest.abs() >= 9999.5 && unit + 1 < units.len() {
        rest /= 1000.0;
        unit += 1;
    }
    let is_whole = rest.fract() == 0.0 || rest.abs() >= 99.95;
    format!("{rest:.*}{}", if is_whole { 0 } else { 1 }, units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, shown) in [
            (0.0, "0"),
            (0.25, "0.2"),
            (12.34, "12.3"),
            (123.4, "123"),
            (9999.0, "9999"),
            (12_345.0, "12.3k"),
            (999_999.0, "1000k"),
            (12_000_000.0, "12M"),
            (3.2e15, "3200T"),
            (1e30, "1000000000000000P"),
        ] {
            assert_eq!(short(number), shown, "{number}");
        }
    }

    #[test]
    fn rows_are_sorted_by_value_and_not_by_text() {
        let mut sheet = Sheet::new(&["NAME", "COUNT"]);
        sheet.add([Cell::text("b"), Cell::count(9)]);
        sheet.add([Cell::text("c"), Cell::count(10)]);
        sheet.add([Cell::text("a"), Cell::Unknown]);
        let names =
            |sheet: &Sheet| sheet.rows.iter().map(|row| row[0].shown().to_owned()).collect::<String>();
        sheet.sort(1, false);
        assert_eq!(names(&sheet), "abc");
        sheet.sort(1, true);
        assert_eq!(names(&sheet), "cba");
        sheet.sort(0, false);
        assert_eq!((names(&sheet), sheet.widths(), sheet.is_numeric(1)), ("abc".into(), vec![4, 5], true));
    }
}
