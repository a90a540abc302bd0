//! Rows of the report's tables, in Markdown.

use crate::args::Figure;
use crate::measure::Measured;
use crate::stats::Quartiles;
use crate::turns::{Regime, Turns};

/// The head of the report's table.
pub const HEAD: &str = "| figure | measured | beside | | ratio (quartiles) | line | pairs | target |\n|---|---|---|---|---|---|---|---|";
/// The head of the table that compares two daemons.
pub const COMPARED: &str = "| figure | first | second | | first / second (quartiles) | line | pairs | |\n|---|---|---|---|---|---|---|---|";

/// The unit in which values of a figure are shown.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// Factor from measured values to this unit.
    pub factor: f64,
    /// Name of the unit.
    pub name: &'static str,
}

impl Unit {
    /// Returns the unit for values of a figure's windows.
    pub fn of(figure: Figure) -> Unit {
        let (factor, name) = match figure {
            Figure::Lat => (1., "us"),
            Figure::Bw => (1e-9, "GB/s"),
            Figure::Rate => (1e-6, "M/s"),
        };
        Unit { factor, name }
    }
}

/// Makes a row for each regime of a measurement.
pub fn of(name: &str, measured: &Measured, target: &str) -> Vec<String> {
    let limit = measured.limit.as_deref().unwrap_or("nothing");
    match &measured.turns {
        Some(turns) => regimes(name, turns, limit, Unit::of(measured.figure), target),
        None => vec![left_out(name, "it was not compared", target)],
    }
}

/// Makes a row for each regime of `turns`.
pub fn regimes(name: &str, turns: &Turns, limit: &str, unit: Unit, target: &str) -> Vec<String> {
    let row = |regime: &Regime| {
        let [own, its_limit] = [regime.own, regime.limit].map(|values| values.scaled(unit.factor).median);
        let Quartiles { low, median, high } = regime.ratio;
        let (line, pairs, unit) = (regime.line.median, regime.pairs, unit.name);
        format!(
            "| {name} | {own:.3} {unit} | {limit} | {its_limit:.3} {unit} | {median:.2} ({low:.2} to {high:.2}) | {line:.0} ns | {pairs} | {target} |"
        )
    };
    let lines: Vec<String> = turns.regimes.iter().map(row).collect();
    if lines.is_empty() {
        return vec![left_out(
            name,
            "no two windows of the same regime: others wanted the processors",
            target,
        )];
    }
    lines
}

/// Makes the row of a figure that is compared with a number.
pub fn absolute(name: &str, value: &str, target: &str) -> String {
    format!("| {name} | {value} | | | | | | {target} |")
}

/// Makes the row of a figure that could not be measured.
pub fn left_out(name: &str, why: &str, target: &str) -> String {
    // A bar would end the cell, and a line break the row.
    let why = why.replace('|', "/").replace('\n', " ");
    format!("| {name} | not measured: {why} | | | | | | {target} |")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_said_stays_in_its_cell() {
        let row = left_out("x", "a | b\nc", "< 1");
        assert_eq!(row, "| x | not measured: a / b c | | | | | | < 1 |");
        for row in [row, absolute("x", "1", "< 1")] {
            assert_eq!(row.matches('|').count(), HEAD.lines().next().unwrap().matches('|').count());
        }
    }

    #[test]
    fn without_a_regime_a_row_says_so() {
        let rows = regimes("x", &Turns::default(), "y", Unit::of(Figure::Lat), "");
        assert!(rows.len() == 1 && rows[0].contains("no two windows"), "{rows:?}");
    }
}
