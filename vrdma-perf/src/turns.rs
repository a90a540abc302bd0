//! Measures two things alternately, so that their ratio is meaningful.
//!
//! Virtual processors of a shared machine move, and change speed, from one moment to the next.
//! Therefore each window of time is bracketed by round trips of a cache line. A ratio is taken
//! between neighbouring windows with similar round trips. Each *regime*, which is all windows with
//! similar round trips, has its own result.

use crate::stats::Quartiles;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Round trips of a cache line are similar if they differ by less than this factor.
const ALIKE: f64 = 1.5;
/// Least number of pairs of windows in a regime.
const LEAST: usize = 3;

/// The end of a measurement.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After this time, but not before [`LEAST`] pairs.
    Time(Duration),
    /// After this number of pairs.
    Pairs(usize),
}

/// A pair of neighbouring windows. `lines` are round trips of a cache line in nanoseconds: before,
/// between and after them.
#[derive(Clone, Copy, Debug)]
struct Pair {
    lines: [f64; 3],
    own: f64,
    limit: f64,
}

/// The result of windows with similar round trips.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Regime {
    /// Round trips of a cache line, in nanoseconds.
    pub line: Quartiles,
    /// Number of pairs of windows.
    pub pairs: usize,
    /// The measured values.
    pub own: Quartiles,
    /// The values of the limit.
    pub limit: Quartiles,
    /// The ratios of measured value to limit in each pair.
    pub ratio: Quartiles,
}

/// The results of an alternating measurement.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Turns {
    /// The regimes, the one with the most pairs first.
    pub regimes: Vec<Regime>,
    /// Number of pairs left out. Their round trips differed, or too few others were similar.
    pub left_out: usize,
}

/// Measures windows of both alternately, and `line` between them. They take turns in being first,
/// so neither has an advantage.
///
/// # Errors
/// A window fails.
pub fn take(
    until: Until,
    line: impl FnMut() -> f64,
    mut own: impl FnMut() -> Result<f64>,
    mut limit: impl FnMut() -> Result<f64>,
) -> Result<Turns> {
    collect(until, line, |count, first, line| {
        let own_first = count % 2 == 0;
        let early = if own_first { own()? } else { limit()? };
        let between = line();
        let late = if own_first { limit()? } else { own()? };
        let (own, limit) = if own_first { (early, late) } else { (late, early) };
        Ok(Pair { lines: [first, between, line()], own, limit })
    })
}

/// Measures windows that give both values at once, and `line` between them.
///
/// # Errors
/// A window fails.
pub fn take_both(
    until: Until,
    line: impl FnMut() -> f64,
    mut both: impl FnMut() -> Result<(f64, f64)>,
) -> Result<Turns> {
    collect(until, line, |_, first, line| {
        let (own, limit) = both()?;
        let last = line();
        Ok(Pair { lines: [first, last, last], own, limit })
    })
}

/// Collects pairs until the end. `pair` gets the number of pairs so far, and the round trip before
/// it.
fn collect<L: FnMut() -> f64>(
    until: Until,
    mut line: L,
    mut pair: impl FnMut(usize, f64, &mut L) -> Result<Pair>,
) -> Result<Turns> {
    let start = Instant::now();
    let mut pairs: Vec<Pair> = Vec::new();
    let mut first = line();
    loop {
        let enough = match until {
            Until::Time(time) => start.elapsed() >= time && pairs.len() >= LEAST,
            Until::Pairs(count) => pairs.len() >= count,
        };
        if enough {
            return Ok(regimes(&pairs));
        }
        let next = pair(pairs.len(), first, &mut line)?;
        first = next.lines[2];
        pairs.push(next);
    }
}

fn regimes(pairs: &[Pair]) -> Turns {
    let middle = |pair: &Pair| Quartiles::of(pair.lines).median;
    let steady = |pair: &&Pair| {
        let [least, most] = [f64::min, f64::max].map(|of| pair.lines.into_iter().reduce(of).unwrap_or(0.));
        most < least * ALIKE
    };
    let mut left: Vec<Pair> = pairs.iter().filter(steady).copied().collect();
    left.sort_by(|a, b| middle(a).total_cmp(&middle(b)));
    let alike = left.chunk_by(|a, b| middle(b) < middle(a) * ALIKE);
    let mut regimes: Vec<Regime> = alike.filter(|pairs| pairs.len() >= LEAST).map(regime).collect();
    regimes.sort_by_key(|regime| std::cmp::Reverse(regime.pairs));
    let used: usize = regimes.iter().map(|regime| regime.pairs).sum();
    Turns { regimes, left_out: pairs.len() - used }
}

fn regime(pairs: &[Pair]) -> Regime {
    let of = |value: fn(&Pair) -> f64| Quartiles::of(pairs.iter().map(value));
    Regime {
        line: Quartiles::of(pairs.iter().flat_map(|pair| pair.lines)),
        pairs: pairs.len(),
        own: of(|pair| pair.own),
        limit: of(|pair| pair.limit),
        ratio: of(|pair| pair.own / pair.limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(lines: [f64; 3], own: f64, limit: f64) -> Pair {
        Pair { lines, own, limit }
    }

    #[test]
    fn windows_between_which_processors_changed_places_are_not_compared() {
        let mut pairs = vec![pair([60., 62., 61.], 2., 1.); 4];
        pairs.extend([pair([500., 510., 505.], 9., 3.); 3]);
        pairs.extend([pair([60., 500., 500.], 9., 1.), pair([60., 60., 500.], 2., 3.)]);
        // Too few for a regime.
        pairs.push(pair([2000., 2000., 2000.], 7., 1.));
        let Turns { regimes, left_out } = regimes(&pairs);
        assert_eq!((regimes.len(), left_out), (2, 3));
        assert_eq!((regimes[0].pairs, regimes[0].ratio.median, regimes[0].line.median), (4, 2., 61.));
        assert_eq!((regimes[1].pairs, regimes[1].ratio.median, regimes[1].line.median), (3, 3., 505.));
    }

    #[test]
    fn ratios_are_those_of_neighbours() {
        let pairs = [pair([60.; 3], 1., 1.), pair([60.; 3], 4., 2.), pair([60.; 3], 9., 3.)];
        let ratio = regimes(&pairs).regimes[0].ratio;
        assert_eq!((ratio.low, ratio.median, ratio.high), (1., 2., 2.));
    }

    #[test]
    fn windows_that_give_both_are_bracketed_too() {
        let mut lines = [60., 60., 500., 60., 60., 60., 60.].into_iter().chain(std::iter::repeat(60.));
        let turns = take_both(Until::Pairs(6), || lines.next().unwrap(), || Ok((6., 2.))).unwrap();
        // The round trips before and after the second and the third window differ.
        assert_eq!((turns.regimes[0].pairs, turns.left_out, turns.regimes[0].ratio.median), (4, 2, 3.));
    }

    #[test]
    fn both_are_first_in_turns() {
        let order = std::cell::RefCell::new(String::new());
        let window = |name| {
            order.borrow_mut().push(name);
            Ok(1.)
        };
        take(Until::Pairs(3), || 60., || window('o'), || window('l')).unwrap();
        assert_eq!(*order.borrow(), "ollool");
    }
}
